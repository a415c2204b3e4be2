"""Draws the next tokens: a pure function of each row's logits, parameters, seed and position.

There is no generator state: a random number is a hash of (seed, position). So neither preemption
nor the other rows of a step can change what a row gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from core.request import SamplingParams

_CANDIDATES: Final = 1024  # a nucleus rarely holds more; where it does, the whole row is sorted


def sample(
    logits: torch.Tensor,
    params: Sequence[SamplingParams],
    positions: Sequence[int],
    greatest: Sequence[int] | None,
) -> list[int]:
    """Draw a token for each of the first R rows of logits, one for each of `params`.

    `positions` [R] are those of the drawn tokens. -inf masks a token. `greatest` begins with what
    `_greatest` would find, where the network found it already.
    The filters apply in this order: temperature, top-k, top-p of what is left, min-p.
    Cost: greedy rows a maximum, unfiltered rows a running sum, filtered rows a partial sort.
    Returns: -1 for a row with NaN or infinity, or with every token masked.
    """
    if greatest is None:
        greatest = _greatest(logits[: len(params)])
    tokens = list(greatest[: len(params)])
    drawn = [row for row, p in enumerate(params) if p.temperature > 0 and tokens[row] >= 0]
    if drawn:
        rules = _Rules.of([params[row] for row in drawn], [positions[row] for row in drawn])
        for row, token in zip(drawn, _draw(logits[drawn], rules).tolist(), strict=True):
            tokens[row] = token
    return tokens


def _greatest(logits: torch.Tensor) -> list[int]:
    """Give the first id of each row's greatest logit, -1 where the row is not finite."""
    finite = torch.isfinite(logits.amax(dim=-1))  # [R]: NaN is the greatest of all
    return torch.where(finite, logits.argmax(dim=-1), -1).tolist()


@dataclass(frozen=True, slots=True)
class _Rules:
    """Parameters as columns [R, 1]."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    uniforms: torch.Tensor  # the random numbers, in [0, 1)

    @classmethod
    def of(cls, params: Sequence[SamplingParams], positions: Sequence[int]) -> _Rules:
        def column(values: list[float]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.float64)[:, None]

        return cls(
            column([p.temperature for p in params]),
            column([p.top_k or torch.inf for p in params]),
            column([p.top_p for p in params]),
            column([p.min_p for p in params]),
            torch.from_numpy(uniforms([p.seed for p in params], positions))[:, None],
        )

    def rows(self, chosen: torch.Tensor) -> _Rules:
        return _Rules(
            self.temperature[chosen],
            self.top_k[chosen],
            self.top_p[chosen],
            self.min_p[chosen],
            self.uniforms[chosen],
        )


def _draw(logits: torch.Tensor, rules: _Rules) -> torch.Tensor:
    """Send each row the cheapest way that is exact for it. Shapes: [R, V] to [R]."""
    weights = logits.double().sub_(logits.amax(dim=-1, keepdim=True))
    weights.div_(rules.temperature).exp_()  # [R, V]: probability over the greatest probability
    running = weights.cumsum(dim=-1)
    total = running[:, -1:]  # [R, 1]; a plain sum may round otherwise when R differs
    tokens = torch.empty(len(logits), dtype=torch.int64)

    filtered = ((rules.top_k < torch.inf) | (rules.top_p < 1)).squeeze(1)  # [R]
    for chosen in _rows(~filtered):
        tokens[chosen] = _invert(weights[chosen], rules.rows(chosen))
    for chosen in _rows(filtered):
        tokens[chosen] = _draw_filtered(weights[chosen], total[chosen], rules.rows(chosen))
    return tokens


def _rows(mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Give the indices where `mask` holds, or nothing to iterate over."""
    indices = mask.nonzero().squeeze(1)
    return (indices,) if len(indices) else ()


def _draw_filtered(weights: torch.Tensor, total: torch.Tensor, rules: _Rules) -> torch.Tensor:
    """Filter among the heaviest candidates; rows whose nucleus is wider are sorted whole."""
    width = min(_CANDIDATES, weights.shape[1])
    best, ids = weights.topk(width, dim=-1)  # [R, width], heaviest first
    nucleus = best.cumsum(dim=-1)[:, -1:] >= rules.top_p * total  # [R, 1]: they hold it all
    enough = (rules.top_k <= width) | ((rules.top_k == torch.inf) & nucleus)
    tokens = ids.gather(1, _invert_sorted(best, total, rules)[:, None]).squeeze(1)  # [R]
    if width < weights.shape[1]:
        for chosen in _rows(~enough.squeeze(1)):
            best, ids = weights[chosen].sort(dim=-1, descending=True, stable=True)
            index = _invert_sorted(best, total[chosen], rules.rows(chosen))
            tokens[chosen] = ids.gather(1, index[:, None]).squeeze(1)
    return tokens


def _invert_sorted(best: torch.Tensor, total: torch.Tensor, rules: _Rules) -> torch.Tensor:
    """Apply top-k and top-p to weights sorted downwards, then draw. Returns: indices [R]."""
    ranks = torch.arange(best.shape[1])
    best = best.masked_fill(ranks >= rules.top_k, 0.0)  # [R, width]
    running = best.cumsum(dim=-1)
    total = torch.where(rules.top_k < torch.inf, running[:, -1:], total)
    before = running - best  # the mass of all heavier ones
    best = best.masked_fill((before >= rules.top_p * total) & (ranks > 0), 0.0)
    return _invert(best, rules)


def _invert(weights: torch.Tensor, rules: _Rules) -> torch.Tensor:
    """Apply min-p, then give the index where the running sum passes uniform × total. Shapes: [R].

    Invariant: the chosen weight is above zero, since the greatest weight is 1.
    """
    running = weights.masked_fill(weights < rules.min_p, 0.0).cumsum(dim=-1)
    total = running[:, -1:]
    below_total = torch.nextafter(total, torch.zeros_like(total))
    target = torch.minimum(rules.uniforms * total, below_total)
    return torch.searchsorted(running, target, right=True).squeeze(1)


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> npt.NDArray[np.float64]:
    """Hash each (seed, position) to a number in [0, 1) with 53 random bits. Shapes: [R] float64.

    Source: the finaliser of splitmix64 (Steele, Lea, Flood 2014), over the hashed seed.
    """
    seed = np.array([value % 2**64 for value in seeds], dtype=np.uint64)
    position = np.array(positions, dtype=np.uint64)
    golden = np.uint64(0x9E3779B97F4A7C15)
    bits = _mix(_mix(seed + golden) + golden * (position + np.uint64(1)))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
