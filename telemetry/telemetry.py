"""Turns the engine's messages into numbers, after the tokens are on their way to the streams.

One thread, the event loop's, calls it. It never waits for the engine, and knows no HTTP.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from prometheus_client import CollectorRegistry, generate_latest

from core.machine import Peaks
from core.request import DEFAULT_TENANT, FinishReason, RequestId
from core.settings import TelemetrySettings
from core.wire import Ended, Fault, Idle, PoolState, Ready, StepReport
from costmodel.account import LostCause, account_steps
from costmodel.saving import saving_of
from telemetry.bill.cost import CostObject, Timings, bill, timings
from telemetry.bill.money import Meter
from telemetry.books.books import Books
from telemetry.books.burst import Burst
from telemetry.books.ledger import Ledger
from telemetry.engine.clock import EngineClock, Spans
from telemetry.engine.model import EngineModel, engine_model
from telemetry.engine.remeasure import PeakDoubt
from telemetry.history import History
from telemetry.objectives import resolve
from telemetry.series.aliases import VllmAliases
from telemetry.series.memory import MemoryMeters
from telemetry.series.money import MoneyMeters
from telemetry.series.prefixes import PrefixMeters
from telemetry.series.registry import NS, Instruments
from telemetry.series.requests import RequestMeters
from telemetry.series.service import ServiceMeters
from telemetry.series.steps import StepMeters

NO_POOL: Final = PoolState(0, 0, 0, 0, 0, 0, 0)

_BURST_STEPS: Final = 128  # a burst holds the event loop up: for 2 to 3 ms
_BURST_SLICES: Final = 1024

log = logging.getLogger("floorline.telemetry")

P = ParamSpec("P")
T = TypeVar("T")


def _up_to_date(
    method: Callable[Concatenate[Telemetry, P], T],
) -> Callable[Concatenate[Telemetry, P], T]:
    """Book what is due before a method, and count the CPU time of both as telemetry's own."""

    @wraps(method)
    def counted(self: Telemetry, *args: P.args, **kwargs: P.kwargs) -> T:
        begin_ns = time.thread_time_ns()
        try:
            if self._due:
                self._book_due()
            return method(self, *args, **kwargs)
        finally:
            self._own.add(time.thread_time_ns() - begin_ns)

    return counted  # type: ignore[return-value]


