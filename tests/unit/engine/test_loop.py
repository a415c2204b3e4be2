"""The engine loop over the real scheduler and pool, a scripted runner and a clock that ticks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from core.errors import InvalidValue
from core.machine import Peaks
from core.request import FinishReason, Grammar, GrammarKind, Obstacle, RequestId, SamplingParams
from core.settings import SchedulerSettings
from core.step import StepPlan, StepResult
from core.wire import (
    Abort,
    Drain,
    Fault,
    Finish,
    FromEngine,
    Idle,
    Measured,
    Ping,
    Remeasure,
    StepReport,
    Submit,
    ToEngine,
)
from engine.loop import CLOSED, EngineLoop, Runner
from engine.machine.idle_measurement import IdleMeasurement, MeasurePeaks
from engine.step.grammar_queue import Compile, Compiled, no_grammars
from engine.submits import no_fault
from kvcache.pool import BlockPool
from scheduler.scheduler import Scheduler
from tests.fakes import ScriptedRunner
from tests.patience import PATIENCE_S


class TickingClock:
    """Every reading is a microsecond after the one before."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


def submit(name: str, prompt: int = 3, max_tokens: int = 2) -> Submit:
    return Submit(
        id=RequestId(name),
        prompt_ids=tuple(range(1, prompt + 1)),
        max_tokens=max_tokens,
        sampling=SamplingParams(),
        stop_token_ids=(),
    )


PEAKS = Peaks(dram=None, cache=None, cache_bytes=7, flops=None, arithmetic="fp32")


def at_once() -> Generator[None, None, Peaks]:
    """Measure in a single slice."""
    yield from ()
    return PEAKS


class Harness:
    """Feeds the loop a script: `on_message(n, message)` may put more into the inbox."""

    def __init__(
        self,
        runner: Runner | None = None,
        num_blocks: int = 64,
        compile_grammar: Compile = no_grammars,
        measure_peaks: MeasurePeaks | None = None,
        fault_in: Callable[[Submit], str] = no_fault,
    ) -> None:
        self.inbox: SimpleQueue[ToEngine | Compiled | None] = SimpleQueue()
        self.sent: list[FromEngine] = []
        self.react: Callable[[FromEngine], None] = lambda message: None
        scheduler = Scheduler(BlockPool(num_blocks, 4), SchedulerSettings())
        self.loop = EngineLoop(
            scheduler,
            runner or ScriptedRunner(),
            self.inbox,
            self._publish,
            TickingClock(),
            compile_grammar,
            measure_peaks or at_once,
            fault_in,
        )

    def _publish(self, message: FromEngine) -> None:
        self.sent.append(message)
        self.react(message)

    def run(self, *messages: ToEngine) -> list[FromEngine]:
        """Run until the loop, drained by the last message, ends."""
        for message in (*messages, Drain()):
            self.inbox.put(message)
        self.loop.run()
        return self.sent

    def ended(self) -> dict[str, FinishReason]:
        events = [event for message in self.sent for event in message.ended]  # type: ignore[union-attr]
        assert len({event.id for event in events}) == len(events), "two ends of one request"
        return {event.id: event.reason for event in events}


def test_a_request_runs_to_its_length_and_the_drained_loop_ends() -> None:
    harness = Harness()
    reports = [m for m in harness.run(submit("a", max_tokens=3)) if isinstance(m, StepReport)]
    assert [[id for id, _ in report.tokens] for report in reports] == [["a"]] * 3
    assert harness.ended() == {"a": FinishReason.LENGTH}
    assert isinstance(harness.sent[-1], Idle)


def test_a_ping_is_answered_by_the_loop_itself_and_is_no_work() -> None:
    kinds = [type(message).__name__ for message in Harness().run(Ping(), Ping())]
    assert kinds.count("Pong") == 2
    assert "StepReport" not in kinds


def test_an_id_that_is_live_already_is_ignored_and_the_first_has_its_one_end() -> None:
    harness = Harness()
    harness.run(submit("a", max_tokens=3), submit("a", max_tokens=1), submit("b", max_tokens=1))
    assert harness.ended() == {"a": FinishReason.LENGTH, "b": FinishReason.LENGTH}
    reports = [message for message in harness.sent if isinstance(message, StepReport)]
    assert [id for report in reports for id, _ in report.tokens].count("a") == 3


