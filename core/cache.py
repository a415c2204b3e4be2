"""Where prepared models and measurements are kept, and the names known there. It opens no file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

PRESETS: Final = ("smollm2-135m", "tinygpt")  # models that --model knows by name
MANIFEST_FILE: Final = "manifest.json"  # in each prepared model: the hashes of its other files


def cache_dir() -> Path:
    """Give the folder of prepared models and measurements; FLOORLINE_CACHE overrides."""
    if given := os.environ.get("FLOORLINE_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "floorline"


def models_dir() -> Path:
    """Give the folder that has one folder for each prepared model."""
    return cache_dir() / "models"
