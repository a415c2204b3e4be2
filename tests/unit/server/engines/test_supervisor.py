"""The supervisor over scripted engines: deaths, restarts, refusals, drains."""

from __future__ import annotations

import asyncio
import math
import re
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from core.errors import EngineDead, EngineStarting, ModelError, ShuttingDown
from core.machine import Peaks
from core.request import FinishReason, RequestId, SamplingParams
from core.settings import EngineSettings
from core.wire import Fault, Idle, Ping, Ready, StepReport, Submit
from engine.loop import EngineLoop
from server.engines import supervisor as module
from server.engines.supervisor import Supervisor, cause_of
from tests.fakes_engine import GatedRunner, ScriptedLauncher, refusal, write_model_dir
from tests.fakes_listener import FakeListener
from tests.patience import PATIENCE_S


class Books:
    def __init__(self) -> None:
        self.starts = self.deaths = 0

    def ready(self, _: Ready) -> Books:
        self.starts += 1
        return self

    def on_report(self, report: StepReport) -> None: ...
    def on_idle(self, idle: Idle) -> None: ...
    def on_fault(self, fault: Fault) -> None: ...
    def on_peaks(self, peaks: Peaks) -> None: ...
    def on_finish_sent(self, id: RequestId, n_tokens: int, reason: FinishReason) -> None: ...

    def wants_peaks(self) -> bool:
        return False

    def on_engine_down(self) -> None:
        self.deaths += 1


class Stage:
    """A supervisor with its launcher and its books."""

    def __init__(self, folder: Path, runner: Any = None, refuse: Fault | None = None) -> None:
        self.launcher = ScriptedLauncher(folder, runner, refuse)
        self.books = Books()
        self.supervisor = Supervisor(EngineSettings(), self.books.ready, self.launcher, math.inf)
        self.running: asyncio.Task[None]

    async def __aenter__(self) -> Stage:
        self.running = asyncio.create_task(self.supervisor.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        for engine in self.launcher.engines:
            await engine.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert not self.running.done()
            await asyncio.sleep(0.001)

    def submit(self, name: str, max_tokens: int) -> FakeListener:
        listener = FakeListener()
        request = Submit(RequestId(name), (1,), max_tokens, SamplingParams(), ())
        self.supervisor.client().submit(request, listener)
        return listener


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, PATIENCE_S))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model_dir(tmp_path)


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_BACKOFF_S", 0.001)


def test_a_dead_engine_is_started_again(folder: Path) -> None:
    async def test() -> None:
        async with Stage(folder, GatedRunner()) as stage:
            with pytest.raises(EngineStarting, match="starting"):
                stage.supervisor.client()
            await stage.until(lambda: stage.supervisor.ready)
            heard = stage.submit("a", 100)
            stage.launcher.engine.kill()
            assert isinstance(await heard.end(), EngineDead)
            assert not stage.supervisor.healthy
            with pytest.raises(EngineDead, match="started again"):
                stage.supervisor.client()
            await stage.until(lambda: stage.supervisor.ready)
            assert (stage.books.starts, stage.books.deaths) == (2, 1)
            heard = stage.submit("b", 1)
            assert await heard.end() is FinishReason.LENGTH

    run(test())


def test_the_return_of_an_engine_is_logged_with_how_long_it_took(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "floorline.server")

    async def test() -> None:
        async with Stage(folder) as stage:
            await stage.until(lambda: stage.supervisor.ready)
            assert "ready" not in caplog.text
            killed_s = time.monotonic()
            stage.launcher.engine.kill()
            await stage.until(lambda: "ready again" in caplog.text)
            (line,) = [message for message in caplog.messages if "ready again" in message]
            found = re.fullmatch(r"the engine is ready again, (\d+\.\d) s after it was lost", line)
            assert found
            assert float(found[1]) <= time.monotonic() - killed_s + 0.1, "rounded, and no more"

    run(test())


def test_a_bug_in_the_books_of_a_death_costs_no_restart(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Books) -> None:
        raise RuntimeError("a bug in the books")

    monkeypatch.setattr(Books, "on_engine_down", broken)

    async def test() -> None:
        async with Stage(folder) as stage:
            await stage.until(lambda: stage.supervisor.ready)
            stage.launcher.engine.kill()
            await stage.until(lambda: stage.books.starts == 2 and stage.supervisor.ready)

    run(test())
    assert "a bug in the books" in caplog.text


