"""The bytes and FLOPs that steps have to move, by component. It knows no peaks and no clock.

Activations and logits are left out: a perfect implementation need not move them, so that what is
counted is a true lower bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from core.formats import KVFormat, Storage
from core.model import ModelConfig, TensorRole
from core.wire import SharedRun, SliceRecord
from costmodel.slices import Ran, Slices, slices_of
from costmodel.split import Ints, sums_by
from costmodel.storage import kv_bytes_per_token_and_layer, row_bytes, weight_bytes

Count = TypeVar("Count", int, Ints)  # of one step, or a column of many


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Generic[Count]):
    """What a step moves, or each of many; what is a slice's own is kept by slice too.

    A block that several slices read is moved once, and its read split evenly among them.
    """

    weights_bytes: Count
    lm_head_bytes: Count
    embedding_bytes: Count
    kv_read_bytes: Count
    kv_read_bytes_by_slice: Sequence[int] | Ints
    kv_write_bytes: Count
    linear_flops: Count
    attention_flops: Count
    lm_head_flops: Count

    @property
    def bytes_read(self) -> Count:
        return self.weights_bytes + self.lm_head_bytes + self.embedding_bytes + self.kv_read_bytes

    @property
    def bytes_total(self) -> Count:
        return self.bytes_read + self.kv_write_bytes

    @property
    def flops(self) -> Count:
        return self.linear_flops + self.attention_flops + self.lm_head_flops


def work_of_step(work: Work[Ints], slices: Slices, step: int) -> Work[int]:
    """Take one step's numbers out of the columns."""
    begin, end = slices.first[step : step + 2]
    return Work(
        weights_bytes=int(work.weights_bytes[step]),
        lm_head_bytes=int(work.lm_head_bytes[step]),
        embedding_bytes=int(work.embedding_bytes[step]),
        kv_read_bytes=int(work.kv_read_bytes[step]),
        kv_read_bytes_by_slice=tuple(map(int, work.kv_read_bytes_by_slice[begin:end])),
        kv_write_bytes=int(work.kv_write_bytes[step]),
        linear_flops=int(work.linear_flops[step]),
        attention_flops=int(work.attention_flops[step]),
        lm_head_flops=int(work.lm_head_flops[step]),
    )


class Arithmetic:
    """A model's constants, and the sums over the slices of steps.

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

    @property
    def step_weight_bytes(self) -> int:
        """Size the weights that a step with logits reads whole."""
        return self.layers_bytes + self.lm_head_bytes

    def work(
        self, slices: Sequence[SliceRecord], shared: Sequence[SharedRun], distinct_token_ids: int
    ) -> Work[int]:
        """Sum one step. A step without slices moves nothing."""
        columns = slices_of([Ran(slices, shared, distinct_token_ids)])
        return work_of_step(self.works(columns), columns, 0)

    def works(self, slices: Slices) -> Work[Ints]:
        """Sum many steps, a row each."""
        step, count = slices.step, slices.steps
        tokens = sums_by(step, slices.length, count)
        rows = sums_by(step, slices.rows, count)
        attention = self.attention_flops(slices.start, slices.length)
        kv_read_bytes = self._kv_read_bytes(slices)
        return Work(
            weights_bytes=np.where(tokens > 0, self.layers_bytes, 0),
            lm_head_bytes=np.where(rows > 0, self.lm_head_bytes, 0),
            embedding_bytes=slices.distinct_token_ids * self.embedding_row_bytes,
            kv_read_bytes=sums_by(step, kv_read_bytes, count),
            kv_read_bytes_by_slice=kv_read_bytes,
            kv_write_bytes=tokens * self.kv_token_bytes,
            linear_flops=tokens * self.linear_flops_per_token,
            attention_flops=sums_by(step, attention, count),
            lm_head_flops=rows * self.lm_head_flops_per_row,
        )

    def attention_flops(self, start: Count, length: Count) -> Count:
        """Count causal attention of `length` new tokens after `start` known ones, all layers."""
        pairs = start * 0
        for window, layers in self._layers_by_window:
            pairs = pairs + layers * attended_pairs(start, length, window)
        return pairs * self.attention_flops_per_pair

    def _kv_read_bytes(self, slices: Slices) -> Ints:
        read_bytes = slices.start * 0
        for window, layers in self._layers_by_window:
            token_bytes = layers * self.kv_layer_bytes
            hidden = _hidden(slices.start, window)
            read_bytes += (slices.start - hidden) * token_bytes
            for step, shared in enumerate(slices.shared):
                if shared:
                    own = slice(*slices.first[step : step + 2])
                    read_bytes[own] += _shared_bytes(hidden[own].tolist(), shared, token_bytes)
        return read_bytes


def attended_pairs(start: Count, length: Count, window: int | None) -> Count:
    """Sum min(start + j, window) over j = 1..length: positions that the new tokens look at."""
    past = length * 0 if window is None else _above(start + length, window)
    growing = _above(length, past)  # tokens that do not yet see a whole window
    pairs = growing * start + growing * (growing + 1) // 2
    return pairs if window is None else pairs + (length - growing) * window


def _above(number: Count, limit: Count | int) -> Count:
    """Give what of a number, or of each, is above a limit: max(number − limit, 0)."""
    over = number - limit
    above: Count = (over + abs(over)) // 2
    return above


def _hidden(start: Count, window: int | None) -> Count:
    """Count the leading context tokens that lie outside the window of a slice's first token."""
    return start * 0 if window is None else _above(start, window - 1)


def _shared_bytes(
    hidden: Sequence[int], shared: Sequence[SharedRun], token_bytes: int
) -> list[int]:
    """Replace each reader's full cost of a shared run by its part: every token is moved once.

    Under a window a reader sees the run's last tokens only, so that the run is shared in nested
    suffixes. Runs lie in context order: a reader's next run starts where its last one ended.

    Returns: what to add to the bytes of each of the step's slices.
    """
    more_bytes, begins = [0] * len(hidden), [0] * len(hidden)
    for run in shared:
        seen: list[tuple[int, int]] = []
        for reader in run.readers:
            seen.append((max(run.tokens - max(hidden[reader] - begins[reader], 0), 0), reader))
            begins[reader] += run.tokens
        seen.sort()
        counted = 0
        for rank, (tokens, reader) in enumerate(seen):
            more_bytes[reader] -= tokens * token_bytes
            if tokens > counted:
                each, left = divmod((tokens - counted) * token_bytes, len(seen) - rank)
                for place, (_, other) in enumerate(seen[rank:]):
                    more_bytes[other] += each + (place < left)
                counted = tokens
    return more_bytes
