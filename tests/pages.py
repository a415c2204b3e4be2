"""The documentation as the tests read it: its blocks, and the commands in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
CI = (ROOT / ".ci/run").read_text()


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page; `language` is the word behind its fence, or empty."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(language, text) for language, text in found]


def commands(page: Path) -> list[str]:
    """List the lines of a page's `sh` blocks, in order."""
    shell = [block.text for block in blocks(page) if block.language == "sh"]
    return [line for text in shell for line in text.splitlines() if line.strip()]


def at(command: str, url: str) -> str:
    """Point a command that means the default server at the one that listens at `url`."""
    pointed = command.replace("localhost:8000", url.removeprefix("http://"))
    return f"{pointed} {url}" if "bin/loadgen" in pointed else pointed
