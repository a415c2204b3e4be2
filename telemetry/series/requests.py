"""Counts requests: what came, what waits, how long each took, how each ended."""

from __future__ import annotations

from collections.abc import Mapping

from core.request import FinishReason
from core.wire import PoolState
from costmodel.split import Bools, Ints
from telemetry.bill.entry import Entry
from telemetry.series.registry import Instruments

_ANSWERED = (FinishReason.STOP, FinishReason.LENGTH)
_UNANSWERED = (FinishReason.FAILED, FinishReason.REFUSED)  # through no wish of the caller


class RequestMeters:
    """Every child is bound here, once."""

    def __init__(self, make: Instruments, objectives_ns: Mapping[str, int]) -> None:
        self._ttft = make.histogram("time_to_first_token_seconds")
        self._itl = make.histograms("inter_token_latency_seconds", "context")
        self._tpot = make.histogram("time_per_output_token_seconds")
        self._duration = make.histograms("request_duration_seconds", "finish_reason")
        self._phase = make.histograms("request_phase_seconds", "phase")
        self._received = make.tally("requests_received_total")
        self._running = make.gauge("requests_running")
        self._waiting = make.gauges("requests_waiting", "reason")
        self._outcomes = make.tallies("requests_total", "outcome")
        self._tokens = make.tallies("tokens_total", "kind")
        self._preemptions = make.tally("preemptions_total")
        self._objectives_ns = objectives_ns
        self._slo = {
            (objective, met): make.tally(
                "slo_requests_total", objective=objective, outcome="met" if met else "missed"
            )
            for objective in objectives_ns
            for met in (True, False)
        }

    def received(self) -> None:
        self._received.add(1)

    def refused(self, count: int) -> None:
        self._received.add(count)
        self._outcomes[FinishReason.REFUSED].add(count)

    def preempted(self) -> None:
        self._preemptions.add(1)

    def tokens(self, prompt: int, generated: int) -> None:
        """Count what became part of answers; a prompt does with its first token."""
        self._tokens["prompt"].add(prompt)
        self._tokens["generated"].add(generated)

    def wasted(self, kind: str, tokens: int) -> None:
        self._tokens[kind].add(tokens)

    def first_token(self, ns: int) -> None:
        """Time the first token of an answer since the request was received."""
        self._ttft.observe(ns / 1e9)

    def resumed(self, gap_ns: int) -> None:
        """Time a token that a preemption divides from the one before it."""
        self._itl["resumed"].observe(gap_ns / 1e9)

    def gaps(self, gaps_ns: Ints, mixed: Bools) -> None:
        """Time other tokens since the ones before them, in mixed steps and in pure ones."""
        for context, here in (("decode_only", ~mixed), ("mixed", mixed)):
            self._itl[context].observe_all(gaps_ns[here] / 1e9)

    def ended(self, entry: Entry) -> None:
        """Count a terminal event, whose entry has ended."""
        assert entry.finish_reason is not None
        assert entry.ended_ns is not None
        reason, duration_ns = entry.finish_reason, entry.ended_ns - entry.received_ns
        self._outcomes[reason].add(1)
        self._duration[reason].observe(duration_ns / 1e9)
        for stage, ns in entry.stage_ns.items():
            self._phase[stage].observe(ns / 1e9)
        if entry.tokens > 1:
            self._tpot.observe(entry.itl_sum_ns / (entry.tokens - 1) / 1e9)
        if reason in _ANSWERED:
            self._judge(entry, duration_ns)
        elif reason in _UNANSWERED:
            for objective in self._objectives_ns:
                self._slo[objective, False].add(1)

    def _judge(self, entry: Entry, duration_ns: int) -> None:
        """Hold an answer against the objectives; one token has no latency between tokens."""
        measured_ns = {"e2e": float(duration_ns)}
        if entry.first_token_ns is not None:
            measured_ns["ttft"] = entry.first_token_ns - entry.received_ns
        if entry.tokens > 1:
            measured_ns["itl"] = entry.itl_sum_ns / (entry.tokens - 1)
        for objective, limit_ns in self._objectives_ns.items():
            if objective in measured_ns:
                self._slo[objective, measured_ns[objective] <= limit_ns].add(1)

    def live(self, count: int, pool: PoolState) -> None:
        """Set the gauges so that they sum to `count`.

        A request that the engine has not seen yet waits for the next step, as `budget` says.
        """
        self._running.set(pool.running)
        self._waiting["kv"].set(pool.waiting_kv)
        self._waiting["slots"].set(pool.waiting_slots)
        self._waiting["grammar"].set(pool.waiting_grammar)
        known = pool.running + pool.waiting_kv + pool.waiting_slots + pool.waiting_grammar
        rest = count - known
        self._waiting["budget"].set(max(rest, 0))