def test_an_idle_loop_measures_its_peaks_again_and_a_busy_one_does_not() -> None:
    harness = Harness()
    sent = harness.run(Remeasure(), submit("a"), Remeasure())
    kinds = [type(message).__name__ for message in sent]
    assert kinds.count("Measured") == 1
    assert kinds.index("Measured") < kinds.index("StepReport")
    (measured,) = [message for message in sent if isinstance(message, Measured)]
    assert measured.peaks == PEAKS


class Slices:
    """A measurement of `count` slices that notes what happens; `during(n)` runs in slice n."""

    def __init__(self, count: int, during: Callable[[int], None] = lambda n: None) -> None:
        self.count, self.during = count, during
        self.log: list[object] = []

    def __call__(self) -> Generator[None, None, Peaks]:
        try:
            for n in range(self.count):
                self.log.append(n)
                self.during(n)
                yield
        except GeneratorExit:
            self.log.append("dropped")
            raise
        return PEAKS


def test_a_request_that_comes_while_the_peaks_are_measured_is_taken_before_the_next_slice() -> None:
    def during(n: int) -> None:
        if n == 1:
            harness.inbox.put(submit("a", max_tokens=2))
        if n == 3:
            harness.inbox.put(Drain())

    slices = Slices(5, during)
    harness = Harness(measure_peaks=slices)
    harness.react = lambda message: slices.log.append(type(message).__name__)
    harness.inbox.put(Remeasure())
    harness.loop.run()
    idle = "Idle"
    assert slices.log == [
        *(idle, idle, 0, 1, "StepReport", "StepReport"),
        *(idle, 2, 3, "dropped", idle),
    ]


def test_a_measurement_goes_on_where_work_interrupted_it_and_ends_with_its_peaks() -> None:
    def during(n: int) -> None:
        if n == 1:
            harness.inbox.put(submit("a", max_tokens=1))

    def react(message: FromEngine) -> None:
        if isinstance(message, Measured):
            harness.inbox.put(Drain())

    slices = Slices(4, during)
    harness = Harness(measure_peaks=slices)
    harness.react = react
    harness.inbox.put(Remeasure())
    harness.loop.run()
    assert slices.log == [0, 1, 2, 3]
    kinds = [type(message).__name__ for message in harness.sent]
    assert kinds.index("StepReport") < kinds.index("Measured")


def test_the_engine_says_from_when_to_when_it_measured() -> None:
    def react(message: FromEngine) -> None:
        if isinstance(message, Measured):
            harness.inbox.put(submit("a", max_tokens=1))
            harness.inbox.put(Drain())

    harness = Harness(measure_peaks=Slices(3))
    harness.react = react
    harness.inbox.put(Remeasure())
    harness.loop.run()
    idles = [message for message in harness.sent if isinstance(message, Idle)]
    assert [idle.measuring for idle in idles[:3]] == [False, True, False]
    assert idles[0].start_ns < idles[1].start_ns < idles[2].start_ns


def test_nothing_is_measured_while_a_request_waits_for_its_grammar() -> None:
    released = threading.Event()

    def compile_grammar(grammar: Grammar) -> None:
        assert released.wait(PATIENCE_S)

    def during(n: int) -> None:
        if n == 0:
            harness.inbox.put(
                replace(submit("a", max_tokens=1), grammar=Grammar(GrammarKind.REGEX, "a"))
            )
        if n == 1:
            harness.inbox.put(Drain())

    def react(message: FromEngine) -> None:
        slices.log.append(type(message).__name__)
        if isinstance(message, Idle) and not message.measuring and 0 in slices.log:
            released.set()

    slices = Slices(3, during)
    harness = Harness(compile_grammar=compile_grammar, measure_peaks=slices)  # type: ignore[arg-type]
    harness.react = react
    harness.inbox.put(Remeasure())
    harness.loop.run()
    step, second = slices.log.index("StepReport"), slices.log.index(1)
    assert slices.log.index(0) < step < second


