"""The client against a scripted engine: tokens, ends, and what happens when the engine is gone."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core.errors import (
    EngineDead,
    GenerationFailed,
    ModelError,
    Overloaded,
    SettingsError,
)
from core.machine import Peaks
from core.request import FinishReason, Request, RequestId, SamplingParams
from core.settings import EngineSettings
from core.step import StepPlan, StepResult
from core.wire import (
    Abort,
    Fault,
    Finish,
    Idle,
    StepReport,
    Submit,
    ToEngine,
)
from server.engines.client import EngineClient
from tests.fakes import ScriptedRunner
from tests.fakes_engine import (
    EOS,
    NUM_BLOCKS,
    GatedRunner,
    ScriptedEngine,
    recite,
    refusal,
    write_model_dir,
)
from tests.fakes_listener import FakeListener
from tests.patience import PATIENCE_S


class Ledger:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.reports: list[StepReport] = []
        self.faults: list[Fault] = []
        self.idle = asyncio.Event()
        self.doubts = False
        self.peaks: list[Peaks] = []
        self.measured = asyncio.Event()
        self.finishes: list[tuple[RequestId, int, FinishReason]] = []

    def on_report(self, report: StepReport) -> None:
        self.idle.clear()
        self.reports.append(report)

    def on_idle(self, idle: Idle) -> None:
        self.idle.set()

    def on_fault(self, fault: Fault) -> None:
        self.faults.append(fault)

    def wants_peaks(self) -> bool:
        wants, self.doubts = self.doubts, False
        return wants

    def on_peaks(self, peaks: Peaks) -> None:
        self.peaks.append(peaks)
        self.measured.set()

    def on_finish_sent(self, id: RequestId, n_tokens: int, reason: FinishReason) -> None:
        self.finishes.append((id, n_tokens, reason))


class Session:
    """A client, its engine and its books, for the length of one test."""

    def __init__(
        self,
        folder: Path,
        runner: ScriptedRunner | None = None,
        refuse: Fault | None = None,
        queue_timeout_s: float = math.inf,
    ) -> None:
        self.folder, self.refuse, self.queue_timeout_s = folder, refuse, queue_timeout_s
        self.runner = runner or ScriptedRunner(rule=recite)
        self.ledger, self.requests = Ledger(), list[Submit]()

    async def __aenter__(self) -> Session:
        ours, theirs = socket.socketpair()
        self.engine = ScriptedEngine(theirs, self.folder, self.runner, self.refuse)
        self.client = await EngineClient.connect(ours, self.queue_timeout_s)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.client.close()
        if isinstance(self.runner, GatedRunner):
            self.runner.open()
        await self.engine.wait()

    async def start(self) -> asyncio.Task[None]:
        await self.client.start(EngineSettings())
        return asyncio.create_task(self.client.run(self.ledger))

    async def engine_has(self, message: ToEngine) -> None:
        """Wait for a message to cross; the list is another thread's, so there is no event."""
        while message not in self.engine.received:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    def submit(
        self,
        name: str,
        max_tokens: int = 4,
        prompt: bytes = b"hi",
        then: Callable[[], int | None] = lambda: None,
    ) -> FakeListener:
        request = Submit(RequestId(name), tuple(prompt), max_tokens, SamplingParams(), (EOS,))
        self.requests.append(request)
        listener = FakeListener(then)
        self.client.submit(request, listener)
        return listener


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, PATIENCE_S))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model_dir(tmp_path)


def test_tokens_come_in_order_and_then_one_end(folder: Path) -> None:
    async def test() -> None:
        async with Session(folder) as session:
            await session.start()
            first, second = session.submit("a", 3), session.submit("b", 9, b"!")
            assert await first.end() is FinishReason.LENGTH
            assert await second.end() is FinishReason.STOP
            assert bytes(first.tokens) == b"Die"
            assert first.starts == second.starts == [0]
            assert second.tokens == [*b"Die G", EOS]
            assert session.client.live == 0

    run(test())


