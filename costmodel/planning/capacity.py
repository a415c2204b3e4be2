"""What a machine can hold and how fast it can go at best, before anything runs.

Works on a few sums, so that a model can be judged that nobody has loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from core.machine import Peaks
from costmodel.floor import floor_of
from costmodel.sums import ModelSums, hidden_tokens

MOST_CONTEXT: Final = 10**15


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The best that one request alone can see."""

    floor_s: float
    tokens_per_s: float


def batch_one_ceiling(sums: ModelSums, peaks: Peaks, context_tokens: int) -> Ceiling | None:
    """Floor one decode step at `context_tokens`; None where a peak is unknown."""
    floor = floor_of(sums.uniform_step(1, context_tokens, tokens=1), peaks)
    return None if floor is None else Ceiling(floor.s, 1 / floor.s)


def decode_ceiling_tokens_per_s(weight_bytes: float, kv_bytes: float, bytes_per_s: float) -> float:
    """Bound one request's decode by memory alone: a token for each read of weights and KV."""
    return bytes_per_s / (weight_bytes + kv_bytes)


def crossover_tokens(weight_bytes: float, kv_bytes_per_token: float) -> int:
    """Find the context × batch at which a step reads as many KV bytes as weight bytes."""
    return round(weight_bytes / kv_bytes_per_token)


def crossover_read_tokens(sums: ModelSums, batch: int) -> int | None:
    """Find the context × batch at which a step reads as many KV bytes as weight bytes.

    Under windows that depends on the batch. None where they keep it from ever coming there.
    """
    weights = sums.least_weight_bytes
    if all(group.window is None for group in sums.groups):
        return crossover_tokens(weights, sums.kv_token_bytes) if sums.kv_token_bytes else None

    def read(context: int) -> int:
        return batch * sum(
            group.layers * group.kv_bytes * (context - hidden_tokens(context, group.window))
            for group in sums.groups
        )

    low, high = 0, MOST_CONTEXT
    if read(high) < weights:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if read(middle) < weights else (low, middle)
    return batch * (low if weights - read(low) < read(high) - weights else high)


def requests_that_fit(memory_bytes: float, weight_bytes: float, kv_bytes_per_request: float) -> int:
    """Count the requests whose KV fits beside the weights; 0 where the weights alone do not."""
    return max(int((memory_bytes - weight_bytes) // kv_bytes_per_request), 0)


def speculation_tokens_per_pass(drafts: int, acceptance: float) -> float:
    """Expect the tokens of one target pass that checks `drafts` drafts.

    Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", eq. 1.
    """
    if acceptance == 1.0:
        return drafts + 1.0
    return float((1 - acceptance ** (drafts + 1)) / (1 - acceptance))