def test_a_measurement_that_finds_no_time_to_end_is_dropped() -> None:
    slices = Slices(3, lambda n: None)
    measurement = IdleMeasurement(slices)
    measurement.ask(now_ns=0)
    measurement.run_slice()
    measurement.worked(now_ns=30 * 10**9)
    assert measurement.under_way
    measurement.worked(now_ns=61 * 10**9)
    assert not measurement.under_way
    assert slices.log == [0, "dropped"]


def test_records_tile_the_time_and_segments_fill_each_record() -> None:
    harness = Harness()
    work = iter([submit("a"), submit("b"), Drain()])

    def feed(message: FromEngine) -> None:
        if isinstance(message, Idle) and (more := next(work, None)):
            harness.inbox.put(more)

    harness.react = feed
    harness.loop.run()
    end_ns = None  # of the record before, None after an idle span
    for message in harness.sent:
        if isinstance(message, StepReport):
            assert end_ns in (None, message.start_ns)
            end_ns = message.end_ns
            assert sum(msgspec.structs.astuple(message.segments)) == end_ns - message.start_ns
        if isinstance(message, Idle):
            assert end_ns is None or message.start_ns == end_ns + message.publish_ns
            end_ns = None
    assert len([m for m in harness.sent if isinstance(m, StepReport)]) == 4


def test_a_step_that_raises_fails_its_requests_and_the_loop_goes_on() -> None:
    class BreaksOnce(ScriptedRunner):
        def execute(self, plan: StepPlan) -> StepResult:
            if not self.plans:
                self.plans.append(plan)
                raise ZeroDivisionError("boom")
            return super().execute(plan)

    harness = Harness(BreaksOnce())

    def feed(message: FromEngine) -> None:
        if isinstance(message, Fault):
            harness.inbox.put(submit("b"))
            harness.inbox.put(Drain())

    harness.react = feed
    harness.inbox.put(submit("a"))
    harness.loop.run()
    (fault,) = [m for m in harness.sent if isinstance(m, Fault)]
    assert (fault.kind, fault.message) == ("ZeroDivisionError", "ZeroDivisionError: boom")
    assert harness.ended() == {"a": FinishReason.FAILED, "b": FinishReason.LENGTH}


def test_an_abort_before_the_first_step_is_told_without_a_step() -> None:
    harness = Harness()
    sent = harness.run(submit("a"), Abort(RequestId("a")), Abort(RequestId("a")))
    assert harness.ended() == {"a": FinishReason.ABORTED}
    assert not [m for m in sent if isinstance(m, StepReport)]


def test_a_stop_found_by_the_server_ends_the_request_as_stopped() -> None:
    harness = Harness()

    def feed(message: FromEngine) -> None:
        if isinstance(message, StepReport) and message.index == 2:
            harness.inbox.put(Finish(RequestId("a"), 1, FinishReason.STOP))

    harness.react = feed
    sent = harness.run(submit("a", max_tokens=50))
    assert harness.ended() == {"a": FinishReason.STOP}
    assert len([m for m in sent if isinstance(m, StepReport)]) == 2


def test_a_request_larger_than_the_pool_fails_alone() -> None:
    harness = Harness(num_blocks=2)
    harness.run(submit("big", prompt=8, max_tokens=2), submit("small"))
    assert harness.ended() == {"big": FinishReason.FAILED, "small": FinishReason.LENGTH}


def test_the_loop_ends_when_the_server_goes_away_with_work_left() -> None:
    harness = Harness()

    def feed(message: FromEngine) -> None:
        if isinstance(message, StepReport) and message.index == 2:
            harness.inbox.put(CLOSED)

    harness.react = feed
    harness.inbox.put(submit("a", max_tokens=50))
    harness.loop.run()
    assert [type(message) for message in harness.sent] == [Idle, StepReport, StepReport]


@pytest.mark.parametrize("requests", [1, 5])
def test_an_idle_engine_reports_an_empty_pool(requests: int) -> None:
    harness = Harness()
    harness.run(*[submit(f"r{i}") for i in range(requests)])
    idle = harness.sent[-1]
    assert isinstance(idle, Idle)
    assert (idle.pool.referenced_blocks, idle.pool.free_blocks + idle.pool.cached_blocks) == (0, 64)
    assert (idle.pool.running, idle.pool.waiting) == (0, {})


