"""What the loop asks of whatever computes. The runner knows no queues, the loop no tensors."""

from __future__ import annotations

from typing import Protocol

from core.step import StepPlan, StepResult


class Runner(Protocol):
    def execute(self, plan: StepPlan) -> StepResult:
        """Run one forward pass over the plan's slices and sample where they ask for it.

        Returns:
            A token or a failure for every slice with `samples`; the time each part took.
        Raises:
            Exception: our own bug; the loop fails the step's requests and goes on.
        """
