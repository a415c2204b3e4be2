"""The last steps, for whoever asks "slow at what?". Ids and counts only, never text."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, Final

from core.request import RequestId
from core.wire import StepReport
from costmodel.account import StepAccount, StepAccounts
from telemetry.bill.entry import Entry, Stage
from telemetry.books.accounts import BurstAccounts
from telemetry.books.facts import KINDS, Facts, StepKind

_STEPS: Final = 1000


@dataclass(frozen=True, slots=True)
class PastStep:
    report: StepReport
    kind: StepKind
    accounts: StepAccounts  # of the steps that were booked with it
    row: int  # its own among them

    @property
    def account(self) -> StepAccount:
        return self.accounts[self.row]

    def has(self, id: RequestId) -> bool:
        return any(piece.id == id for piece in self.report.slices)

    def as_dict(self) -> dict[str, Any]:
        report, account = self.report, self.account
        wall_ns, floor = account.wall_ns, account.floor
        efficiency = floor.s * 1e9 / wall_ns if floor is not None and wall_ns else None
        return {
            "index": report.index,
            "kind": self.kind,
            "start_ns": report.start_ns,
            "duration_ms": wall_ns / 1e6,
            "floor_ms": None if floor is None else floor.s * 1e3,
            "efficiency": efficiency,
            "regime": account.regime,
            "bytes": account.work.bytes_total,
            "flops": account.work.flops,
            "useful_floor_ms": account.useful_floor_ns / 1e6,
            "lost_ms": {str(cause): ns / 1e6 for cause, ns in account.lost_ns.items()},
            "segments_ms": {name: ns / 1e6 for name, ns in _fields(report.segments).items()},
            "slices": [_fields(piece) for piece in report.slices],
            "sampled_tokens": len(report.tokens),
            "admitted": report.admitted,
            "preempted": report.preempted,
            "ended": {ended.id: ended.reason for ended in report.ended},
            "pool": _fields(report.pool),
        }


class History:
    """Cost: a deque append per step; accounts and views are made when somebody looks."""

    def __init__(self) -> None:
        self._steps: deque[PastStep] = deque(maxlen=_STEPS)

    def take(self, facts: Facts, accounts: BurstAccounts) -> None:
        for row, (report, kind) in enumerate(zip(facts.reports, facts.kinds.tolist(), strict=True)):
            self._steps.append(PastStep(report, KINDS[kind], accounts.steps, row))

    def recent(self, count: int) -> list[dict[str, Any]]:
        """View the last `count` steps, oldest first."""
        steps = list(self._steps)
        return [step.as_dict() for step in steps[max(len(steps) - count, 0) :]]

    def timeline(self, entry: Entry) -> dict[str, Any]:
        """Tell which of the last steps ran a request, beside whom, and what it waited for."""
        return {
            "id": entry.id,
            "prompt_tokens": entry.prompt_tokens,
            "generated_tokens": entry.tokens,
            "received_ns": entry.received_ns,
            "ended_ns": entry.ended_ns,
            "finish_reason": entry.finish_reason,
            "stage": entry.stage,
            "stages_ms": {str(stage): ns / 1e6 for stage, ns in entry.stage_ns.items()},
            "waited_steps": self._waited(entry),
            "steps": [_part(step, entry.id) for step in self._steps if step.has(entry.id)],
        }

    def _waited(self, entry: Entry) -> dict[str, int]:
        """Count the steps that ended while it was in the queue, by what its head waited for."""
        until_ns = entry.received_ns + entry.stage_ns[Stage.QUEUE]
        if entry.stage is Stage.QUEUE and entry.ended_ns is None:
            until_ns = 2**63
        reasons: Counter[str] = Counter()
        for step in self._steps:
            if entry.received_ns < step.report.end_ns <= until_ns:
                pool = step.report.pool
                reasons["kv"] += pool.waiting_kv > 0
                reasons["slots"] += pool.waiting_slots > 0
                reasons["budget"] += pool.waiting_budget > 0
                reasons["grammar"] += pool.waiting_grammar > 0
        return dict(reasons)


def _part(step: PastStep, id: RequestId) -> dict[str, Any]:
    report = step.report
    own = next(piece for piece in report.slices if piece.id == id)
    return {
        "index": report.index,
        "start_ns": report.start_ns,
        "duration_ms": (report.end_ns - report.start_ns) / 1e6,
        "start": own.start,
        "length": own.length,
        "recomputed": own.recomputed,
        "blocks": own.blocks,
        "beside": [piece.id for piece in report.slices if piece.id != id],
    }


def _fields(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}
