from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from kernels.packing import PackedMatrix

Array = npt.NDArray[Any]

PANEL_ROWS: int
GROUP_COLUMNS: int
QUAD_COLUMNS: int
BYTE_ZERO: int
MAX_THREADS: int
MATRIX_FORMATS: tuple[str, ...]
KV_FORMATS: tuple[str, ...]

def stored_bytes(rows: int, columns: int, format: str, /) -> int: ...

class Unsupported(ValueError): ...

class NativeModel:
    def __init__(
        self,
        weights: Mapping[str, PackedMatrix | Array],
        description: Mapping[str, object],  # of `kernels.build.describe`
    ) -> None: ...
    def step(
        self,
        tokens: Array,
        positions: Array,
        slots: Array,
        block_tables: Array,
        query_starts: Array,
        logit_rows: Array,
        logits: Array,
        greatest: Array,
    ) -> None: ...
    def read_weights(self) -> int: ...
    def read_kv(self, num_bytes: int) -> int: ...
    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def kv_bytes(self) -> int: ...

class Reader:
    def __init__(self, num_bytes: int, *, threads: int, isa: str = "") -> None: ...
    def touch(self, begin: int, end: int) -> None: ...
    def read(self, *, set: int, piece: int, start: int, limit_ns: int) -> list[int]: ...

def product(
    x: Array,
    packed: PackedMatrix,
    y: Array,
    *,
    activations: str = "int8",
    threads: int = 1,
    isa: str = "",
) -> None: ...
def isas() -> list[str]: ...
