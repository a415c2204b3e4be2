"""Runs a step plan on the model: lay out, forward, sample. It knows no queues, owns no blocks."""

from __future__ import annotations

import time

from core.step import StepPlan, StepResult
from engine.forward.batch import build_batch
from engine.forward.network import Network
from engine.step.outcome import outcome_of


class ModelRunner:
    """Implements `Runner`."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def execute(self, plan: StepPlan) -> StepResult:
        """See `Runner.execute`. A row with NaN fails alone: no slice reads another's slots."""
        prepared = self._network.prepare(build_batch(plan, self._network.block_size))
        prepared_ns = time.monotonic_ns()
        forward = self._network.forward(prepared)
        return outcome_of(plan, forward, time.monotonic_ns() - prepared_ns)
