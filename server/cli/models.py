"""`floorline models`: the presets, and what earlier starts prepared. It prepares nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path


def list_models() -> None:
    """Print presets, then each prepared folder with its size."""
    from engine.checkpoint.locate import PRESETS
    from engine.prepare.prepare import MANIFEST_FILE, cache_dir

    print("presets:")
    for name in PRESETS:
        print(f"  {name}")
    folder = cache_dir() / "models"
    print(f"prepared in {folder}:")
    lines = list(prepared(folder, MANIFEST_FILE))
    print("\n".join(lines) if lines else "  none")


def prepared(folder: Path, manifest: str) -> Iterator[str]:
    """Write a line for each model in `folder`; one that is not whole is prepared anew when served.

    `manifest` is the file that lists a model's others.
    """
    for path in sorted(folder.glob(f"*/{manifest}")):
        try:
            files = json.loads(path.read_text(encoding="utf-8"))["files"]
            size = sum((path.parent / name).stat().st_size for name in files)
        except (OSError, ValueError, LookupError, TypeError):
            shown = "broken"
        else:
            shown = f"{size / 1e6:,.1f} MB"
        yield f"  {path.parent.name:<48} {shown:>12}"
