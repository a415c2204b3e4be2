"""How much of a prompt a step may carry, so that those who stream keep their pace. No clock here.

The cost model predicts what a step takes at best; what steps really took corrects it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from core.machine import Peaks
from core.settings import SchedulerSettings
from core.step import StepPlan
from costmodel.floor import memory_peak
from costmodel.sums import ModelSums, attended_pairs, hidden_tokens

UNPACED_TOKENS: Final = 128  # a step's limit where there is no goal
PACED_TOKENS: Final = 512  # where there is one; bounds the buffers of a step
LEAST_TOKENS: Final = 16  # of a prompt, whatever the goal: it has to end some time
_FIRST_CORRECTION: Final = 2.0  # measured over predicted, before anything was measured
_WEIGHT_OF_NEWS: Final = 0.2


def step_limit(limits: SchedulerSettings) -> int:
    """Resolve `auto`: the most tokens of any step."""
    if limits.max_num_batched_tokens is not None:
        return limits.max_num_batched_tokens
    return UNPACED_TOKENS if limits.itl_goal is None else PACED_TOKENS


def pace_for(limits: SchedulerSettings, sums: ModelSums, peaks: Peaks) -> Pace | None:
    """Make a pace where one is asked for and can be predicted."""
    if limits.max_num_batched_tokens is not None or limits.itl_goal is None:
        return None
    if peaks.dram is None or peaks.flops is None:
        return None
    return Pace(sums, peaks, limits.itl_goal)


@dataclass(slots=True)
class Load:
    """What a step carries, as sums. `pairs` are a token and a token that it looks at.

    `unseen_*` are what lies outside of the sliding windows, counted once for each layer.
    """

    windows: tuple[tuple[int, int], ...] = ()  # and the number of layers that have it
    tokens: int = 0
    prompt_tokens: int = 0  # of slices longer than one token
    context_tokens: int = 0
    pairs: int = 0
    unseen_tokens: int = 0
    unseen_pairs: int = 0

    def add(self, start: int, length: int) -> None:
        self.tokens += length
        self.context_tokens += start
        if length == 1:
            self.pairs += start + 1
        else:
            self.prompt_tokens += length
            self.pairs += attended_pairs(start, length, None)
        if self.windows:
            self._add_unseen(start, length)

    def _add_unseen(self, start: int, length: int) -> None:
        pairs = attended_pairs(start, length, None)
        for window, layers in self.windows:
            self.unseen_tokens += layers * hidden_tokens(start, window)
            self.unseen_pairs += layers * (pairs - attended_pairs(start, length, window))


class Pace:
    """Sizes the prompts' part of each step.

    Invariant: the first prompt of a step always gets `LEAST_TOKENS`, so that each one ends.
    """

    def __init__(self, sums: ModelSums, peaks: Peaks, goal_s: float) -> None:
        assert peaks.dram is not None, "a prediction needs a bandwidth"
        assert peaks.flops is not None, "a prediction needs an arithmetic rate"
        self._sums, self._peaks, self._goal_s = sums, peaks, goal_s
        self._flops_per_s = peaks.flops.per_s
        self._flops_per_pair = sums.layers * sums.attention_flops_per_pair
        self._windows = tuple((w, layers) for w, layers in sums.layers_by_window if w is not None)
        self.correction = _FIRST_CORRECTION  # measured over predicted, of steps with prompts

    def load(self, plan: StepPlan | None = None) -> Load:
        """Sum up what a step carries; nothing yet where there is no plan."""
        load = Load(self._windows)
        for piece in plan.slices if plan else ():
            load.add(piece.start, piece.length)
        return load

    def prompt_tokens(self, load: Load, start: int) -> int:
        """Count the prompt tokens from position `start` on that fit beside `load`."""
        goal_s = self._goal_s / self.correction
        least = 0 if load.prompt_tokens else LEAST_TOKENS
        if self._memory_s(load) > goal_s:
            return least
        left_flops = (goal_s - self._compute_s(load)) * self._flops_per_s
        return max(self._tokens_of(left_flops, start), least)

    def _tokens_of(self, flops: float, start: int) -> int:
        """Solve n × per token + (n × seen + n² / 2) × per pair = `flops` for n.

        `seen` is of the context. What a window hides of the n tokens themselves is left out, so
        that the answer errs on the short side.
        """
        if flops <= 0:
            return 0
        sums = self._sums
        linear = (
            sums.linear_flops_per_token + sums.seen_tokens(start) * sums.attention_flops_per_pair
        )
        square = self._flops_per_pair
        return int((math.sqrt(linear**2 + 2 * square * flops) - linear) / square)

    def predicted_s(self, load: Load) -> float:
        """Give the floor of a step, in seconds."""
        return max(self._memory_s(load), self._compute_s(load))

    def _compute_s(self, load: Load) -> float:
        sums = self._sums
        pairs = load.pairs * sums.layers - load.unseen_pairs
        flops = load.tokens * sums.linear_flops_per_token + pairs * sums.attention_flops_per_pair
        return flops / self._flops_per_s

    def _memory_s(self, load: Load) -> float:
        sums = self._sums
        read = sums.step_read_bytes(load.context_tokens * sums.layers - load.unseen_tokens)
        peak = memory_peak(read, self._peaks)[1]
        assert peak is not None, "checked when it was made"
        return (read + load.tokens * sums.kv_token_bytes) / peak.per_s

    def observe(self, plan: StepPlan, measured_s: float) -> None:
        """Learn from a step that carried a prompt."""
        load = self.load(plan)
        if load.prompt_tokens and measured_s > 0:
            news = measured_s / self.predicted_s(load)
            self.correction += _WEIGHT_OF_NEWS * (news - self.correction)
