"""Aborts at every point of a request's life, in the middle of a step too; nothing here sleeps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from core.request import FinishReason, Request, RequestId, SamplingParams
from core.settings import SchedulerSettings
from core.step import StepPlan
from core.wire import Abort, Drain, Fault, Finish, FromEngine, StepReport, Submit
from engine.loop import EngineLoop
from kvcache.pool import BlockPool
from scheduler.scheduler import Scheduler
from tests.fakes_engine import GatedRunner
from tests.patience import PATIENCE_S

BLOCKS = 8


def seven(request: Request) -> int:
    return 7


def boom(request: Request) -> int:
    raise RuntimeError("boom")


class Engine:
    """The loop in a thread, held in each step by its runner's gate."""

    def __init__(self, raises: bool = False) -> None:
        self.runner = GatedRunner(boom if raises else seven)
        self.pool = BlockPool(BLOCKS, 4)
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        self.sent: list[FromEngine] = []
        limits = SchedulerSettings(max_num_seqs=2, max_num_batched_tokens=6)
        scheduler = Scheduler(self.pool, limits)
        loop = EngineLoop(scheduler, self.runner, self.inbox, self.sent.append)
        self._thread = threading.Thread(target=loop.run)

    def submit(self, name: str, prompt: int = 4, max_tokens: int = 3, salt: str = "") -> None:
        ids, greedy = tuple(range(prompt)), SamplingParams()
        id = RequestId(name)
        self.inbox.put(Submit(id, ids, max_tokens, greedy, (), cache_salt=salt or name))

    def abort(self, name: str) -> None:
        self.inbox.put(Abort(RequestId(name)))

    def start(self) -> StepPlan:
        self._thread.start()
        return self.runner.entered.get(timeout=PATIENCE_S)

    def next(self) -> StepPlan:
        """Let the step in flight end, and wait for the next to begin."""
        self.runner.gate.release()
        return self.runner.entered.get(timeout=PATIENCE_S)

    def finish(self) -> dict[str, FinishReason]:
        """Let everything run to its end; tell how each request ended, once each."""
        self.inbox.put(Drain())
        self.runner.gate.release(1_000)
        self._thread.join(timeout=PATIENCE_S)
        assert not self._thread.is_alive()
        ends = [end for message in self.sent for end in message.ended]  # type: ignore[union-attr]
        assert len({end.id for end in ends}) == len(ends), "two ends of one request"
        assert self.pool.referenced_blocks == 0
        return {end.id: end.reason for end in ends}


def named(plan: StepPlan) -> list[str]:
    return [piece.request.id for piece in plan.slices]


def in_decode(engine: Engine) -> None:
    engine.submit("r")
    engine.start()
    engine.next()


def in_its_last_step(engine: Engine) -> None:
    in_decode(engine)
    engine.next()


def in_a_chunk_of_its_prompt(engine: Engine) -> None:
    engine.submit("r", prompt=15)
    engine.start()


def in_the_queue(engine: Engine) -> None:
    engine.submit("first", prompt=6)
    engine.submit("r")
    assert named(engine.start()) == ["first"]


def behind_a_twin(engine: Engine) -> None:
    engine.submit("first", prompt=5, salt="same")
    engine.submit("r", prompt=5, salt="same")
    assert named(engine.start()) == ["first"]


def as_a_leader_of_a_twin(engine: Engine) -> None:
    engine.submit("r", prompt=5, salt="same")
    engine.submit("first", prompt=5, salt="same")
    assert named(engine.start()) == ["r"]


MOMENTS = (
    in_decode,
    in_its_last_step,
    in_a_chunk_of_its_prompt,
    in_the_queue,
    behind_a_twin,
    as_a_leader_of_a_twin,
)


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
def test_an_abort_in_the_middle_of_a_step(moment: Callable[[Engine], None]) -> None:
    engine = Engine()
    moment(engine)
    engine.abort("r")
    engine.abort("r")
    engine.abort("never")
    engine.submit("after")
    ends = engine.finish()
    assert ends.pop("r") is FinishReason.ABORTED
    assert set(ends.values()) == {FinishReason.LENGTH}
    tokens = [id for m in engine.sent if isinstance(m, StepReport) for id, _ in m.tokens]
    assert tokens.count("after") == 3
    assert tokens.count("r") <= 3


def test_an_abort_in_the_middle_of_a_step_frees_the_blocks_before_the_next() -> None:
    engine = Engine()
    engine.submit("big", prompt=6, max_tokens=27)
    engine.submit("waits", prompt=6, max_tokens=27)
    engine.start()
    engine.abort("big")
    assert named(engine.next()) == ["waits"]
    assert engine.pool.referenced_blocks == 2
    engine.abort("waits")
    assert engine.finish() == dict.fromkeys(("big", "waits"), FinishReason.ABORTED)


def test_a_stop_found_steps_ago_in_the_middle_of_a_step_ends_its_request_alone() -> None:
    """Its step runs a token that the end drops."""
    engine = Engine()
    engine.submit("r", max_tokens=9)
    engine.submit("other", prompt=2, max_tokens=4)
    engine.start()
    engine.next()
    engine.next()
    engine.inbox.put(Finish(RequestId("r"), 1, FinishReason.STOP))
    assert named(engine.next()) == ["other"]
    assert engine.finish() == {"r": FinishReason.STOP, "other": FinishReason.LENGTH}


def test_an_abort_in_the_middle_of_a_step_that_raises_is_an_abort() -> None:
    engine = Engine(raises=True)
    engine.submit("r")
    engine.submit("other")
    assert named(engine.start()) == ["r", "other"]
    engine.abort("r")
    assert engine.finish() == {"r": FinishReason.ABORTED, "other": FinishReason.FAILED}
    (fault,) = [m for m in engine.sent if isinstance(m, Fault)]
    assert {end.id for end in fault.ended} == {"r", "other"}
