from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from kernels.packing import PackedMatrix

Array = npt.NDArray[Any]

class Unsupported(ValueError): ...

class NativeModel:
    def __init__(
        self,
        weights: Mapping[str, PackedMatrix | Array],
        *,
        vocab_size: int,
        hidden_size: int,
        intermediate_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        norm_eps: float,
        activation: str,
        windows: list[int],
        inverse_frequencies: list[float],
        num_blocks: int,
        block_size: int,
        kv_format: str,
        max_tokens: int,
        max_positions: int,
        activations: str,
        threads: int,
        isa: str = "",
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