class Telemetry:
    """The server's one door to metrics, bills and timelines.

    A step is booked a little later, together with others: one step alone takes several times as
    long. Whoever asks or tells something finds the books up to date.

    Invariant: received = refused + finished + aborted + failed + live, at every scrape.
    Raises:
        SettingsError: a price, objective or alias that cannot be used; names its flag.
    """

    def __init__(
        self,
        model_name: str,
        settings: TelemetrySettings,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        resolved = resolve(settings)
        self._now_ns = clock
        self._registry = CollectorRegistry()
        self._make = make = Instruments(
            self._registry, model_name, resolved.needs, resolved.buckets
        )
        self._own = make.tally("telemetry_seconds_total", NS)
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
        self._due: list[tuple[StepReport, int]] = []  # with the moment that its tokens went out
        self._due_slices = 0
        self._doubt = PeakDoubt()

    # ── from the engine ──

    @_up_to_date
    def on_ready(self, ready: Ready) -> None:
        """Start the clock of the time law; a second time it is a restart, and counters go on."""
        self._engine = engine = engine_model(ready)
        self._engine_clock.start(ready.ready_ns)
        self._steps.peaks(engine.peaks)
        self._memory.ready(ready, engine.arithmetic.kv_token_bytes)
        self._service.ready(ready, engine.coverage, engine.arithmetic.step_weight_bytes)

    def on_report(self, report: StepReport) -> None:
        """Take a step; call it right after its tokens went to the streams.

        Cost: an append; after every few steps, what booking them takes.
        """
        self._due.append((report, self._now_ns()))
        self._due_slices += len(report.slices)
        if len(self._due) >= _BURST_STEPS or self._due_slices >= _BURST_SLICES:
            self._catch_up()

    @_up_to_date
    def _catch_up(self) -> None:
        """Book what is due."""

    def _book_due(self) -> None:
        """Account for the steps that are due. A bug in the books costs no caller an answer."""
        due, self._due, self._due_slices = self._due, [], 0
        burst = Burst(self._ledger)
        for report, sent_ns in due:
            try:
                self._take(report, sent_ns, burst)
            except Exception:
                log.exception("telemetry failed on step %d", report.index)
        try:
            if burst.reports:
                self._account(burst)
        except Exception:
            log.exception("telemetry failed on %d steps", len(due))

    def _take(self, report: StepReport, sent_ns: int, burst: Burst) -> None:
        """Tell a step's requests what they went through in it."""
        seats = burst.seats_of(report)
        spans = self._engine_clock.record(report.start_ns, report.end_ns)
        self._steps.spans(spans)
        self._prefix.admitted(report, [burst.entries[seat] for seat in seats])
        self._books.take(report, sent_ns, seats, spans.resting, burst)

    def _account(self, burst: Burst) -> None:
        """Work out what a burst of steps cost, and who pays."""
        assert self._engine is not None, "a step before Ready"
        arithmetic, peaks, reports = self._engine.arithmetic, self._engine.peaks, burst.reports
        accounts = account_steps(arithmetic, peaks, reports, burst.wasted)
        kinds = self._books.charge(burst, accounts)
        self._steps.steps(reports, accounts, kinds)
        self._doubt.steps(accounts.violation, accounts.floors.compute_bound)
        self._history.add(reports, accounts, kinds)
        self._prefix.saved(saving_of(arithmetic, peaks, accounts))
        self._show_pool(reports[-1].pool)

    @_up_to_date
    def on_idle(self, idle: Idle) -> None:
        """Start an idle span; a scrape extends it to its own moment."""
        now_ns = self._now_ns()
        self._steps.published(idle.publish_ns)
        self._book(self._engine_clock.rest(idle.start_ns, idle.measuring), now_ns)
        self._settle(idle.ended, idle.pool, now_ns)

    @_up_to_date
    def wants_peaks(self) -> bool:
        """Say whether the engine, which is idle, should measure its peaks again."""
        return self._engine is not None and self._doubt.asks(self._engine.peaks, self._now_ns())

    @_up_to_date
    def on_peaks(self, peaks: Peaks) -> None:
        """Divide by what was measured from here on; floors of past steps stay as they were."""
        assert self._engine is not None, "peaks before Ready"
        log.warning(self._doubt.answered(self._engine.peaks, peaks))
        self._engine = self._engine.with_peaks(peaks)
        self._steps.peaks(self._engine.peaks)

    @_up_to_date
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

    @_up_to_date
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

    @_up_to_date
    def on_received(
        self,
        id: RequestId,
        prompt_tokens: int,
        tenant: str = DEFAULT_TENANT,
        *,
        received_ns: int | None = None,
        shares_prompt: bool = False,
    ) -> None:
        """Open a request at its Submit; its time runs from the first receipt, or from now.

        One that `shares_prompt` is a further choice: `usage` counts the prompt with the first.
        """
        at_ns = self._now_ns() if received_ns is None else received_ns
        self._requests.received()
        self._ledger.open(id, prompt_tokens, tenant, at_ns, shares_prompt)

    def on_refused(self, count: int) -> None:
        """Count generations that passed validation and were never submitted: 429 or 503."""
        self._requests.refused(count)

    @_up_to_date
    def on_finish_sent(self, id: RequestId, n_tokens: int, reason: FinishReason) -> None:
        """End a request whose stop the server found; what is sampled later is waste."""
        surplus = self._ledger[id].finish(n_tokens, reason, self._now_ns())
        self._requests.wasted("overrun", surplus)

    def on_http_response(self, route: str, code: int) -> None:
        self._service.response(route, code)

    @_up_to_date
    def cost(self, ids: Sequence[RequestId]) -> CostObject:
        """Bill the generations of one HTTP request so far."""
        entries = [self._ledger[id] for id in ids]
        return bill(entries, self._now_ns(), priced=self._money is not None)

    @_up_to_date
    def timings(self, ids: Sequence[RequestId]) -> Timings:
        return timings([self._ledger[id] for id in ids], self._now_ns())

    @_up_to_date
    def forget(self, ids: Sequence[RequestId]) -> None:
        """Say that the response is done; a bounded ring still knows the last requests."""
        self._ledger.forget(ids)

    @_up_to_date
    def render(self) -> bytes:
        """Write the scrape, with idle time and gauges brought up to now."""
        now_ns = self._now_ns()
        if not self._ledger.live:
            self._book(self._engine_clock.extend(now_ns), now_ns)
        self._requests.live(self._ledger.live, self._pool)
        self._steps.refresh(now_ns)
        self._memory.refresh()
        if self._money is not None:
            self._money.refresh(now_ns)
        return generate_latest(self._registry)

    @_up_to_date
    def recent_steps(self, n: int) -> list[dict[str, Any]]:
        """View the last `n` steps that are kept, oldest first."""
        return self._history.recent(n)

    @_up_to_date
    def request_timeline(self, id: RequestId, tenant: str) -> dict[str, Any] | None:
        """View one request, if it is the tenant's own."""
        entry = self._ledger.find(id)
        if entry is None or entry.tenant != tenant:
            return None
        return self._history.timeline(entry)

    def _book(self, spans: Spans, now_ns: int) -> None:
        """Book what the clock found outside of records."""
        self._steps.spans(spans)
        self._books.spend_shared("idle", spans.resting, now_ns)

    def _settle(self, ended: Iterable[Ended], pool: PoolState, now_ns: int) -> None:
        self._books.end(ended, now_ns)
        self._show_pool(pool)

    def _show_pool(self, pool: PoolState) -> None:
        self._pool = pool
        self._memory.pool(pool)
