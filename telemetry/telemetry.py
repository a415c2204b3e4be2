"""Turns the engine's messages into numbers, after the tokens are on their way to the streams.

One thread, the event loop's, calls it. It never waits for the engine, and knows no HTTP.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from core.machine import Peaks
from core.request import DEFAULT_TENANT, FinishReason, RequestId
from core.settings import TelemetrySettings
from core.wire import Ended, Fault, Idle, PoolState, Ready, StepReport
from costmodel.account import LostCause
from telemetry.bill.cost import CostObject, bill_of
from telemetry.bill.money import TimePrice
from telemetry.books.accounts import Book, Booked, account_burst
from telemetry.books.burst import Burst
from telemetry.books.ledger import Ledger
from telemetry.engine.clock import EngineClock, Spans
from telemetry.engine.model import EngineModel, engine_model
from telemetry.engine.proven import Proof, ProvenPeaks
from telemetry.engine.remeasure import PeakDoubt
from telemetry.history import History, StepView, Timeline
from telemetry.objectives import resolve
from telemetry.series.aliases import VllmAliases
from telemetry.series.cpu_time import CpuTime
from telemetry.series.memory import MemorySeries
from telemetry.series.money import MoneySeries
from telemetry.series.registry import NS, Instruments
from telemetry.series.requests import RequestSeries
from telemetry.series.service import ServiceSeries
from telemetry.series.slow import SlowSeries
from telemetry.series.steps import StepSeries
from telemetry.why.explain import Explainer
from telemetry.why.window import WindowView

_MOST_BOOKED_STEPS: Final = 512  # counting them holds the event loop up: for 1 to 3 ms
_NO_POOL: Final = PoolState(0, 0, 0, 0)

log = logging.getLogger("floorline.telemetry")


class Telemetry:
    """The server's one door to metrics, bills and timelines.

    Steps are billed together, a little later, and counted more at a time, at the scrape at the
    latest: one by one would take several times as long. A method that reads or ends something
    bills the steps that are due first.

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
        make = Instruments(self._registry, model_name, resolved.needs, resolved.buckets)
        spent = make.counter("telemetry_seconds_total", NS)
        self._own_time = CpuTime(spent.inc)
        self._up_to_date = CpuTime(spent.inc, begin=self._book_due)
        self._steps = StepSeries(make)
        self._engine: EngineModel | None = None
        self._explainer = Explainer(resolved.objectives_ns, lambda: self._engine)
        self._slow = SlowSeries(make, self._explainer)
        self._requests = RequestSeries(make, resolved.objectives_ns)
        self._memory = MemorySeries(make)
        self._service = ServiceSeries(make)
        price = resolved.price_nusd_per_hour
        self._price = TimePrice(price)
        self._money = None if price is None else MoneySeries(make, price)
        if resolved.vllm_aliases:
            VllmAliases(self._registry, make, model_name)
        self._ledger, self._history, self._engine_clock = Ledger(), History(), EngineClock()
        books = (self._requests, self._slow, self._steps, self._memory, self._money)
        self._books: list[Book] = [book for book in books if book is not None]
        self._burst = Burst(self._ledger, self._engine_clock)
        self._booked: list[Booked] = []  # that the series have not taken
        self._booked_steps = 0
        self._pool = _NO_POOL  # as the engine last told
        self._doubt, self._proven = PeakDoubt(), ProvenPeaks()

    # ── from the engine ──

    def on_ready(self, ready: Ready) -> None:
        """Start the clock of the time law; a second time it is a restart, and counters go on."""
        with self._up_to_date:
            engine = engine_model(ready)
            self._engine_clock.start(ready.ready_ns)
            self._explainer.ready(ready)
            self._use(engine.with_peaks(self._proven.measured(engine.peaks)))
            self._memory.ready(ready, engine.sums.kv_token_bytes)
            self._pool = PoolState(ready.num_blocks, 0, 0, 0)
            self._service.ready(ready, engine.coverage, engine.sums.step_weight_bytes)

    def on_report(self, report: StepReport) -> None:
        """Take a step, right after its tokens went to the streams. Cost: mostly an append."""
        if self._burst.collect(report, self._now_ns()):
            with self._own_time:
                self._book_due()

    def _book_due(self) -> None:
        """Bill the steps that are due. A bug in the books costs no caller an answer."""
        if self._burst.empty:
            return
        burst, self._burst = self._burst, Burst(self._ledger, self._engine_clock)
        try:
            facts = burst.close()
            if facts is not None:
                assert self._engine is not None, "a step before Ready"
                accounts = account_burst(self._engine, self._proven, self._price, facts)
                if accounts.engine is not self._engine:
                    self._use(accounts.engine)
                self._doubt.steps(accounts.steps.violation, accounts.steps.floors.compute_bound)
                accounts.pay(facts.entries)
                self._history.take(facts, accounts)
                self._pool = facts.reports[-1].pool
                self._booked.append(Booked(facts, accounts))
                self._booked_steps += len(facts.reports)
        except Exception:
            log.exception("telemetry failed on a burst of steps")
        if self._booked_steps >= _MOST_BOOKED_STEPS:
            self._count_booked()

    def _count_booked(self) -> None:
        """Have the series take what was billed: many bursts at once, as each has a price."""
        bursts, self._booked, self._booked_steps = self._booked, [], 0
        for book in self._books if bursts else ():
            try:
                book.take(bursts)
            except Exception:
                log.exception("telemetry failed to count steps")

    def on_idle(self, idle: Idle) -> None:
        """Start an idle span; a scrape extends it to its own moment."""
        with self._up_to_date:
            now_ns = self._now_ns()
            self._steps.published(idle.publish_ns)
            self._unused(self._engine_clock.rest(idle.start_ns, idle.measuring), now_ns)
            self._settle(idle.ended, idle.pool, now_ns)

    def wants_peaks(self) -> bool:
        """Say whether the engine, which is idle, should measure its peaks again."""
        with self._up_to_date:
            return self._engine is not None and self._doubt.asks(self._engine.peaks, self._now_ns())

    def on_peaks(self, peaks: Peaks) -> None:
        """Use new peaks for the steps from here on; floors of past steps stay as they were."""
        with self._up_to_date:
            assert self._engine is not None, "peaks before Ready"
            peaks = self._proven.measured(peaks)
            log.warning(self._doubt.answered(self._engine.peaks, peaks))
            self._use(self._engine.with_peaks(peaks))

    def _use(self, engine: EngineModel) -> None:
        self._engine = engine
        self._steps.peaks(engine.peaks, self._proven.raises)

    def on_fault(self, fault: Fault) -> None:
        """Count a step that raised: all its time is lost. Before `Ready` no clock runs."""
        with self._up_to_date:
            now_ns = self._now_ns()
            self._service.fault(fault.kind)
            if self._engine_clock.running:
                self._unused(self._engine_clock.record(fault.start_ns, fault.end_ns), now_ns)
                span_ns = fault.end_ns - fault.start_ns
                self._steps.lost(LostCause.FAILED, span_ns)
                self._spend_shared("waste", span_ns, now_ns)
                self._settle(fault.ended, fault.pool, now_ns)

    def on_engine_down(self) -> None:
        """Its process ended: what was live has failed, and the store is gone."""
        with self._up_to_date:
            now_ns = self._now_ns()
            self._unused(self._engine_clock.extend(now_ns), now_ns)
            self._engine_clock.stop()
            ended = tuple(
                Ended(entry.id, FinishReason.FAILED) for entry in self._ledger.unreleased()
            )
            self._settle(ended, _NO_POOL, now_ns)
            self._service.down()

    # ── from the server ──

    def on_received(
        self,
        id: RequestId,
        prompt_tokens: int,
        tenant: str = DEFAULT_TENANT,
        *,
        received_ns: int | None = None,
        shares_prompt: bool = False,
        has_grammar: bool = False,
    ) -> None:
        """Open a request at its Submit; its time runs from `received_ns`, or from now.

        With `shares_prompt` it is a further choice: `usage` counts the prompt with the first one.
        Steps that are due are not booked here: none of them ran this request, and it waits.
        """
        with self._own_time:
            now_ns = self._now_ns()
            at_ns = now_ns if received_ns is None else received_ns
            kind = {"shares_prompt": shares_prompt, "has_grammar": has_grammar}
            self._requests.received()
            self._ledger.open(id, prompt_tokens, tenant, at_ns, now_ns, **kind)

    def on_refused(self, count: int) -> None:
        """Count generations that were valid and never submitted: 429 or 503."""
        self._requests.refused(count)

    def on_finish_sent(self, id: RequestId, n_tokens: int, reason: FinishReason) -> None:
        """End a request whose stop the server found; what is sampled later is waste."""
        with self._up_to_date:
            surplus = self._ledger[id].finish(n_tokens, reason, self._now_ns())
            self._requests.overran(surplus)

    def on_http_response(self, route: str, code: int) -> None:
        self._service.response(route, code)

    def cost(self, ids: Sequence[RequestId]) -> CostObject:
        """Bill the generations of one HTTP request so far."""
        with self._up_to_date:
            entries, now_ns = [self._ledger[id] for id in ids], self._now_ns()
            why = self._explainer.why(entries, now_ns)
            return bill_of(entries, now_ns, priced=self._money is not None, why=why)

    def forget(self, ids: Sequence[RequestId]) -> None:
        """Say that the response is done; only the timelines of the last requests are kept."""
        with self._own_time:
            self._ledger.forget(ids)

    def render(self) -> bytes:
        """Write the scrape, with idle time and gauges brought up to now."""
        with self._up_to_date:
            self._count_booked()
            now_ns = self._now_ns()
            if not self._ledger.live:
                self._unused(self._engine_clock.extend(now_ns), now_ns)
            self._requests.refresh(self._pool, self._ledger.live)
            self._steps.refresh(now_ns)
            self._memory.refresh(self._pool)
            if self._money is not None:
                self._money.refresh(now_ns)
            return generate_latest(self._registry)

    def recent_steps(self, n: int) -> list[StepView]:
        """View the last `n` steps that are kept, oldest first."""
        with self._up_to_date:
            return self._history.recent(n)

    def why(self, seconds: int) -> WindowView:
        """Say what made requests slow in the last `seconds`, of which 300 are kept."""
        with self._up_to_date:
            self._count_booked()
            return self._slow.window.view(seconds, self._now_ns())

    def proofs(self) -> list[Proof]:
        """Give the steps that raised a peak: the best of each size of working set."""
        with self._up_to_date:
            return self._proven.proofs

    def request_timeline(self, id: RequestId, tenant: str) -> Timeline | None:
        """View one request, if it is the tenant's own."""
        with self._up_to_date:
            entry = self._ledger.find(id)
            if entry is None or entry.tenant != tenant:
                return None
            return self._history.timeline(entry, self._explainer.explain(entry, self._now_ns()))

    def tenant_of(self, id: RequestId) -> str | None:
        """Tell whose a request is, while anything is known of it."""
        entry = self._ledger.find(id)
        return None if entry is None else entry.tenant

    def _unused(self, spans: Spans, now_ns: int) -> None:
        """Book time in which no step ran and none failed."""
        self._steps.spans(spans)
        self._spend_shared("idle", spans.resting, now_ns)

    def _spend_shared(self, component: str, ns: int, now_ns: int) -> None:
        if self._money is not None:
            self._money.shared(component, self._price.of_next(ns), now_ns)

    def _settle(self, ended: Sequence[Ended], pool: PoolState, now_ns: int) -> None:
        """Take what the engine tells outside of steps: terminal events, and its gauges."""
        self._pool, entries = pool, self._ledger.release(ended, now_ns)
        for book in (self._requests, self._slow, self._memory):
            book.ended(entries)
