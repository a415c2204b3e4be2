"""The pages are whole: links lead somewhere, and what must have an entry has one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from core.errors import ServiceError
from core.request import Obstacle
from costmodel.account import LostCause
from server.http.errors import TABLE
from tests.pages import ROOT, blocks
from tests.test_architecture import MAY_IMPORT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
RUN_BY_TESTS = {"README.md", "tutorial.md"}  # test_readme.py and test_tutorial.py
TROUBLE = (ROOT / "docs/troubleshooting.md").read_text("utf-8")


def anchors(page: Path) -> set[str]:
    """Name the headings as GitHub does in links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        file, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_only_pages_whose_commands_are_run_have_shell_blocks(page: Path) -> None:
    languages = {block.language for block in blocks(page)}
    assert ("sh" in languages) == (page.name in RUN_BY_TESTS)


def test_each_page_is_on_the_map_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        assert name == "README.md" or f"({name})" in readme, name


def test_each_alert_has_an_entry_that_says_what_to_do() -> None:
    rules = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text())
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    entries = re.findall(r"^### (Floorline\w+)$", TROUBLE, re.MULTILINE)
    assert entries == alerts


def test_each_error_that_is_ours_has_an_entry() -> None:
    rows = [row for error, row in TABLE.items() if issubclass(error, ServiceError) and row.code]
    for row in rows:
        assert f"\n### {row.status} `{row.code}`\n" in TROUBLE, row.code


def test_each_cause_of_lost_time_and_each_reason_to_wait_has_a_row() -> None:
    for name in [*LostCause, *(obstacle.value for obstacle in Obstacle)]:
        assert f"\n| `{name}` |" in TROUBLE, name


def test_each_word_is_explained_once_and_names_its_place_in_the_code() -> None:
    page = (ROOT / "docs/words.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    words = [word for word, _ in rows if word != "word"]
    assert len(set(words)) == len(words) > 20
    for word, code in rows:
        assert word == "word" or re.search(r"`[\w/]+\.py:[\w.]+`", code), word


def test_the_log_has_each_of_its_entries_in_the_index() -> None:
    log = (ROOT / "LOG.md").read_text("utf-8")
    entries = re.findall(r"^## (\d{4}-\d\d-\d\d): (.*)$", log, re.MULTILINE)
    index = re.findall(r"^\| (\d{4}-\d\d-\d\d) \| \[([^\]]+)\]\(#", log, re.MULTILINE)
    assert index == entries


def test_the_table_of_packages_says_what_each_may_import() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)/` \| [^|]+ \| ([^|]+) \| [^|]+ \|$", page, re.MULTILINE)
    table = {package: set(re.findall(r"\w+", names)) for package, names in rows}
    assert table == MAY_IMPORT
