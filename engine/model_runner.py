"""Runs a step plan on the model: lay out, forward, sample. It knows no queues, owns no blocks."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from core.step import StepPlan, StepResult
from engine.batch import build_batch
from engine.network import Network
from engine.outcome import outcome_of


class ModelRunner:
    """Implements `Runner`."""

    def __init__(self, network: Network) -> None:
        self._network = network

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        """See `Runner.execute`. A row with NaN fails alone: no slice reads another's slots."""
        prepared = self._network.prepare(build_batch(plan, self._network.block_size))
        prepared_ns = time.monotonic_ns()
        forward = self._network.forward(prepared)
        forwarded_ns = time.monotonic_ns()
        outcome = outcome_of(plan, forward)
        return replace(
            outcome,
            forward_ns=forwarded_ns - prepared_ns,
            sample_ns=time.monotonic_ns() - forwarded_ns,
        )