def test_a_token_is_heard_before_the_books_see_its_step(folder: Path) -> None:
    async def test() -> None:
        async with Session(folder) as session:
            await session.start()
            await session.ledger.idle.wait()
            session.ledger.idle.clear()
            seen: list[int] = []
            session.submit("a", 3, b"x", lambda: seen.append(len(session.ledger.reports)))
            await session.ledger.idle.wait()
            assert seen == [0, 1, 2]

    run(test())


def test_an_observer_in_doubt_has_the_idle_engine_measured_again(folder: Path) -> None:
    async def test() -> None:
        async with Session(folder) as session:
            await session.start()
            await session.ledger.idle.wait()
            session.ledger.doubts = True
            assert await session.submit("a").end() is FinishReason.LENGTH
            await session.ledger.measured.wait()
            assert len(session.ledger.peaks) == 1

    run(test())


def test_a_failure_of_one_request_leaves_the_others_alone(folder: Path) -> None:
    def rule(request: Request) -> int:
        if request.prompt_ids[0] == 0 and request.output_ids:
            raise RuntimeError("a bug")
        return 65

    async def test() -> None:
        async with Session(folder, ScriptedRunner(rule=rule)) as session:
            await session.start()
            assert isinstance(await session.submit("a", 3, b"\0").end(), GenerationFailed)
            assert await session.submit("b").end() is FinishReason.LENGTH
            assert [fault.kind for fault in session.ledger.faults] == ["RuntimeError"]

    run(test())


