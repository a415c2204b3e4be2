"""Which release this is. It reads the installed package's metadata and nothing else."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    return importlib.metadata.version("floorline")
