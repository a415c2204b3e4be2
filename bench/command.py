"""What the benchmarks' command lines have in common. Nothing is measured."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from core.errors import FloorlineError
from core.inputs.options import Parser
from core.inputs.quantities import whole

T = TypeVar("T")


class Command(Parser):
    """A parser whose help begins with the first line of a module's docstring.

    What it refuses is one line that names the option.
    """

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

    def count(self, flag: str, default: int, help: str, least: int = 1) -> None:
        self.option(flag, help, type=number_from(least), default=default, metavar="N")

    def file(self, flag: str, what: str) -> None:
        """Add an option that writes something to a file besides."""
        self.option(flag, f"write {what} to this file", "to none", type=to_write, metavar="FILE")


def start(main: Callable[[], int | None]) -> NoReturn:
    """Run a benchmark; what it cannot run with is told in one line."""
    try:
        sys.exit(main())
    except FloorlineError as error:
        sys.exit(" ".join(str(error).split()))
    except KeyboardInterrupt:
        sys.exit(130)


def number_from(least: int) -> Callable[[str], int]:
    return told(whole(least, 10**15, f"a whole number from {least} on"))


def told(read: Callable[[str], T]) -> Callable[[str], T]:
    """Let argparse name the option beside what a reader says."""

    def reader(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return reader


def to_write(text: str) -> Path:
    """Take a file that can be written, before hours are spent on what goes into it."""
    path = Path(text)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written")
    return path


def to_read(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file")
    return path.absolute()


def program(text: str) -> Path:
    """Find what runs when `text` is typed. A link stays one: it is how a Python knows its venv."""
    if (found := shutil.which(text)) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a program")
    return Path(found).absolute()
