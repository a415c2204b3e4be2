"""Turns the engine's messages into numbers, after the tokens are on their way to the streams.

One thread, the event loop's, calls it. It never waits for the engine, and knows no HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from core.request import FinishReason, RequestId
from core.settings import TelemetrySettings
from core.wire import Ended, Fault, Idle, PoolState, Ready, StepReport
from costmodel.account import LostCause, account_step
from costmodel.saving import saving_of
from telemetry.aliases import VllmAliases
from telemetry.books import Books, kind_of, wasted_slices
from telemetry.catalog import Needs
from telemetry.cost import CostObject, Timings, bill, timings
from telemetry.engine_clock import EngineClock, Spans
from telemetry.engine_model import EngineModel, engine_model
from telemetry.history import History
from telemetry.labels import MIXED
from telemetry.ledger import Ledger
from telemetry.memory_meters import MemoryMeters
from telemetry.money import Meter
from telemetry.money_meters import MoneyMeters
from telemetry.objectives import Resolved, resolve
from telemetry.prefix_meters import PrefixMeters
from telemetry.registry import Instruments
from telemetry.request_meters import RequestMeters
from telemetry.service_meters import ServiceMeters
from telemetry.step_meters import StepMeters

NO_POOL: Final = PoolState(0, 0, 0, 0, 0, 0, 0)

P = ParamSpec("P")
T = TypeVar("T")


def _counted(
    method: Callable[Concatenate[Telemetry, P], T],
) -> Callable[Concatenate[Telemetry, P], T]:
    """Count the CPU time of a method as telemetry's own."""

    @wraps(method)
    def counted(self: Telemetry, *args: P.args, **kwargs: P.kwargs) -> T:
        begin_ns = time.thread_time_ns()
        try:
            return method(self, *args, **kwargs)
        finally:
            self._own.add(time.thread_time_ns() - begin_ns)

    return counted  # type: ignore[return-value]


