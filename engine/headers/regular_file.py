"""Tells files from what only has a place among them. Nothing is opened here."""

from __future__ import annotations

import stat
from pathlib import Path

from core.errors import ModelError


def require_file(path: Path) -> None:
    """Refuse what is no regular file before it is opened: reading a pipe would never end.

    Raises:
        ModelError: there is nothing, or something else than a file.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from error
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "directory", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
        raise ModelError(f"{path}: a {kinds.get(stat.S_IFMT(mode), 'device')}, not a file")
