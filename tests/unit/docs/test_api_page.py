"""docs/api.md is what the tables say."""

from __future__ import annotations

from pathlib import Path

from docs.build.api_page import page

ROOT = Path(__file__).parents[3]


def test_the_page_is_what_the_tables_say() -> None:
    assert (ROOT / "docs/api.md").read_text() == page()
