"""Start the commands with our packages first on the path. It knows where they lie, and no more.

Installed, they lie beside this file; in a checkout, a folder above it. See ARCHITECTURE.md,
"One name in site-packages".
"""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
HOME = _HERE if (_HERE / "core").is_dir() else _HERE.parent


def _put_ours_first() -> None:
    """Let `core`, `server` and so on be ours in this process, whatever else has these names."""
    sys.path.insert(0, str(HOME))


def floorline() -> int:
    """Run the command `floorline`; return its exit status."""
    _put_ours_first()
    from server.cli.main import main

    return main()


def loadgen() -> int:
    """Run the command `loadgen`; return its exit status."""
    _put_ours_first()
    from loadgen.cli import main

    return main()
