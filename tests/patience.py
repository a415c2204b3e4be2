"""How long a test waits for what must come: long, for it ends a hang and measures nothing."""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 240.0
