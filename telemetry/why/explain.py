"""What is told of a request: its verdict, its sentence and what would help, as one record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from core.request import RequestId
from core.wire import Ready
from telemetry.bill.cost import Why
from telemetry.bill.entry import Entry
from telemetry.engine.model import EngineModel
from telemetry.spent.pieces import Piece
from telemetry.why.advice import Advice, advice
from telemetry.why.case import Case, Limits, case_of
from telemetry.why.verdict import Part, judge
from telemetry.why.words import sentence

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """Requests that were live when this one came."""

    requests: int
    own_tenant: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One request. None is unknown, or, of a goal, none that was missed."""

    schema: int = SCHEMA
    of: Literal["request"] = "request"
    id: RequestId
    part: Part
    slow: bool
    goal_ms: float | None
    measured_ms: float
    alone_ms: float | None
    code: str  # a piece, or what `telemetry/why/verdict.py:Code` adds
    also: Sequence[Piece]
    sentence: str
    advice: Sequence[Advice]
    spent_ms: Mapping[Piece, float]  # of that part; sums to `measured_ms`
    behind: Behind
    doubt: str | None


class Explainer:
    """Judges requests against the goals that the operator set, or against running alone."""

    def __init__(
        self, goals_ns: Mapping[str, int], engine: Callable[[], EngineModel | None]
    ) -> None:
        self._goals_ns, self._engine = goals_ns, engine
        self._limits: Limits | None = None

    @property
    def has_goals(self) -> bool:
        return bool(self._goals_ns)

    def ready(self, ready: Ready) -> None:
        self._limits = Limits.of(ready)

    def explain(self, entry: Entry, now_ns: int = 0) -> Explanation:
        """Say why a request took as long as it did, or as it does so far, from its records."""
        return explained(case_of(entry, self._engine(), self._limits, self._goals_ns, now_ns))

    def why(self, entries: Sequence[Entry], now_ns: int) -> Why | None:
        """Say it of the longest of an answer's generations; None where it was not slow."""
        longest = max(entries, key=lambda entry: (entry.ended_ns or now_ns) - entry.received_ns)
        told = self.explain(longest, now_ns)
        if not told.slow:
            return None
        return Why(str(told.code), told.sentence, [advice.text for advice in told.advice])


def explained(case: Case) -> Explanation:
    verdict = judge(case)
    goal_ns, alone_ns = verdict.goal_ns, verdict.alone_ns
    return Explanation(
        id=case.id,
        part=verdict.part,
        slow=verdict.slow,
        goal_ms=None if goal_ns is None else goal_ns / 1e6,
        measured_ms=verdict.measured_ns / 1e6,
        alone_ms=None if alone_ns is None else alone_ns / 1e6,
        code=verdict.code,
        also=verdict.also,
        sentence=sentence(case, verdict),
        advice=advice(case, verdict),
        spent_ms={piece: ns / 1e6 for piece, ns in verdict.spent_ns.items()},
        behind=Behind(requests=case.behind, own_tenant=case.behind_own),
        doubt=case.doubt,
    )
