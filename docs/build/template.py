"""A page's prose lies beside its maker, in a file of Markdown with `$names`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template


def filled(page: str, texts: Mapping[str, object]) -> str:
    """Fill the template of a page.

    Raises:
        KeyError: the template has a name that `texts` lacks.
    """
    path = Path(__file__).with_name(f"{page}.template.md")
    return Template(path.read_text("utf-8")).substitute(texts)
