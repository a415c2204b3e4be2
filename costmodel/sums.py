"""A model's constants, and the sums over steps that follow from them: the one home of both.

Who plans, paces and accounts reads the same numbers. It knows no peaks and no clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from core.anatomy.parts import Anatomy, KVSpec, anatomy_of
from core.formats import KVFormat, Storage
from core.model import ModelConfig, TensorRole
from core.wire import SharedRun, SliceRecord
from costmodel.slices import Ran, Slices, slices_of
from costmodel.split import Count, Ints
from costmodel.storage import row_bytes, store_bytes_per_token, weight_bytes
from costmodel.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTotals:
    """The terms of a step's bytes, and its FLOPs."""

    weight_bytes: int
    kv_bytes: int = 0
    state_bytes: int = 0
    flops: int

    @property
    def bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes + self.state_bytes


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers whose attention is alike. A layer that reads another's store adds no bytes."""

    window: int | None
    layers: int
    kv_bytes: int  # of one token in one layer
    flops_per_pair: int  # in one layer


@dataclass(frozen=True, slots=True)
class ExpertSums:
    """Of `count` experts a token takes `top_k`; `each_bytes` is one of them in all layers."""

    count: int
    top_k: int
    each_bytes: int

    def spread_bytes(self, tokens: int) -> int:
        """Size what a step of `tokens` reads beyond `top_k` experts if all are chosen alike."""
        missed = (1 - self.top_k / self.count) ** tokens
        return round((self.count * (1 - missed) - self.top_k) * self.each_bytes)


@dataclass(frozen=True, kw_only=True)
class ModelSums:
    """A model at one storage of its weights and one of its KV.

    Built from the same `ModelConfig` that builds the network; for a plan from any anatomy, or by
    hand. What says "alike" holds for models whose layers are, as those that we serve.
    """

    parameters: int
    stored_bytes: int
    layers_bytes: int  # read whole by each step; of experts as many as one token takes
    lm_head_bytes: int  # and by each step with logits
    embedding_row_bytes: int  # for each distinct token
    groups: tuple[LayerGroup, ...]
    linear_flops_per_token: int
    lm_head_flops_per_row: int
    state_bytes: int = 0  # of a request; read and written by each of its steps
    experts: ExpertSums | None = None

    @classmethod
    def of(cls, config: ModelConfig, storage: Storage, kv: KVFormat) -> ModelSums:
        """Sum up a model in formats that we store."""
        return cls.sized(
            anatomy_of(config),
            weight_bytes(config, storage),
            row_bytes(config.hidden_size, storage.format_of("embed")),
            partial(store_bytes_per_token, kv=kv),
        )

    @classmethod
    def sized(
        cls,
        anatomy: Anatomy,
        stored: Mapping[TensorRole, int],
        token_row_bytes: int,
        store_bytes: Callable[[KVSpec], int],
    ) -> ModelSums:
        """Sum up a model whose bytes are known; `token_row_bytes` of all that is looked up."""
        expert_bytes = stored.get(TensorRole.EXPERT, 0)
        experts = None
        if anatomy.experts:
            each = expert_bytes // anatomy.experts
            experts = ExpertSums(anatomy.experts, anatomy.top_k, each)
        chosen = experts.top_k * experts.each_bytes if experts else 0
        return cls(
            parameters=anatomy.parameters,
            stored_bytes=sum(stored.values()),
            layers_bytes=stored[TensorRole.MATRIX] + stored[TensorRole.VECTOR] + chosen,
            lm_head_bytes=stored.get(TensorRole.LM_HEAD, 0) + stored.get(TensorRole.TIED, 0),
            embedding_row_bytes=token_row_bytes,
            groups=_groups(anatomy, store_bytes),
            linear_flops_per_token=2 * anatomy.token_parameters,
            lm_head_flops_per_row=2 * anatomy.vocab_size * anatomy.hidden_size,
            state_bytes=anatomy.state_bytes,
            experts=experts,
        )

    @cached_property
    def layers(self) -> int:
        """Count the layers with attention."""
        return sum(group.layers for group in self.groups)

    @cached_property
    def layers_by_window(self) -> tuple[tuple[int | None, int], ...]:
        counts: Counter[int | None] = Counter()
        for group in self.groups:
            counts[group.window] += group.layers
        return tuple(counts.items())

    @cached_property
    def kv_token_bytes(self) -> int:
        return sum(group.layers * group.kv_bytes for group in self.groups)

    @cached_property
    def kv_layer_bytes(self) -> int:
        """Size one token in one layer, of layers that are alike."""
        return self.groups[0].kv_bytes

    @cached_property
    def attention_flops_per_pair(self) -> int:
        """Count a pair's FLOPs in one layer, of layers that are alike."""
        return self.groups[0].flops_per_pair

    @property
    def step_weight_bytes(self) -> int:
        """Size the weights that a step with logits reads whole."""
        return self.layers_bytes + self.lm_head_bytes

    @property
    def least_weight_bytes(self) -> int:
        """Size what a step with logits reads of the weights at least: one embedding row."""
        return self.step_weight_bytes + self.embedding_row_bytes

    def step_read_bytes(self, seen_tokens: int) -> int:
        """Size what a step with logits reads, but for embedding rows.

        `seen_tokens` are of context, counted once for each layer that reads them.
        """
        return self.step_weight_bytes + seen_tokens * self.kv_layer_bytes

    def seen_tokens(self, start: int) -> int:
        """Count the context tokens that a slice from `start` on reads, once for each layer."""
        return self.layers * start - sum(
            layers * hidden_tokens(start, window) for window, layers in self.layers_by_window
        )

    def uniform_step(
        self, requests: int, context: int, tokens: int, rows: int = 1, shared: int = 0
    ) -> StepTotals:
        """Sum a step of `requests` that run `tokens` each after `context`, `shared` of it common.

        A true lower bound: of the input embedding one row is counted, as if all tokens were alike.
        """
        kv_bytes = requests * tokens * self.kv_token_bytes
        for group in self.groups:
            hidden = hidden_tokens(context, group.window)
            common = max(shared - hidden, 0)
            seen = common + requests * (context - hidden - common)
            kv_bytes += group.layers * group.kv_bytes * seen
        flops = tokens * self.linear_flops_per_token + rows * self.lm_head_flops_per_row
        return StepTotals(
            weight_bytes=self.least_weight_bytes,
            kv_bytes=kv_bytes,
            state_bytes=requests * self.state_bytes * (2 if context else 1),
            flops=requests * (flops + self.attention_flops(context, tokens)),
        )

    def work(
        self, slices: Sequence[SliceRecord], shared: Sequence[SharedRun], distinct_token_ids: int
    ) -> Work:
        """Sum one step, as columns of one row. A step without slices moves nothing."""
        return self.works(slices_of([Ran(slices, shared, distinct_token_ids)]))

    def works(self, slices: Slices) -> Work:
        """Sum many steps, a row each."""
        tokens, rows = slices.by_step(slices.length), slices.by_step(slices.rows)
        attention = self.attention_flops(slices.start, slices.length)
        kv_read_bytes = self._kv_read_bytes(slices)
        return Work(
            tokens=tokens,
            weights_bytes=np.where(tokens > 0, self.layers_bytes, 0),
            lm_head_bytes=np.where(rows > 0, self.lm_head_bytes, 0),
            embedding_bytes=slices.distinct_token_ids * self.embedding_row_bytes,
            kv_read_bytes=slices.by_step(kv_read_bytes),
            kv_read_bytes_by_slice=kv_read_bytes,
            kv_write_bytes=tokens * self.kv_token_bytes,
            linear_flops=tokens * self.linear_flops_per_token,
            attention_flops=slices.by_step(attention),
            lm_head_flops=rows * self.lm_head_flops_per_row,
        )

    def attention_flops(self, start: Count, length: Count) -> Count:
        """Count causal attention of `length` new tokens after `start` known ones, all layers."""
        flops = start * 0
        for group in self.groups:
            pairs = attended_pairs(start, length, group.window)
            flops = flops + group.layers * group.flops_per_pair * pairs
        return flops

    def _kv_read_bytes(self, slices: Slices) -> Ints:
        read_bytes = slices.start * 0
        for group in self.groups:
            token_bytes = group.layers * group.kv_bytes
            hidden = hidden_tokens(slices.start, group.window)
            read_bytes += (slices.start - hidden) * token_bytes
            for step, shared in enumerate(slices.shared):
                if shared:
                    own = slice(*slices.first[step : step + 2])
                    read_bytes[own] += _shared_bytes(hidden[own].tolist(), shared, token_bytes)
        return read_bytes


