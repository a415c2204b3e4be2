"""An answer over a client whose tokens a test deals out by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from core.errors import EngineDead, GenerationFailed, ServiceError
from core.request import DEFAULT_TENANT, FinishReason, RequestId
from core.settings import HttpSettings, TelemetrySettings
from core.wire import Submit, TokenLogprobs
from server.answers.answer import Answer
from server.answers.bodies import CachedTokens, Usage
from server.answers.choice import Delta
from server.answers.served import Served
from server.contract.validation import Validator
from server.engines.client import EngineClient, Listener
from server.limits.off_loop import OffLoop
from server.text.prompts import Prompted, Prompts
from server.text.tokenizer import ModelTokenizer
from telemetry.telemetry import Telemetry
from tests.fakes_engine import ready, write_model_dir
from tests.patience import PATIENCE_S


class Dealer:
    """Stands for the engine's client: deals tokens to listeners, and keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []  # in order, the books' part too
        self.finished: list[tuple[str, int]] = []
        self.aborted: list[str] = []
        self._listeners: dict[str, Listener] = {}

    def submit(self, request: Submit, listener: Listener) -> None:
        self.told.append(f"submit {request.id[-1]}")
        self._listeners[request.id] = listener

    def abort(self, id: RequestId) -> None:
        self.aborted.append(id)

    def deal(self, id: str, text: str) -> None:
        for byte in text.encode():
            if (kept := self._listeners[id].token(byte, None)) is not None:
                self.finished.append((id, kept))

    def end(self, id: str, reason: FinishReason = FinishReason.LENGTH) -> None:
        self._listeners[id].ended(reason)

    def fail(self, id: str, error: ServiceError) -> None:
        self._listeners[id].failed(error)


class ToldTelemetry(Telemetry):
    """Keeps the order in which it is told."""

    def __init__(self, told: list[str]) -> None:
        super().__init__("m", TelemetrySettings())
        self._told = told

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
        self._told.append(f"book {id[-1]}")
        told = {"shares_prompt": shares_prompt, "has_grammar": has_grammar}
        super().on_received(id, prompt_tokens, tenant, received_ns=received_ns, **told)


class CountingOffLoop(OffLoop):
    """Says how often work left the event loop; each is run there and then."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self, work: Callable[..., Any], *given: object) -> Any:
        self.count += 1
        return work(*given)


@dataclass
class Table:
    """An answer, its dealer, and its choices' ids."""

    dealer: Dealer
    answer: Answer

    @property
    def ids(self) -> list[RequestId]:
        return self.answer.ids


Deal = Callable[..., Table]


@pytest.fixture
def table(tmp_path: Path) -> Deal:
    """Open an answer with choices of a prompt of one token."""
    ready_message = ready(write_model_dir(tmp_path))

    def open_one(
        choices: int = 1,
        stops: tuple[str, ...] = (),
        max_tokens: int = 50,
        telemetry: Telemetry | None = None,
    ) -> Table:
        dealer = Dealer()
        tokenizer = ModelTokenizer.load(tmp_path, ready_message.model, PATIENCE_S)
        served = Served("m", 0, ready_message, tokenizer, telemetry or ToldTelemetry(dealer.told))
        body = {"prompt": [1], "n": choices, "stop": stops}
        call = Validator(HttpSettings()).completion(json.dumps(body).encode())
        answer = Answer(
            call, Prompts((Prompted((1,), max_tokens),), ()), DEFAULT_TENANT, served, lambda: 1
        )
        answer.submit(cast(EngineClient, dealer), received_ns=0)
        return Table(dealer, answer)

    return open_one


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, PATIENCE_S))


async def finish(answer: Answer) -> None:
    async for _ in answer.deltas():
        pass


def test_every_choice_is_submitted_before_the_books_are_told(table: Deal) -> None:
    assert table(choices=2).dealer.told == ["submit 0", "submit 1", "book 0", "book 1"]


def test_a_bug_in_the_books_costs_no_request_its_start(
    table: Deal, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Telemetry):
        def on_received(self, *_: object, **__: object) -> None:
            raise RuntimeError("a bug in the books")

    async def test() -> None:
        dealt = table(telemetry=Broken("m", TelemetrySettings()))
        dealt.dealer.deal(dealt.ids[0], "a")
        dealt.dealer.end(dealt.ids[0])
        await finish(dealt.answer)
        assert dealt.answer.choices[0].content == "a"

    run(test())
    assert "a bug in the books" in caplog.text


