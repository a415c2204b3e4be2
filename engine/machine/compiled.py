"""Whether the native kernels were compiled for this Python."""

from __future__ import annotations

import importlib.util
from typing import Final

NATIVE_COMPILED: Final = importlib.util.find_spec("floorline._native") is not None
