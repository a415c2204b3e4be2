"""The closed sets that label values come from: no request id, prompt or path is in a label.

A value is listed only where the code can make its series non-zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from core.machine import MemoryLevel, PeakSource
from core.request import FinishReason, Obstacle
from core.routes import Route
from costmodel.account import LostCause
from costmodel.floor import Regime
from telemetry.bill.entry import Stage
from telemetry.books.facts import KINDS
from telemetry.books.ledger import MAX_TENANTS, OTHER
from telemetry.engine.proven import PeakOf
from telemetry.spent.pieces import PIECES
from telemetry.why.verdict import GROUPS, Code, Part


@dataclass(frozen=True, slots=True)
class Label:
    """A label and what it may hold."""

    name: str
    values: tuple[str, ...] = ()  # empty where they are known at run time only
    limit: int = 0  # how many values there can be then

    @property
    def size(self) -> int:
        return len(self.values) or self.limit


def _label(name: str, values: Sequence[str]) -> Label:
    return Label(name, tuple(str(value) for value in values))


SEGMENTS: Final = ("publish", "receive", "plan", "prepare", "forward", "sample", "commit")
CONTEXTS: Final = ("decode_only", "mixed", "resumed")
TOKEN_KINDS: Final = ("prompt", "cached", "generated", "recomputed", "overrun")
OBJECTIVES: Final = ("ttft", "itl", "e2e")
FAULTS: Final = (
    "AssertionError",
    "IndexError",
    "KeyError",
    "MemoryError",
    "OutOfMemoryError",
    "RuntimeError",
    "TypeError",
    "ValueError",
    OTHER,
)
ROUTES: Final = (*Route, OTHER)
CODES: Final = (
    *("200", "400", "401", "404", "405", "408", "409", "413", "415", "422", "429"),
    *("499", "500", "501", "503", "504", OTHER),
)

KIND: Final = _label("kind", KINDS)
REGIME: Final = _label("regime", tuple(Regime))
CAUSE: Final = _label("cause", tuple(LostCause))
SEGMENT: Final = _label("segment", SEGMENTS)
OP: Final = _label("op", ("read", "write"))
COMPONENT: Final = _label("component", ("weights", "lm_head", "embedding", "kv"))
FLOPS_COMPONENT: Final = _label("component", ("linear", "attention", "lm_head"))
SOURCE: Final = _label("source", (PeakSource.MEASURED, PeakSource.PROVEN, PeakSource.GIVEN))
WORKING_SET: Final = Label("working_set_bytes", limit=31)  # powers of two, up to 1 GiB
PEAK: Final = _label("peak", tuple(PeakOf))
LEVEL: Final = _label("level", tuple(MemoryLevel))
ARITHMETIC: Final = _label("arithmetic", ("fp32", "int8", "int4"))
COPY: Final = _label("copy", ("checkpoint", "served"))
COVERED: Final = _label("of", ("weights", "kv"))
CONTEXT: Final = _label("context", CONTEXTS)
FINISH_REASON: Final = _label("finish_reason", tuple(FinishReason))
PIECE: Final = _label("cause", PIECES)
PART: Final = _label("part", tuple(Part))
SLOW_BY: Final = _label("code", (*(p for group in GROUPS.values() for p in group), *Code))
PHASE: Final = _label("phase", tuple(Stage))
WAIT_REASON: Final = _label("reason", tuple(Obstacle))
OUTCOME: Final = _label("outcome", tuple(FinishReason))
TOKEN_KIND: Final = _label("kind", TOKEN_KINDS)
BLOCK_STATE: Final = _label("state", ("free", "cached", "referenced"))
PREFIX_RESULT: Final = _label("result", ("hit", "miss"))
SIZE: Final = _label("size", ("p50", "p95"))
TENANT: Final = Label("tenant", limit=MAX_TENANTS + 1)
PAYER: Final = Label("tenant", limit=MAX_TENANTS + 2)
COST: Final = _label("component", ("prefill", "decode", "idle", "waste"))
OBJECTIVE: Final = _label("objective", OBJECTIVES)
SLO_OUTCOME: Final = _label("outcome", ("met", "missed"))
DIRECTION: Final = _label("direction", ("input", "output"))
BASIS: Final = _label("basis", ("usage", "allocation"))
FAULT: Final = _label("kind", FAULTS)
ROUTE: Final = _label("route", ROUTES)
CODE: Final = _label("code", CODES)


def one(name: str) -> Label:
    """Give a label that has one value as long as an engine lives."""
    return Label(name, limit=1)