def test_what_a_slow_reader_has_not_taken_comes_as_one_delta(table: Deal) -> None:
    async def test() -> None:
        dealt = table()
        deltas = dealt.answer.deltas()
        dealt.dealer.deal(dealt.ids[0], "a")
        assert await anext(deltas) == Delta(0, "a", (97,))
        dealt.dealer.deal(dealt.ids[0], "bcdef")
        dealt.dealer.end(dealt.ids[0])
        assert await anext(deltas) == Delta(0, "bcdef", tuple(b"bcdef"))
        assert await anext(deltas) == Delta(0, "", (), "length")
        assert [delta async for delta in deltas] == []

    run(test())


def test_an_end_that_comes_while_the_reader_is_busy_is_not_lost(table: Deal) -> None:
    async def test() -> None:
        dealt = table(choices=2)
        deltas = dealt.answer.deltas()
        dealt.dealer.deal(dealt.ids[0], "a")
        dealt.dealer.deal(dealt.ids[1], "b")
        assert (await anext(deltas)).index == 0
        dealt.dealer.end(dealt.ids[0])
        assert (await anext(deltas)).index == 1
        dealt.dealer.end(dealt.ids[1])
        ends = [(delta.index, delta.finish_reason) async for delta in deltas]
        assert ends == [(0, "length"), (1, "length")]

    run(test())


def test_a_stop_is_told_as_its_token_arrives_and_what_follows_is_nobodys(table: Deal) -> None:
    async def test() -> None:
        dealt = table(stops=("lo",))
        dealt.dealer.deal(dealt.ids[0], "hello")
        assert dealt.dealer.finished == [(dealt.ids[0], 5)]
        dealt.dealer.deal(dealt.ids[0], "more")
        dealt.dealer.end(dealt.ids[0], FinishReason.STOP)
        body = await dealt.answer.whole(CountingOffLoop())
        (choice,) = dealt.answer.choices
        assert (choice.content, choice.finish_reason) == ("hel", "stop")
        assert body.usage == Usage(1, 5, 6, CachedTokens(0))

    run(test())


@pytest.mark.parametrize(("scored", "left"), [(256, 0), (257, 1)])
def test_an_answer_with_many_logprobs_is_written_off_the_event_loop(
    table: Deal, scored: int, left: int
) -> None:
    async def test() -> None:
        dealt, off_loop = table(), CountingOffLoop()
        dealt.dealer.deal(dealt.ids[0], "a")
        for position in range(scored):
            scores = TokenLogprobs(dealt.ids[0], position, 1, -1.0, ())
            dealt.answer.choices[0].prompt_scored(scores)
        dealt.dealer.end(dealt.ids[0])
        body = await dealt.answer.whole(off_loop)
        assert body.usage == Usage(1, 1, 2, CachedTokens(0))
        assert off_loop.count == left

    run(test())


def test_a_stop_in_the_last_allowed_token_is_a_stop(table: Deal) -> None:
    async def test() -> None:
        dealt = table(stops=("b",), max_tokens=2)
        dealt.dealer.deal(dealt.ids[0], "ab")
        dealt.dealer.end(dealt.ids[0], FinishReason.LENGTH)
        await finish(dealt.answer)
        assert dealt.answer.choices[0].finish_reason == "stop"

    run(test())


def test_tokens_beyond_max_tokens_are_not_the_callers(table: Deal) -> None:
    async def test() -> None:
        dealt = table(max_tokens=0)
        dealt.dealer.deal(dealt.ids[0], "a")
        dealt.dealer.end(dealt.ids[0])
        await finish(dealt.answer)
        assert dealt.answer.choices[0].content == ""

    run(test())


def test_one_failed_choice_fails_the_whole(table: Deal) -> None:
    async def test() -> None:
        dealt = table(choices=2)
        dealt.dealer.deal(dealt.ids[0], "a")
        dealt.dealer.fail(dealt.ids[1], GenerationFailed("NaN logits"))
        with pytest.raises(GenerationFailed, match="NaN logits"):
            await finish(dealt.answer)
        dealt.answer.close()
        assert dealt.dealer.aborted == dealt.ids

    run(test())


def test_a_dead_engine_is_raised_to_the_reader(table: Deal) -> None:
    async def test() -> None:
        dealt = table()
        dealt.dealer.fail(dealt.ids[0], EngineDead("gone"))
        with pytest.raises(EngineDead):
            await finish(dealt.answer)

    run(test())