def test_an_engine_that_keeps_dying_is_given_up(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with Stage(folder) as stage:
            for starts in range(1, module.MAX_FAILURES + 2):
                await stage.until(
                    lambda n=starts: stage.books.starts == n and stage.supervisor.ready
                )
                stage.launcher.engine.kill()
            with pytest.raises(EngineDead, match="giving up"):
                await stage.running

    run(test())
    assert "ended unexpectedly" in caplog.text


def test_an_engine_that_dies_before_it_was_ever_ready_is_not_tried_again() -> None:
    class Dead:
        async def wait(self) -> int:
            return 1

        def kill(self) -> None: ...

    launches = 0

    async def launch(sock: socket.socket) -> Dead:
        nonlocal launches
        launches += 1
        return Dead()

    async def test() -> None:
        with pytest.raises(EngineDead, match="before it was ready"):
            await Supervisor(EngineSettings(), Books().ready, launch, math.inf).run()

    run(test())
    assert launches == 1


def test_a_model_that_cannot_be_used_ends_the_supervisor(folder: Path) -> None:
    async def test() -> None:
        async with Stage(folder, refuse=refusal("model", "no such file")) as stage:
            with pytest.raises(ModelError, match="no such file"):
                await stage.running

    run(test())


def test_a_drain_lets_live_requests_finish_and_refuses_new_ones(folder: Path) -> None:
    async def test() -> None:
        gated = GatedRunner()
        async with Stage(folder, gated) as stage:
            await stage.until(lambda: stage.supervisor.ready)
            heard = stage.submit("a", 3)
            draining = asyncio.create_task(stage.supervisor.drain(10))
            await asyncio.sleep(0)
            with pytest.raises(ShuttingDown):
                stage.supervisor.client()
            assert stage.supervisor.healthy
            assert not stage.supervisor.ready
            gated.open()
            await draining
            await stage.running
            assert await heard.end() is FinishReason.LENGTH
            assert (stage.books.starts, stage.books.deaths) == (1, 0)

    run(test())


def test_a_drain_that_takes_too_long_ends_what_is_live(folder: Path) -> None:
    async def test() -> None:
        gated = GatedRunner()
        async with Stage(folder, gated) as stage:
            await stage.until(lambda: stage.supervisor.ready)
            heard = stage.submit("a", 100)
            await stage.supervisor.drain(0.01)
            assert isinstance(await heard.end(), ShuttingDown)
            gated.open()
            await stage.running

    run(test())


def test_a_drain_before_the_engine_is_up_is_done_at_once(folder: Path) -> None:
    async def test() -> None:
        async with Stage(folder) as stage:
            await stage.supervisor.drain(10)
            await stage.running

    run(test())


def test_an_engine_that_stands_still_is_refused_work_ended_and_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        gated = GatedRunner()
        monkeypatch.setattr(module, "STALL_S", 0.2)
        async with Stage(folder, gated) as stage:
            await stage.until(lambda: stage.supervisor.ready)
            heard = stage.submit("a", 1)
            await stage.until(lambda: not stage.supervisor.healthy)
            with pytest.raises(EngineDead):
                stage.supervisor.client()
            assert isinstance(await heard.end(), EngineDead)
            gated.open()
            await stage.until(lambda: stage.supervisor.ready)
            assert stage.books.starts == 2

    run(test())


def test_an_engine_that_freezes_while_it_has_no_work_is_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers, handle = False, EngineLoop._handle

    def deaf(loop: EngineLoop, message: Any) -> None:
        if answers or not isinstance(message, Ping):
            handle(loop, message)

    monkeypatch.setattr(EngineLoop, "_handle", deaf)
    monkeypatch.setattr(module, "STALL_S", 0.2)

    async def test() -> None:
        nonlocal answers
        async with Stage(folder) as stage:
            await stage.until(lambda: stage.supervisor.ready)
            await stage.until(lambda: not stage.supervisor.healthy)
            answers = True
            await stage.until(lambda: stage.books.starts == 2 and stage.supervisor.ready)

    run(test())
    assert "it said nothing for 0 s, and was killed by this server" in caplog.text


@pytest.mark.parametrize(
    ("status", "killed", "words"),
    [
        (0, False, "exit status 0"),
        (3, False, "exit status 3"),
        (-11, False, "SIGSEGV"),
        (-9, False, "SIGKILL, from outside: the system kills a process so where memory runs out"),
        (-9, True, "it did not exit, and was killed by this server"),
        (-64, False, "SIGRTMAX"),
        (-100, False, "signal 100"),
    ],
)
def test_the_log_says_why_an_engine_ended(status: int, killed: bool, words: str) -> None:
    assert words in cause_of(status, killed)


def test_an_end_without_delay_kills_the_engine_and_tells_its_streams(folder: Path) -> None:
    async def test() -> None:
        gated = GatedRunner()
        async with Stage(folder, gated) as stage:
            await stage.until(lambda: stage.supervisor.ready)
            heard = stage.submit("a", 100)
            stage.supervisor.end_now()
            assert isinstance(await heard.end(), ShuttingDown)
            await stage.running

    run(test())


def test_a_drain_that_is_cut_short_ends_what_is_live(folder: Path) -> None:
    async def test() -> None:
        gated = GatedRunner()
        async with Stage(folder, gated) as stage:
            await stage.until(lambda: stage.supervisor.ready)
            heard = stage.submit("a", 100)
            draining = asyncio.create_task(stage.supervisor.drain(60))
            await stage.until(lambda: stage.supervisor.draining)
            stage.supervisor.cut_short()
            await draining
            assert isinstance(await heard.end(), ShuttingDown)
            gated.open()
            await stage.running

    run(test())
