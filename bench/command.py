"""What the benchmarks' command lines have in common. Nothing is measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


class Command(argparse.ArgumentParser):
    """A parser whose help begins with the first line of a module's docstring."""

    def __init__(self, module: str, doc: str) -> None:
        line, _, rest = doc.partition("\n")
        super().__init__(
            prog=f"python -m {module}",
            description=line,
            epilog=rest.strip("\n"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def option(self, flag: str, help: str, otherwise: str = "%(default)s", **how: Any) -> None:
        """Add an option that may be left out; `otherwise` says what holds then."""
        self.add_argument(flag, help=f"{help} (default: {otherwise})", **how)

    def count(self, flag: str, default: int, help: str) -> None:
        self.option(flag, help, type=int, default=default, metavar="N")

    def file(self, flag: str, what: str) -> None:
        """Add an option that writes something to a file besides."""
        self.option(flag, f"write {what} to this file", "to none", type=Path, metavar="FILE")