class Telemetry:
    """The server's one door to metrics, bills and timelines.

    Invariant: received = refused + finished + aborted + failed + live, at every scrape.
    Raises:
        SettingsError: a price, objective or alias that cannot be used; names its flag.
    """

    content_type: Final = CONTENT_TYPE_LATEST

    def __init__(
        self,
        model_name: str,
        settings: TelemetrySettings,
        clock: Callable[[], int] = time.monotonic_ns,
        registry: CollectorRegistry | None = None,
    ) -> None:
        resolved = resolve(settings)
        self._now_ns = clock
        self._registry = CollectorRegistry() if registry is None else registry
        self._make = make = Instruments(
            self._registry, model_name, _have(resolved), resolved.buckets
        )
        self._own = make.tally("telemetry_seconds_total", 1e-9)
        self._steps = StepMeters(make)
        self._requests = RequestMeters(make, resolved.objectives_ns)
        self._memory, self._prefix = MemoryMeters(make), PrefixMeters(make)
        self._service = ServiceMeters(make)
        price = resolved.price_nusd_per_hour
        self._money = None if price is None else MoneyMeters(make, price)
        if resolved.vllm_aliases:
            VllmAliases(self._registry, make, model_name)
        self._ledger, self._history = Ledger(), History()
        self._books = Books(self._ledger, self._requests, self._memory, Meter(price), self._money)
        self._engine_clock, self._pool = EngineClock(), NO_POOL
        self._engine: EngineModel | None = None

    # ── from the engine ──

    def on_ready(self, ready: Ready) -> None:
        """Start the clock of the time law; a second time it is a restart, and counters go on."""
        self._engine = engine = engine_model(ready)
        self._engine_clock.start(ready.ready_ns)
        self._steps.peaks(engine.peaks)
        self._memory.ready(ready, engine.arithmetic.kv_token_bytes)
        self._service.ready(ready, engine.coverage)

    @_counted
    def on_report(self, report: StepReport) -> None:
        """Account for a step; call it right after its tokens went to the streams."""
        assert self._engine is not None, "a step before Ready"
        now_ns = self._now_ns()
        entries = [self._ledger[piece.id] for piece in report.slices]
        wasted = wasted_slices(report, entries)
        account = account_step(self._engine.arithmetic, self._engine.peaks, report, wasted)
        kind = kind_of(report, entries)
        self._book(self._engine_clock.record(report.start_ns, report.end_ns), now_ns)
        self._steps.step(report, account, kind)
        self._history.add(report, account, kind)
        self._prefix.admitted(report, entries)
        self._prefix.saved(saving_of(self._engine.arithmetic, self._engine.peaks, report, account))
        self._books.step(report, account, entries, wasted, mixed=kind == MIXED, now_ns=now_ns)
        self._settle(report.ended, report.pool, now_ns)

    @_counted
    def on_idle(self, idle: Idle) -> None:
        """Start an idle span; a scrape extends it to its own moment."""
        now_ns = self._now_ns()
        self._steps.published(idle.publish_ns)
        self._book(self._engine_clock.rest(idle.start_ns), now_ns)
        self._settle(idle.ended, idle.pool, now_ns)

    def on_fault(self, fault: Fault) -> None:
        """Count a step that raised: all its time is lost. Before `Ready` no clock runs."""
        now_ns = self._now_ns()
        self._service.fault(fault.kind)
        if self._engine_clock.running:
            self._book(self._engine_clock.record(fault.start_ns, fault.end_ns), now_ns)
            span_ns = fault.end_ns - fault.start_ns
            self._steps.lost(LostCause.FAILED, span_ns)
            self._books.spend_shared("waste", span_ns, now_ns)
            self._settle(fault.ended, fault.pool, now_ns)

    def on_engine_down(self) -> None:
        """Its process ended: what was live has failed, and the store is gone."""
        now_ns = self._now_ns()
        self._book(self._engine_clock.extend(now_ns), now_ns)
        self._engine_clock.stop()
        ended = tuple(Ended(entry.id, FinishReason.FAILED) for entry in self._ledger.unreleased())
        self._settle(ended, NO_POOL, now_ns)
        self._memory.gone()
        self._service.down()

    # ── from the server ──

    @_counted
    def on_received(
        self,
        id: RequestId,
        prompt_tokens: int,
        tenant: str = "default",
        *,
        received_ns: int | None = None,
    ) -> None:
        """Open a request at its Submit; its time runs from the first receipt, or from now."""
        at_ns = self._now_ns() if received_ns is None else received_ns
        self._requests.received()
        self._ledger.open(id, prompt_tokens, tenant, at_ns)

    def on_refused(self, count: int = 1) -> None:
        """Count generations that passed validation and were never submitted: 429 or 503."""
        self._requests.refused(count)

    def on_finish_sent(self, id: RequestId, n_tokens: int, reason: FinishReason) -> None:
        """End a request whose stop the server found; what is sampled later is waste."""
        surplus = self._ledger[id].finish(n_tokens, reason, self._now_ns())
        self._requests.wasted("overrun", surplus)

    def on_http_response(self, route: str, code: int) -> None:
        self._service.response(route, code)

    @_counted
    def cost(self, ids: Sequence[RequestId]) -> CostObject:
        """Bill the generations of one HTTP request so far."""
        entries = [self._ledger[id] for id in ids]
        return bill(entries, self._now_ns(), priced=self._money is not None)

    def timings(self, ids: Sequence[RequestId]) -> Timings:
        return timings([self._ledger[id] for id in ids], self._now_ns())

    def forget(self, ids: Sequence[RequestId]) -> None:
        """Say that the response is done; a bounded ring still knows the last requests."""
        self._ledger.forget(ids)

    @_counted
    def render(self) -> bytes:
        """Write the scrape, with idle time and gauges brought up to now."""
        now_ns = self._now_ns()
        self._book(self._engine_clock.extend(now_ns), now_ns)
        self._requests.live(self._ledger.live, self._pool)
        self._steps.refresh(now_ns)
        self._memory.refresh()
        if self._money is not None:
            self._money.refresh(now_ns)
        self._make.flush()
        return generate_latest(self._registry)

    def recent_steps(self, n: int) -> list[dict[str, Any]]:
        """View the last `n` steps that are kept, oldest first."""
        return self._history.recent(n)

    def request_timeline(self, id: RequestId) -> dict[str, Any] | None:
        entry = self._ledger.find(id)
        return None if entry is None else self._history.timeline(entry)

    def _book(self, spans: Spans, now_ns: int) -> None:
        """Book what the clock found outside of records."""
        self._steps.spans(spans)
        self._books.spend_shared("idle", spans.idle + spans.gap, now_ns)

    def _settle(self, ended: Iterable[Ended], pool: PoolState, now_ns: int) -> None:
        self._books.end(ended, now_ns)
        self._pool = pool
        self._memory.pool(pool)


def _have(resolved: Resolved) -> frozenset[Needs]:
    """Say which optional metrics the settings ask for."""
    needs = (
        (Needs.PRICE, resolved.price_nusd_per_hour is not None),
        (Needs.SLO, resolved.objectives_ns),
    )
    return frozenset(need for need, given in needs if given)