def _groups(anatomy: Anatomy, store_bytes: Callable[[KVSpec], int]) -> tuple[LayerGroup, ...]:
    """Sum layers up by what they read: a store once, at the widest window of its readers."""
    reach: dict[int, float] = {}
    for layer in anatomy.attentions:
        width = math.inf if layer.window is None else layer.window
        reach[layer.store] = max(reach.get(layer.store, 0), width)
    counts: Counter[tuple[int | None, int, int]] = Counter()
    for layer in anatomy.attentions:
        width = math.inf if layer.window is None else layer.window
        reads = reach.get(layer.store) == width
        if reads:
            del reach[layer.store]
        kv_bytes = store_bytes(anatomy.stores[layer.store]) if reads else 0
        counts[layer.window, kv_bytes, layer.flops_per_pair] += 1
    return tuple(LayerGroup(window, n, kv, flops) for (window, kv, flops), n in counts.items())


def attended_pairs(start: Count, length: Count, window: int | None) -> Count:
    """Sum min(start + j, window) over j = 1..length: positions that the new tokens look at."""
    if window is None:
        return length * start + length * (length + 1) // 2
    # tokens that do not yet see a whole window
    growing = _above(length, _above(start + length, window))
    pairs = attended_pairs(start, growing, None)
    return pairs + (length - growing) * window


def _above(number: Count, limit: Count | int) -> Count:
    """Give what of a number, or of each, is above a limit: max(number − limit, 0)."""
    over = number - limit
    above: Count = (over + abs(over)) // 2
    return above


def hidden_tokens(start: Count, window: int | None) -> Count:
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
