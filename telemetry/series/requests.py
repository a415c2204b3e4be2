"""Counts requests: what came, what waits, how long each took, how each ended, what was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from core.request import FinishReason, Obstacle
from core.wire import PoolState
from costmodel.charges import WASTE, WasteCause
from telemetry.bill.entry import Entry
from telemetry.books.accounts import Booked, BurstAccounts
from telemetry.books.facts import MIXED, Facts
from telemetry.series.registry import NS, Instruments

_ANSWERED = (FinishReason.STOP, FinishReason.LENGTH)
_UNANSWERED = (FinishReason.FAILED, FinishReason.REFUSED)  # not by the caller's wish
_RECOMPUTE, _OVERRUN = WASTE.index(WasteCause.RECOMPUTE), WASTE.index(WasteCause.OVERRUN)


class RequestSeries:
    """Every child is bound here, once."""

    def __init__(self, make: Instruments, objectives_ns: Mapping[str, int]) -> None:
        self._ttft = make.histogram("time_to_first_token_seconds")
        self._itl = make.histograms("inter_token_latency_seconds", "context")
        self._tpot = make.histogram("time_per_output_token_seconds")
        self._duration = make.histograms("request_duration_seconds", "finish_reason")
        self._phase = make.histograms("request_phase_seconds", "phase")
        self._received = make.counter("requests_received_total")
        self._running = make.gauge("requests_running")
        self._waiting = make.gauges("requests_waiting", "reason")
        self._outcomes = make.counters("requests_total", "outcome")
        self._tokens = make.counters("tokens_total", "kind")
        self._prefix = make.counters("prefix_tokens_total", "result")
        self._saved_ns = make.counter("prefix_saved_seconds_total", NS)
        self._saved_bytes = make.counter("prefix_saved_bytes_total")
        self._preemptions = make.counter("preemptions_total")
        self._objectives_ns = objectives_ns
        self._slo = {
            (objective, met): make.counter(
                "slo_requests_total", objective=objective, outcome="met" if met else "missed"
            )
            for objective in objectives_ns
            for met in (True, False)
        }

    def take(self, bursts: Sequence[Booked]) -> None:
        """Count the tokens of bursts, the times between them, and the requests that they ended."""
        for facts, accounts in bursts:
            self._count_tokens(facts, accounts)
            self._preemptions.inc(facts.preemptions)
            for ns in facts.first_token_ns:
                self._ttft.observe(ns / 1e9)
            for ns in facts.resumed_ns:
                self._itl["resumed"].observe(ns / 1e9)
            self._prefix["hit"].inc(facts.hit_tokens)
            self._prefix["miss"].inc(facts.missed_tokens)
            self._saved_ns.inc(accounts.saving.floor_ns)
            self._saved_bytes.inc(accounts.saving.bytes)
            self.ended(facts.ended)
        gaps_s = np.array([ns for facts, _ in bursts for ns in facts.gap_ns]) / 1e9
        mixed = np.concatenate([facts.kinds[facts.gap_steps] == MIXED for facts, _ in bursts])
        for context, here in (("decode_only", ~mixed), ("mixed", mixed)):
            self._itl[context].observe_all(gaps_s[here])

    def _count_tokens(self, facts: Facts, accounts: BurstAccounts) -> None:
        """Count what became part of answers, and waste; a prompt counts with its first token."""
        self._tokens["prompt"].inc(sum(facts.prompt_tokens))
        self._tokens["generated"].inc(sum(facts.generated_tokens))
        self._tokens["cached"].inc(facts.cached_tokens)
        parts = accounts.steps.charges.parts
        if parts.waste.any():
            self._tokens["recomputed"].inc(int(parts.tokens[parts.waste == _RECOMPUTE].sum()))
            self._tokens["overrun"].inc(int(parts.rows[parts.waste == _OVERRUN].sum()))

    def received(self) -> None:
        self._received.inc(1)

    def refused(self, count: int) -> None:
        self._received.inc(count)
        self._outcomes[FinishReason.REFUSED].inc(count)

    def overran(self, tokens: int) -> None:
        """Count tokens of an answer that come after the stop that the server found."""
        self._tokens["overrun"].inc(tokens)

    def ended(self, entries: Iterable[Entry]) -> None:
        """Count the terminal events of entries, which have ended."""
        for entry in entries:
            self._end(entry)

    def _end(self, entry: Entry) -> None:
        assert entry.finish_reason is not None
        assert entry.ended_ns is not None
        reason, duration_ns = entry.finish_reason, entry.ended_ns - entry.received_ns
        self._outcomes[reason].inc(1)
        if reason is FinishReason.LENGTH and not entry.tokens:  # max_tokens 0: scored only
            self._tokens["prompt"].inc(entry.usage_prompt_tokens)
        self._duration[reason].observe(duration_ns / 1e9)
        for stage, ns in entry.stage_ns.items():
            self._phase[stage].observe(ns / 1e9)
        if entry.tokens > 1:
            self._tpot.observe(entry.itl_sum_ns / (entry.tokens - 1) / 1e9)
        if reason in _ANSWERED:
            self._judge(entry, duration_ns)
        elif reason in _UNANSWERED:
            for objective in self._objectives_ns:
                self._slo[objective, False].inc(1)

    def _judge(self, entry: Entry, duration_ns: int) -> None:
        """Hold an answer against the objectives; one token has no latency between tokens."""
        measured_ns = {"e2e": float(duration_ns)}
        if entry.first_token_ns is not None:
            measured_ns["ttft"] = entry.first_token_ns - entry.received_ns
        if entry.tokens > 1:
            measured_ns["itl"] = entry.itl_sum_ns / (entry.tokens - 1)
        for objective, limit_ns in self._objectives_ns.items():
            if objective in measured_ns:
                self._slo[objective, measured_ns[objective] <= limit_ns].inc(1)

    def refresh(self, pool: PoolState, live: int) -> None:
        """Set the gauges so that they sum to `live`.

        A request that the engine has not seen yet waits for the next step, as `budget` says.
        """
        self._running.set(pool.running)
        waiting = {obstacle: pool.waiting.get(obstacle, 0) for obstacle in Obstacle}
        del waiting[Obstacle.BUDGET]
        known = pool.running + sum(waiting.values())
        waiting[Obstacle.BUDGET] = max(live - known, 0)
        for obstacle, count in waiting.items():
            self._waiting[obstacle].set(count)
