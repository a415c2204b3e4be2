"""What every experiment is: a prediction that needs no server, then a measurement of its rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import ClassVar

from lab.measure.outcome import LabResult, LabRow
from lab.measure.server import Server, ServerStep, median_step
from lab.measure.subject import Subject
from loadgen.load.spec import PlanSpec

FACTOR: float = 2.0  # a prediction that is off by more is flagged
TRIES = 3  # of a load whose requests did not meet


@dataclass(frozen=True, slots=True)
class Bench:
    """What a measurement works with."""

    serve: Callable[..., AbstractContextManager[Server]]  # takes flags
    tick: Callable[[], None]  # is called after each row


class Experiment(ABC):
    """One experiment on one subject; `short` is its quick form, with fewer conditions."""

    number: ClassVar[int]
    title: ClassVar[str]
    question: ClassVar[str]
    quantity: ClassVar[str]
    x_name: ClassVar[str]
    tolerance: ClassVar[float] = FACTOR
    log: ClassVar[bool] = False

    def __init__(self, subject: Subject, short: bool = False) -> None:
        self.subject, self.short = subject, short

    @abstractmethod
    def predict(self) -> list[LabRow]:
        """Give every row with its prediction, from the cost model alone."""

    @abstractmethod
    def measure(self, bench: Bench, rows: Sequence[LabRow]) -> list[LabRow]:
        """Give the same rows with what was measured, and where the time went."""

    @abstractmethod
    def read(self, rows: Sequence[LabRow]) -> str:
        """Say what the numbers show, in a paragraph made from them."""

    def facts(self, rows: Sequence[LabRow]) -> list[tuple[str, str, str]]:
        """Give further rows of (what, predicted, measured)."""
        return []

    def outcome(self, rows: Sequence[LabRow]) -> LabResult:
        return LabResult(
            number=self.number,
            title=self.title,
            question=self.question,
            quantity=self.quantity,
            x_name=self.x_name,
            tolerance=self.tolerance,
            log=self.log,
            rows=tuple(rows),
            facts=tuple(self.facts(rows)),
            reading=self.read(rows),
        )


def together(requests: int, prompt: int, output: int, seed: int = 7) -> PlanSpec:
    """Plan `requests` of one shape that all run at once."""
    return PlanSpec(
        arrival=f"closed:{requests}",
        requests=requests,
        prompt=f"={prompt}",
        output=f"={output}",
        seed=seed,
    )


def decode_steps(steps: Sequence[ServerStep], batch: int) -> list[ServerStep]:
    """Keep the steps in which `batch` requests decoded and none prefilled."""
    return [step for step in steps if step.kind == "decode" and len(step.slices) == batch]


def steps_together(server: Server, plan: PlanSpec, batch: int) -> list[ServerStep]:
    """Load until all of `batch` decoded together: on a busy machine one may come as another ends.

    Returns: those steps; none where no load of `TRIES` had any.
    """
    loads = (decode_steps(server.load(plan).steps, batch) for _ in range(TRIES))
    return next(filter(None, loads), [])


def with_median(row: LabRow, steps: Sequence[ServerStep]) -> LabRow:
    """Fill a row in milliseconds from the median of `steps`; without steps it stays unmeasured."""
    step = median_step(steps)
    if step is None:
        return row
    return replace(row, measured=step.duration_ms, account=step.account())
