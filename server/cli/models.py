"""`floorline models`: the presets, and what earlier starts prepared. It prepares nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from core.cache import MANIFEST_FILE, PRESETS, models_dir


def list_models() -> None:
    """Print presets, then each prepared folder with its size."""
    print("presets:")
    for name in PRESETS:
        print(f"  {name}")
    folder = models_dir()
    print(f"prepared in {folder}:")
    lines = list(prepared(folder))
    print("\n".join(lines) if lines else "  none")


def prepared(folder: Path) -> Iterator[str]:
    """Write a line for each model in `folder`; a broken one is prepared again when served."""
    for path in sorted(folder.glob(f"*/{MANIFEST_FILE}")):
        try:
            files = json.loads(path.read_text(encoding="utf-8"))["files"]
            size = sum((path.parent / name).stat().st_size for name in files)
        except (OSError, ValueError, LookupError, TypeError):
            shown = "broken"
        else:
            shown = f"{size / 1e6:,.1f} MB"
        yield f"  {path.parent.name:<48} {shown:>12}"