# ── grammars ──────────────────────────────────────────────────────────────────────────────────


class Compiler:
    """Compiles nothing until `open` is set; then gives what `rule` gives."""

    def __init__(self, rule: Callable[[Grammar], Any] = lambda grammar: None) -> None:
        self.rule, self.open = rule, threading.Event()

    def __call__(self, grammar: Grammar) -> Any:
        assert self.open.wait(PATIENCE_S), "never opened"
        return self.rule(grammar)


def refused(grammar: Grammar) -> None:
    raise InvalidValue(f"no such {grammar.kind}")


def broken(grammar: Grammar) -> None:
    raise ZeroDivisionError("boom")


def with_grammar(name: str, max_tokens: int = 2) -> Submit:
    return replace(submit(name, max_tokens=max_tokens), grammar=Grammar(GrammarKind.REGEX, "a"))


def test_a_request_waits_for_its_grammar_and_holds_up_nobody() -> None:
    compiler = Compiler()
    harness = Harness(compile_grammar=compiler)

    def feed(message: FromEngine) -> None:
        if any(event.id == "plain" for event in message.ended):  # type: ignore[union-attr]
            compiler.open.set()

    harness.react = feed
    sent = harness.run(with_grammar("g"), submit("plain", max_tokens=4))
    assert harness.ended() == {"plain": FinishReason.LENGTH, "g": FinishReason.LENGTH}
    waiting = [m.pool.waiting.get(Obstacle.GRAMMAR, 0) for m in sent if isinstance(m, StepReport)]
    assert waiting == [1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("rule", "said"), [(refused, "no such regex"), (broken, "ZeroDivisionError: boom")]
)
def test_a_grammar_that_cannot_be_compiled_ends_its_request_alone(
    rule: Callable[[Grammar], None], said: str
) -> None:
    compiler = Compiler(rule)
    compiler.open.set()
    harness = Harness(compile_grammar=compiler)
    sent = harness.run(with_grammar("g"), submit("plain"))
    assert harness.ended() == {"plain": FinishReason.LENGTH, "g": FinishReason.FAILED}
    ends = {event.id: event for message in sent for event in message.ended}  # type: ignore[union-attr]
    assert ends[RequestId("g")].message == said


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Abort(RequestId("g")), FinishReason.ABORTED),
        (Finish(RequestId("g"), 0, FinishReason.STOP), FinishReason.STOP),
    ],
)
def test_a_request_can_be_ended_while_its_grammar_is_compiled(
    message: ToEngine, reason: FinishReason
) -> None:
    compiler = Compiler()
    harness = Harness(compile_grammar=compiler)
    sent = harness.run(with_grammar("g"), message)
    assert harness.ended() == {"g": reason}
    assert not [m for m in sent if isinstance(m, StepReport)]
    compiler.open.set()


def test_a_grammar_compiled_for_a_request_that_is_gone_is_dropped() -> None:
    compiler = Compiler()
    harness = Harness(compile_grammar=compiler)

    def feed(message: FromEngine) -> None:
        if any(event.id == "g" for event in message.ended):  # type: ignore[union-attr]
            compiler.open.set()

    harness.react = feed
    harness.run(with_grammar("g"), Abort(RequestId("g")), with_grammar("next"))
    assert harness.ended() == {"g": FinishReason.ABORTED, "next": FinishReason.LENGTH}


def test_an_output_with_a_grammar_ends_where_its_matcher_says_so() -> None:
    class Ends:
        end_token_ids = frozenset({7})

    compiler = Compiler(lambda grammar: Ends())
    compiler.open.set()
    harness = Harness(ScriptedRunner(rule=lambda request: 7), compile_grammar=compiler)
    harness.run(with_grammar("g", max_tokens=9), submit("plain", max_tokens=9))
    assert harness.ended() == {"g": FinishReason.STOP, "plain": FinishReason.LENGTH}


def test_an_engine_without_grammars_refuses_them() -> None:
    harness = Harness()
    harness.run(with_grammar("g"))
    assert harness.ended() == {"g": FinishReason.FAILED}
