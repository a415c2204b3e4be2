"""Fakes that stand for the model and the clock. A fake is small, real code with known answers."""

from __future__ import annotations

from collections.abc import Callable

from core.request import Request
from core.step import StepPlan, StepResult


def next_token(history: tuple[int, ...], vocab_size: int) -> int:
    """Give the fake model's next token: a pure function of the token history alone."""
    state = 17
    for token in history:
        state = (state * 31 + token + 7) % 1_000_003
    return state % vocab_size


class ScriptedRunner:
    """A runner whose next token is `rule(request)`; by default `next_token` of its history."""

    def __init__(self, vocab_size: int = 260, rule: Callable[[Request], int] | None = None) -> None:
        self.vocab_size, self.rule = vocab_size, rule
        self.plans: list[StepPlan] = []

    def execute(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        return StepResult({p.request.id: self._token(p.request) for p in plan.slices if p.samples})

    def _token(self, request: Request) -> int:
        if self.rule is not None:
            return self.rule(request)
        return next_token((*request.prompt_ids, *request.output_ids), self.vocab_size)


class FakeClock:
    """Monotonic nanoseconds that move only when told."""

    def __init__(self, now_ns: int = 1_000_000_000) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)
