"""The engine thread: receive, plan, execute, commit, report. It alone mutates requests and blocks.

It knows no sockets and no tensors: messages come from an inbox and go to `publish`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from core.request import FinishReason, Request, RequestId
from core.step import StepPlan, StepResult
from core.wire import (
    Abort,
    Drain,
    Ended,
    Fault,
    Finish,
    FromEngine,
    Idle,
    Measured,
    Ping,
    Pong,
    PoolState,
    Remeasure,
    Segments,
    StepReport,
    Submit,
    ToEngine,
)
from engine.machine.idle_measurement import IdleMeasurement, MeasurePeaks, no_peaks
from engine.step.grammar_queue import Compile, Compiled, GrammarQueue, no_grammars
from engine.submits import no_fault
from scheduler.record import PlanRecord
from scheduler.scheduler import Scheduler

log = logging.getLogger("floorline.engine")

CLOSED: Final = None  # in the inbox: the server is gone


class Runner(Protocol):
    """Whatever computes a step. It knows no queues, and the loop knows no tensors."""

    def execute(self, plan: StepPlan) -> StepResult:
        """Run one forward pass over the plan's slices and sample where they ask for it.

        Returns:
            A token or a failure for every slice with `samples`; the time each part took.
        Raises:
            Exception: our own bug; the loop fails the step's requests and goes on.
        """


class EngineLoop:
    """Runs until the server drains it or goes away.

    Invariant: records tile the time. Each step starts where the last record ended, or where an
        idle engine got its next message; each submitted id is in exactly one `ended`. No
        measurement runs while a request is there, and the inbox is read after each of its slices.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        inbox: SimpleQueue[ToEngine | Compiled | None],
        publish: Callable[[FromEngine], None],
        now_ns: Callable[[], int] = time.monotonic_ns,
        compile_grammar: Compile = no_grammars,
        measure_peaks: MeasurePeaks = no_peaks,
        fault_in: Callable[[Submit], str] = no_fault,
    ) -> None:
        self._scheduler, self._runner = scheduler, runner
        self._inbox, self._send, self._now_ns = inbox, publish, now_ns
        self._compiling = GrammarQueue(compile_grammar, inbox.put)
        self._measurement = IdleMeasurement(measure_peaks)
        self._fault_in = fault_in
        self._ended: list[Ended] = []  # not yet reported
        self._compiled_at: list[tuple[RequestId, int]] = []  # nor this
        self._steps = 0
        self._draining = self._closed = False
        self._mark_ns = 0  # everything before it is in a record
        self._publish_ns = 0  # since the mark: what sending the last record took

    def run(self) -> None:
        self._mark_ns = self._now_ns()
        while not self._closed:
            if self._scheduler.has_work:
                self.step()
            else:
                self._idle()
            self._receive()
        self._measurement.drop()
        self._compiling.close()

    def step(self) -> None:
        """Decide, compute, apply, tell."""
        received_ns = self._now_ns()
        self._measurement.worked(received_ns)
        plan = self._scheduler.plan()
        record = self._scheduler.record(plan)
        planned_ns = self._now_ns()
        result = self._execute(plan)
        if result is not None:
            executed_ns = self._now_ns()
            self._receive()  # what was aborted meanwhile ends as aborted
            times = (received_ns, planned_ns, executed_ns, self._now_ns())
            self._ended += self._scheduler.commit(plan, result)
            self._report(plan, record, result, times)

    def _receive(self) -> None:
        while not self._closed:
            try:
                self._handle(self._inbox.get_nowait())
            except Empty:
                return

    def _handle(self, message: ToEngine | Compiled | None) -> None:
        match message:
            case Submit():
                self._submit(message)
            case Compiled():
                self._compiled(message)
            case Finish(id, n_tokens, reason):
                self._note(
                    self._withdraw(id, reason) or self._scheduler.finish(id, n_tokens, reason)
                )
            case Abort(id):
                self._note(self._withdraw(id, FinishReason.ABORTED) or self._scheduler.abort(id))
            case Ping():
                self._send(Pong())
            case Drain():
                self._draining = True
                self._measurement.drop()
            case Remeasure():
                if not (self._scheduler.has_work or self._draining):
                    self._measurement.ask(self._now_ns())
            case _:
                self._closed = True

    def _submit(self, message: Submit) -> None:
        """Queue a request, or end it alone if the model cannot run it.

        An id that is live already is ignored: its one end is that of the first.
        """
        if self._scheduler.has(message.id) or message.id in self._compiling:
            log.error("%s was submitted twice; the second is ignored", message.id)
            return
        if fault := self._fault_in(message):
            self._note(Ended(message.id, FinishReason.FAILED, fault))
            return
        request = Request(
            id=message.id,
            prompt_ids=message.prompt_ids,
            max_tokens=message.max_tokens,
            sampling=message.sampling,
            stop_token_ids=frozenset(message.stop_token_ids),
            tenant=message.tenant,
            cache_salt=message.cache_salt,
            priority=message.priority,
        )
        if not self._scheduler.fits(request):
            # the server checks the same limit; this guards the pool against another client
            self._note(Ended(request.id, FinishReason.FAILED, "larger than the whole KV pool"))
        elif message.grammar is not None:
            self._compiling.add(request, message.grammar)
        else:
            self._scheduler.add(request)

    def _compiled(self, message: Compiled) -> None:
        """Queue a request that waited for its grammar, or end it if that failed."""
        request = self._compiling.take(message.id)
        if request is None:  # aborted meanwhile
            return
        if message.fault:
            self._note(Ended(request.id, FinishReason.FAILED, message.fault))
            return
        if message.matcher is not None:
            request.matcher = message.matcher
            request.stop_token_ids |= message.matcher.end_token_ids
        self._compiled_at.append((request.id, self._now_ns()))
        self._scheduler.add(request)

    def _withdraw(self, id: RequestId, reason: FinishReason) -> Ended | None:
        """End a request that still waits for its grammar."""
        return Ended(id, reason) if self._compiling.take(id) else None

    def _note(self, ended: Ended | None) -> None:
        if ended is not None:
            self._ended.append(ended)

    def _execute(self, plan: StepPlan) -> StepResult | None:
        """Run the plan; a fault in it fails its requests and is reported, and the loop goes on."""
        try:
            return self._runner.execute(plan)
        except Exception as error:
            log.exception("step %d failed", self._steps + 1)
            message = f"{type(error).__name__}: {error}"
            self._receive()
            self._ended += self._scheduler.fail(plan, message)
            start_ns, self._mark_ns = self._mark_ns, self._now_ns()
            kind, pool = type(error).__name__, self._pool_state()
            self._publish(Fault(kind, message, start_ns, self._mark_ns, self._take_ended(), pool))
            return None

    def _report(
        self,
        plan: StepPlan,
        record: PlanRecord,
        result: StepResult,
        times: tuple[int, int, int, int],
    ) -> None:
        received_ns, planned_ns, executed_ns, heard_ns = times
        start_ns, end_ns = self._mark_ns, self._now_ns()
        segments = Segments(
            publish=self._publish_ns,
            receive=received_ns - start_ns - self._publish_ns + heard_ns - executed_ns,
            plan=planned_ns - received_ns,
            prepare=executed_ns - planned_ns - result.forward_ns - result.sample_ns,
            forward=result.forward_ns,
            sample=result.sample_ns,
            commit=end_ns - heard_ns,
        )
        self._mark_ns = end_ns
        self._steps += 1
        self._publish(
            StepReport(
                index=self._steps,
                start_ns=start_ns,
                end_ns=end_ns,
                segments=segments,
                slices=record.slices,
                shared=record.shared,
                distinct_token_ids=record.distinct_token_ids,
                tokens=tuple(result.tokens.items()),
                ended=self._take_ended(),
                admitted=plan.admitted,
                preempted=plan.preempted,
                pool=self._pool_state(),
                logprobs=result.logprobs,
                prompt_logprobs=result.prompt_logprobs,
                compiled=tuple(self._compiled_at),
            )
        )
        self._compiled_at.clear()

    def _idle(self) -> None:
        """Say that nothing is live, then measure if asked, or wait for a message.

        What makes work ends the idle span; a drained loop ends here instead.
        """
        self._mark_ns += self._publish_ns
        measures = self._may_measure
        self._rest(self._mark_ns, self._publish_ns, measures)
        self._closed |= self._drained
        while not (self._closed or self._drained or self._scheduler.has_work or self._ended):
            if self._may_measure != measures:
                measures = not measures
                self._rest(self._now_ns(), 0, measures)
            if measures:
                self._measure()
                self._receive()
            else:
                self._handle(self._inbox.get())
        self._mark_ns, self._publish_ns = self._now_ns(), 0

    def _rest(self, start_ns: int, publish_ns: int, measures: bool) -> None:
        pool = self._pool_state()
        self._send(Idle(start_ns, publish_ns, self._take_ended(), pool, measures))

    @property
    def _may_measure(self) -> bool:
        """Whether to measure now, on an idle engine: not while a request waits for a grammar."""
        return self._measurement.under_way and not self._compiling

    def _measure(self) -> None:
        peaks = self._measurement.run_slice()
        if peaks is not None:
            self._send(Measured(peaks))

    @property
    def _drained(self) -> bool:
        return self._draining and not self._compiling

    def _pool_state(self) -> PoolState:
        return self._scheduler.pool_state(waiting_grammar=len(self._compiling))

    def _take_ended(self) -> tuple[Ended, ...]:
        ended, self._ended = tuple(self._ended), []
        return ended

    def _publish(self, message: FromEngine) -> None:
        """Send; all the time since the mark is booked as `publish` in the next record."""
        self._send(message)
        self._publish_ns = self._now_ns() - self._mark_ns
