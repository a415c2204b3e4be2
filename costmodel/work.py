"""The bytes and FLOPs that a step has to move, by component. It knows no peaks and no clock.

Activations and logits are left out: a perfect implementation need not move them, so that what is
counted is a true lower bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from core.formats import KVFormat, Storage
from core.model import ModelConfig, TensorRole
from core.wire import SharedRun, SliceRecord
from costmodel.split import split_exactly
from costmodel.storage import kv_bytes_per_token_and_layer, row_bytes, weight_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one step moves; what is a slice's own is kept by slice.

    A block that several slices read is moved once, and its read split evenly among them.
    """

    weights_bytes: int
    lm_head_bytes: int
    embedding_bytes: int
    kv_read_bytes_by_slice: tuple[int, ...]
    kv_write_bytes: int
    linear_flops: int
    attention_flops_by_slice: tuple[int, ...]
    lm_head_flops: int

    @property
    def kv_read_bytes(self) -> int:
        return sum(self.kv_read_bytes_by_slice)

    @property
    def attention_flops(self) -> int:
        return sum(self.attention_flops_by_slice)

    @property
    def bytes_read(self) -> int:
        return self.weights_bytes + self.lm_head_bytes + self.embedding_bytes + self.kv_read_bytes

    @property
    def bytes_total(self) -> int:
        return self.bytes_read + self.kv_write_bytes

    @property
    def flops(self) -> int:
        return self.linear_flops + self.attention_flops + self.lm_head_flops


class Arithmetic:
    """A model's constants, and the sums over a step's slices.

    Built from the same `ModelConfig` that builds the network.
    """

    def __init__(self, config: ModelConfig, storage: Storage, kv: KVFormat) -> None:
        stored = weight_bytes(config, storage)
        matrices = sum(s.parameters for s in config.tensors() if s.role is TensorRole.MATRIX)
        self.layers_bytes = stored[TensorRole.MATRIX] + stored[TensorRole.VECTOR]
        self.lm_head_bytes = stored.get(TensorRole.LM_HEAD, 0) + stored.get(TensorRole.TIED, 0)
        self.embedding_row_bytes = row_bytes(config.hidden_size, storage.format_of("embed"))
        self.kv_layer_bytes = kv_bytes_per_token_and_layer(config, kv)
        self.kv_token_bytes = config.num_layers * self.kv_layer_bytes
        self.linear_flops_per_token = 2 * matrices
        self.lm_head_flops_per_row = 2 * config.vocab_size * config.hidden_size
        self.attention_flops_per_pair = 4 * config.num_heads * config.head_dim  # and per layer
        self._layers_by_window = tuple(Counter(config.sliding_window).items())
        self.stored_bytes = sum(stored.values())

    def work(
        self, slices: Sequence[SliceRecord], shared: Sequence[SharedRun], distinct_token_ids: int
    ) -> Work:
        """Sum a step. A step without slices moves nothing."""
        tokens, rows = sum([s.length for s in slices]), sum([s.rows for s in slices])
        return Work(
            weights_bytes=self.layers_bytes if tokens else 0,
            lm_head_bytes=self.lm_head_bytes if rows else 0,
            embedding_bytes=distinct_token_ids * self.embedding_row_bytes,
            kv_read_bytes_by_slice=self._kv_read_bytes(slices, shared),
            kv_write_bytes=tokens * self.kv_token_bytes,
            linear_flops=tokens * self.linear_flops_per_token,
            attention_flops_by_slice=tuple(
                [self.attention_flops(s.start, s.length) for s in slices]
            ),
            lm_head_flops=rows * self.lm_head_flops_per_row,
        )

    def attention_flops(self, start: int, length: int) -> int:
        """Count causal attention of `length` new tokens after `start` known ones, all layers."""
        pairs = 0
        for window, layers in self._layers_by_window:
            pairs += layers * attended_pairs(start, length, window)
        return pairs * self.attention_flops_per_pair

    def _kv_read_bytes(
        self, slices: Sequence[SliceRecord], shared: Sequence[SharedRun]
    ) -> tuple[int, ...]:
        read_bytes = [0] * len(slices)
        for window, layers in self._layers_by_window:
            token_bytes = layers * self.kv_layer_bytes
            for index, piece in enumerate(slices):
                read_bytes[index] += (piece.start - _hidden(piece, window)) * token_bytes
            if shared:
                _share_runs(read_bytes, slices, shared, window, token_bytes)
        return tuple(read_bytes)


def attended_pairs(start: int, length: int, window: int | None) -> int:
    """Sum min(start + j, window) over j = 1..length: positions that the new tokens look at."""
    growing = length if window is None else min(length, max(window - start, 0))
    pairs = growing * start + growing * (growing + 1) // 2
    return pairs if window is None else pairs + (length - growing) * window


def _hidden(piece: SliceRecord, window: int | None) -> int:
    """Count the leading context tokens that lie outside the window of the slice's first token."""
    return 0 if window is None else max(piece.start - (window - 1), 0)


def _share_runs(
    read_bytes: list[int],
    slices: Sequence[SliceRecord],
    shared: Sequence[SharedRun],
    window: int | None,
    token_bytes: int,
) -> None:
    """Replace each reader's full cost of a shared run by its part: every token is moved once.

    Under a window a reader sees the run's last tokens only, so that the run is shared in nested
    suffixes. Runs lie in context order: a reader's next run starts where its last one ended.

    Mutates: `read_bytes`.
    """
    begins = [0] * len(slices)
    for run in shared:
        seen: list[tuple[int, int]] = []
        for reader in run.readers:
            hidden = max(_hidden(slices[reader], window) - begins[reader], 0)
            seen.append((max(run.tokens - hidden, 0), reader))
            begins[reader] += run.tokens
        seen.sort()
        counted = 0
        for rank, (tokens, reader) in enumerate(seen):
            read_bytes[reader] -= tokens * token_bytes
            readers = [other for _, other in seen[rank:]]
            parts = split_exactly((tokens - counted) * token_bytes, [1] * len(readers))
            for other, part in zip(readers, parts, strict=True):
                read_bytes[other] += part
            counted = tokens