def test_a_bug_in_one_requests_text_ends_that_request_alone(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def raises() -> None:
        raise RuntimeError("a bug in the text")

    async def test() -> None:
        async with Session(folder) as session:
            await session.start()
            broken, beside = session.submit("a", 100, then=raises), session.submit("b")
            assert isinstance(await broken.end(), GenerationFailed)
            assert await beside.end() is FinishReason.LENGTH
            await session.engine_has(Abort(RequestId("a")))
            await session.ledger.idle.wait()
            assert len(broken.tokens) == 1
            assert session.engine.pool.referenced_blocks == 0

    run(test())
    assert "a bug in the text" in caplog.text


def test_an_aborted_request_gives_its_blocks_back_and_is_heard_no_more(folder: Path) -> None:
    async def test() -> None:
        gated = GatedRunner()
        async with Session(folder, gated) as session:
            await session.start()
            heard = session.submit("a", 100)
            gated.gate.release()
            await heard.news()
            session.client.abort(RequestId("a"))
            session.client.abort(RequestId("never"))
            await session.engine_has(Abort(RequestId("a")))
            gated.gate.release(2)  # the step in flight, and one more at most
            await session.ledger.idle.wait()
            assert session.engine.pool.free_blocks == NUM_BLOCKS
            assert (len(heard.tokens), heard.ends) == (1, [])
            assert Abort(RequestId("never")) not in session.engine.received

    run(test())


def test_who_is_not_admitted_in_time_is_refused_and_the_engine_is_told(folder: Path) -> None:
    async def test() -> None:
        gated = GatedRunner()
        async with Session(folder, gated, queue_timeout_s=0.0) as session:
            await session.start()
            long = session.submit("long", 2, b"x" * 200)  # takes the whole of the first step
            late = session.submit("late", 2)
            await session.engine_has(session.requests[-1])
            gated.gate.release()
            error = await late.end()
            assert isinstance(error, Overloaded)
            assert error.retry_after_s is not None
            await session.engine_has(Finish(RequestId("late"), 0, FinishReason.REFUSED))
            assert session.ledger.finishes == [(RequestId("late"), 0, FinishReason.REFUSED)]
            gated.open()
            assert await long.end() is FinishReason.LENGTH

    run(test())


def test_who_waits_in_vain_while_steps_fail_is_refused_too(folder: Path) -> None:
    class Failing(ScriptedRunner):
        def execute(self, plan: StepPlan) -> StepResult:
            raise RuntimeError("a bug")

    async def test() -> None:
        async with Session(folder, Failing(), queue_timeout_s=0.0) as session:
            await session.start()
            failing = session.submit("failing", 2, b"x" * 200)  # takes the whole of the first step
            late = session.submit("late", 2)
            assert isinstance(await late.end(), Overloaded)
            assert isinstance(await failing.end(), GenerationFailed)

    run(test())


def test_a_finish_ends_the_stream_by_the_engines_word(folder: Path) -> None:
    async def test() -> None:
        gated = GatedRunner()
        async with Session(folder, gated) as session:
            await session.start()
            heard = session.submit("a", 100)
            gated.gate.release()
            await heard.news()
            message = Finish(RequestId("a"), 1, FinishReason.STOP)
            session.client.finish(message.id, message.n_tokens, message.reason)
            assert session.ledger.finishes == [(message.id, message.n_tokens, message.reason)]
            await session.engine_has(message)
            gated.open()
            assert await heard.end() is FinishReason.STOP

    run(test())


def test_a_text_that_ends_in_a_token_is_finished_with_what_was_kept(folder: Path) -> None:
    async def test() -> None:
        gated = GatedRunner()
        async with Session(folder, gated) as session:
            await session.start()
            heard = session.submit("a", 100, then=lambda: 1)
            gated.gate.release()
            await heard.news()
            assert session.ledger.finishes == [(RequestId("a"), 1, FinishReason.STOP)]
            await session.engine_has(Finish(RequestId("a"), 1, FinishReason.STOP))
            gated.open()
            assert await heard.end() is FinishReason.STOP

    run(test())


def test_the_engines_death_ends_every_live_stream(folder: Path) -> None:
    async def test() -> None:
        async with Session(folder, GatedRunner()) as session:
            running = await session.start()
            streams = [session.submit(name, 100) for name in "abc"]
            session.engine.kill()
            for heard in streams:
                assert isinstance(await heard.end(), EngineDead)
            await running
            with pytest.raises(EngineDead):
                session.submit("late")

    run(test())


def test_what_is_no_message_is_the_engines_death(folder: Path) -> None:
    async def test() -> None:
        ours, theirs = socket.socketpair()
        client = await EngineClient.connect(ours)
        theirs.sendall(b"\x00\x00\x00\x03abc")
        with pytest.raises(EngineDead):
            await client.start(EngineSettings())
        theirs.sendall(b"\xff\xff\xff\xff")
        await client.run(Ledger())
        assert client.closed.is_set()
        theirs.close()

    run(test())


def test_a_bug_in_the_books_costs_no_stream_its_tokens(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Ledger):
        def on_report(self, report: StepReport) -> None:
            raise RuntimeError("a bug in the books")

        def on_finish_sent(self, id: RequestId, n_tokens: int, reason: FinishReason) -> None:
            raise RuntimeError("another")

    async def test() -> None:
        async with Session(folder) as session:
            session.ledger = Broken()
            await session.start()
            finish = partial(session.client.finish, RequestId("a"), 1, FinishReason.STOP)
            finished, beside = session.submit("a", then=finish), session.submit("b")
            assert isinstance(await finished.end(), FinishReason)
            assert await beside.end() is FinishReason.LENGTH
            assert bytes(beside.tokens) == b"Die "

    run(test())
    for words in ("a bug in the books", "another", "on a StepReport", "on a Finish"):
        assert words in caplog.text


@pytest.mark.parametrize(("kind", "error"), [("model", ModelError), ("settings", SettingsError)])
def test_a_refused_start_is_told_in_the_engines_words(
    folder: Path, kind: str, error: type[Exception]
) -> None:
    async def test() -> None:
        async with Session(folder, refuse=refusal(kind, "no such model")) as session:
            with pytest.raises(error, match="no such model"):
                await session.client.start(EngineSettings())

    run(test())


def test_silence_counts_only_while_work_is_outstanding(folder: Path) -> None:
    async def test() -> None:
        gated = GatedRunner()
        async with Session(folder, gated) as session:
            await session.start()
            await session.ledger.idle.wait()
            assert session.client.silent_s == 0.0
            heard = session.submit("a", 1)
            await asyncio.sleep(0.01)
            assert session.client.silent_s > 0.0
            gated.open()
            await heard.end()
            await session.ledger.idle.wait()
            assert session.client.silent_s == 0.0

    run(test())
