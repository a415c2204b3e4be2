"""The last steps, which answer the question "slow at what?". Ids and counts only, never text.

The views become JSON as they are: the order of their fields is the order of the keys.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from core.request import FinishReason, Obstacle, RequestId
from core.settings import STEPS_KEPT
from core.wire import PoolState, SliceRecord, StepReport
from costmodel.account import LostCause, StepAccounts
from costmodel.floor import REGIMES, Regime
from costmodel.split import Ints
from telemetry.bill.entry import Entry, Stage
from telemetry.books.accounts import BurstAccounts
from telemetry.books.facts import KINDS, Facts, StepKind
from telemetry.series.labels import SEGMENTS
from telemetry.why.explain import Explanation

HIDDEN: Final = RequestId("hidden")  # in the place of another tenant's request


@dataclass(frozen=True, slots=True)
class SliceView:
    id: RequestId
    start: int
    length: int
    rows: int
    cached: int
    recomputed: int
    blocks: int


@dataclass(frozen=True, slots=True)
class PoolView:
    free_blocks: int
    cached_blocks: int
    referenced_blocks: int
    running: int
    waiting_kv: int
    waiting_slots: int
    waiting_budget: int
    waiting_grammar: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step, its account, and the gauges after it."""

    index: int
    kind: StepKind
    start_ns: int
    duration_ms: float
    floor_ms: float | None
    efficiency: float | None
    regime: Regime | None
    bytes: int
    flops: int
    useful_floor_ms: float
    lost_ms: Mapping[LostCause, float]
    segments_ms: Mapping[str, float]
    slices: Sequence[SliceView]
    sampled_tokens: int
    admitted: Sequence[RequestId]
    preempted: Sequence[RequestId]
    ended: Mapping[RequestId, FinishReason]
    pool: PoolView

    def seen_by(self, own: Callable[[RequestId], bool]) -> StepView:
        """Hide the ids that are not the viewer's own; what those requests cost stays."""

        def shown(ids: Iterable[RequestId]) -> list[RequestId]:
            return [id if own(id) else HIDDEN for id in ids]

        return replace(
            self,
            slices=[piece if own(piece.id) else replace(piece, id=HIDDEN) for piece in self.slices],
            admitted=shown(self.admitted),
            preempted=shown(self.preempted),
            ended={id: reason for id, reason in self.ended.items() if own(id)},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineStep:
    """A request's part of a step, the whole step's floor, and the requests that ran beside it."""

    index: int
    start_ns: int
    duration_ms: float
    floor_ms: float | None
    useful_floor_ms: float
    lost_ms: Mapping[LostCause, float]
    start: int
    length: int
    recomputed: int
    blocks: int
    beside: Sequence[RequestId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A request, why it took so long, and which of the last steps ran it or made it wait."""

    id: RequestId
    prompt_tokens: int
    generated_tokens: int
    received_ns: int
    ended_ns: int | None
    finish_reason: FinishReason | None
    stage: Stage
    stages_ms: Mapping[Stage, float]
    waited_steps: Mapping[Obstacle, int]  # that ended while it was in the queue, by its obstacle
    why: Explanation
    steps: Sequence[TimelineStep]


class PastStep(NamedTuple):
    report: StepReport
    kind: StepKind
    accounts: StepAccounts  # of the steps that were booked with it
    row: int  # its own among them

    def slice_of(self, id: RequestId) -> SliceRecord | None:
        return next((piece for piece in self.report.slices if piece.id == id), None)

    @property
    def floor_ms(self) -> float | None:
        floors = self.accounts.floors
        return float(floors.s[self.row]) * 1e3 if floors.known[self.row] else None

    @property
    def useful_floor_ms(self) -> float:
        return int(self.accounts.useful_floor_ns[self.row]) / 1e6

    @property
    def lost_ms(self) -> dict[LostCause, float]:
        return {cause: ns / 1e6 for cause, ns in self.accounts.lost_of(self.row).items()}

    def view(self) -> StepView:
        report, accounts, row = self.report, self.accounts, self.row
        wall_ns, floors = int(accounts.wall_ns[row]), accounts.floors
        known = bool(floors.known[row])
        return StepView(
            index=report.index,
            kind=self.kind,
            start_ns=report.start_ns,
            duration_ms=wall_ns / 1e6,
            floor_ms=self.floor_ms,
            efficiency=float(floors.s[row]) * 1e9 / wall_ns if known and wall_ns else None,
            regime=REGIMES[accounts.regimes[row]] if known else None,
            bytes=int(accounts.work.bytes_total[row]),
            flops=int(accounts.work.flops[row]),
            useful_floor_ms=self.useful_floor_ms,
            lost_ms=self.lost_ms,
            segments_ms={name: getattr(report.segments, name) / 1e6 for name in SEGMENTS},
            slices=[
                SliceView(p.id, p.start, p.length, p.rows, p.cached, p.recomputed, p.blocks)
                for p in report.slices
            ],
            sampled_tokens=len(report.tokens),
            admitted=report.admitted,
            preempted=report.preempted,
            ended={ended.id: ended.reason for ended in report.ended},
            pool=_pool_view(report.pool),
        )


class History:
    """Cost: an append per burst of steps; views are made when somebody looks."""

    def __init__(self) -> None:
        self._bursts: deque[tuple[Sequence[StepReport], Ints, StepAccounts]] = deque()
        self._kept = 0  # steps

    def take(self, facts: Facts, accounts: BurstAccounts) -> None:
        self._bursts.append((facts.reports, facts.kinds, accounts.steps))
        self._kept += len(facts.reports)
        while self._kept - len(self._bursts[0][0]) >= STEPS_KEPT:
            self._kept -= len(self._bursts.popleft()[0])

    @property
    def _steps(self) -> list[PastStep]:
        """The last steps, oldest first."""
        steps = [
            PastStep(report, KINDS[kind], accounts, row)
            for reports, kinds, accounts in self._bursts
            for row, (report, kind) in enumerate(zip(reports, kinds, strict=True))
        ]
        return steps[-STEPS_KEPT:]

    def recent(self, count: int) -> list[StepView]:
        """View the last steps, oldest first."""
        steps = self._steps
        return [step.view() for step in steps[max(len(steps) - count, 0) :]]

    def timeline(self, entry: Entry, why: Explanation) -> Timeline:
        """Tell which of the last steps ran a request, beside whom, and what it waited for."""
        parts = ((step, step.slice_of(entry.id)) for step in self._steps)
        return Timeline(
            id=entry.id,
            prompt_tokens=entry.prompt_tokens,
            generated_tokens=entry.tokens,
            received_ns=entry.received_ns,
            ended_ns=entry.ended_ns,
            finish_reason=entry.finish_reason,
            stage=entry.stage,
            stages_ms={stage: ns / 1e6 for stage, ns in entry.stage_ns.items()},
            waited_steps=self._waited(entry),
            why=why,
            steps=[_timeline_step(step, own) for step, own in parts if own is not None],
        )

    def _waited(self, entry: Entry) -> dict[Obstacle, int]:
        """Count the steps that ended while it was in the queue, by what the queue waited for."""
        until_ns = entry.received_ns + entry.stage_ns[Stage.QUEUE]
        if entry.stage is Stage.QUEUE and entry.ended_ns is None:
            until_ns = 2**63
        obstacles: Counter[Obstacle] = Counter()
        for step in self._steps:
            if entry.received_ns < step.report.end_ns <= until_ns:
                for obstacle in Obstacle:
                    obstacles[obstacle] += obstacle in step.report.pool.waiting
        return dict(obstacles)


def _timeline_step(step: PastStep, own: SliceRecord) -> TimelineStep:
    report = step.report
    return TimelineStep(
        index=report.index,
        start_ns=report.start_ns,
        duration_ms=(report.end_ns - report.start_ns) / 1e6,
        floor_ms=step.floor_ms,
        useful_floor_ms=step.useful_floor_ms,
        lost_ms=step.lost_ms,
        start=own.start,
        length=own.length,
        recomputed=own.recomputed,
        blocks=own.blocks,
        beside=[piece.id for piece in report.slices if piece.id != own.id],
    )


def _pool_view(pool: PoolState) -> PoolView:
    return PoolView(
        pool.free_blocks,
        pool.cached_blocks,
        pool.referenced_blocks,
        pool.running,
        waiting_kv=pool.waiting.get(Obstacle.KV, 0),
        waiting_slots=pool.waiting.get(Obstacle.SLOTS, 0),
        waiting_budget=pool.waiting.get(Obstacle.BUDGET, 0),
        waiting_grammar=pool.waiting.get(Obstacle.GRAMMAR, 0),
    )
