"""A few requests over one native model: block tables, slots and positions as the engine gives them.

Blocks are handed out in a shuffled order, so that nothing works by being contiguous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from core.formats import MatrixFormat
from core.model import ModelConfig, TensorRole
from kernels import NativeModel, NativeOptions, PackedMatrix, build_model, pack
from tests.unit.kernels.oracle import inverse_frequencies

Array = npt.NDArray[Any]


def native(
    config: ModelConfig,
    weights: dict[str, Array],
    target: MatrixFormat = MatrixFormat.FP32,
    formats: Mapping[str, MatrixFormat] | None = None,
    given: Mapping[str, PackedMatrix] | None = None,
    **options: Any,
) -> NativeModel:
    """Pack the weights and build a model with room for small tests.

    `formats` are of kinds of matrices, as "up_proj"; all others are packed as `target`. Matrices
    that are `given` are packed already.
    """
    defaults: dict[str, Any] = {
        "num_blocks": 64,
        "block_size": 16,
        "max_tokens": 256,
        "max_positions": 1024,
        "threads": 2,
        "kv_format": "fp32",
    }
    packed = {
        spec.name: weights[spec.name]
        if spec.role is TensorRole.VECTOR
        else (given or {}).get(spec.name)
        or pack(weights[spec.name], (formats or {}).get(spec.name.split(".")[-1], target))
        for spec in config.tensors()
    }
    return build_model(
        config, packed, inverse_frequencies(config), NativeOptions(**(defaults | options))
    )


class World:
    """Requests by number, each with its tokens computed so far and its own blocks."""

    def __init__(
        self, model: NativeModel, vocab_size: int, num_blocks: int = 64, block_size: int = 16
    ) -> None:
        self.model, self.vocab_size, self.block_size = model, vocab_size, block_size
        self.free = list(np.random.default_rng(5).permutation(num_blocks))
        self.blocks: dict[int, list[int]] = {}
        self.computed: dict[int, int] = {}

    def arrays(self, slices: Sequence[tuple[int, Sequence[int]]]) -> dict[str, Array]:
        """Describe a step that appends tokens to requests, and count them as computed."""
        positions, slots, starts = [], [], [0]
        for request, tokens in slices:
            start = self.computed.get(request, 0)
            blocks = self.blocks.setdefault(request, [])
            for position in range(start, start + len(tokens)):
                if position // self.block_size == len(blocks):
                    blocks.append(self.free.pop())
                block = blocks[position // self.block_size]
                positions.append(position)
                slots.append(block * self.block_size + position % self.block_size)
            self.computed[request] = start + len(tokens)
            starts.append(starts[-1] + len(tokens))
        tables = np.zeros((len(slices), max(len(self.blocks[r]) for r, _ in slices)), np.int32)
        for row, (request, _) in zip(tables, slices, strict=True):
            row[: len(self.blocks[request])] = self.blocks[request]
        tokens = np.array([token for _, piece in slices for token in piece], np.int32)
        return {
            "tokens": tokens,
            "positions": np.array(positions, np.int32),
            "slots": np.array(slots, np.int32),
            "block_tables": tables,
            "query_starts": np.array(starts, np.int32),
            "logit_rows": np.arange(len(tokens), dtype=np.int32),
            "logits": np.full((len(tokens), self.vocab_size), np.nan, np.float32),
            "greatest": np.full(len(tokens), -2, np.int32),
        }

    def step(self, slices: Sequence[tuple[int, Sequence[int]]]) -> Array:
        """Run one step and give the logits of all its rows."""
        arrays = self.arrays(slices)
        self.model.step(**arrays)
        return arrays["logits"]
