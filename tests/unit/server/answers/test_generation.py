"""Choices over a client whose tokens a test deals out by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from core.errors import EngineDead, GenerationFailed
from core.request import FinishReason, RequestId, SamplingParams
from core.wire import Ended, Submit
from server.answers.choice import ChoicePlan, Delta
from server.answers.generation import Generation
from server.engines.client import EngineClient, OnToken, RequestStream
from server.text.detokenizer import Detokenizer
from tests.patience import PATIENCE_S

BYTES = [bytes([value]) for value in range(256)]


class Dealer:
    """Stands for the engine's client: hands out streams, and keeps what it is told."""

    def __init__(self) -> None:
        self.streams: dict[str, RequestStream] = {}
        self.finished: list[tuple[str, int, FinishReason]] = []
        self.aborted: list[str] = []

    def submit(
        self, request: Submit, on_token: OnToken, on_wake: Callable[[], None]
    ) -> RequestStream:
        return self.streams.setdefault(request.id, RequestStream(on_token, on_wake))

    def finish(self, id: RequestId, n_tokens: int, reason: FinishReason) -> None:
        self.finished.append((id, n_tokens, reason))

    def abort(self, id: RequestId) -> None:
        self.aborted.append(id)

    def deal(self, id: str, text: str) -> None:
        for byte in text.encode():
            self.streams[id].push(byte)

    def end(self, id: str, reason: FinishReason = FinishReason.LENGTH) -> None:
        self.streams[id].finish(Ended(RequestId(id), reason, "NaN logits"))


class Table:
    """A generation of choices "0", "1", …, and its dealer."""

    def __init__(self, choices: int = 1, stops: tuple[str, ...] = (), max_tokens: int = 50) -> None:
        self.dealer = Dealer()
        submits = [
            Submit(RequestId(str(i)), (1,), max_tokens, SamplingParams(), ())
            for i in range(choices)
        ]
        self.generation = Generation(
            cast(EngineClient, self.dealer),
            submits,
            lambda _: ChoicePlan(
                detokenizer=Detokenizer(BYTES, stops, keep_stop=False, min_tokens=0)
            ),
            per_prompt=1,
        )


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, PATIENCE_S))


def test_what_a_slow_reader_has_not_taken_comes_as_one_delta() -> None:
    async def test() -> None:
        table = Table()
        deltas = table.generation.deltas()
        table.dealer.deal("0", "a")
        assert await anext(deltas) == Delta(0, "a", (97,))
        table.dealer.deal("0", "bcdef")
        table.dealer.end("0")
        assert await anext(deltas) == Delta(0, "bcdef", tuple(b"bcdef"))
        assert await anext(deltas) == Delta(0, "", (), "length")
        assert [delta async for delta in deltas] == []

    run(test())


def test_an_end_that_comes_while_the_reader_is_busy_is_not_lost() -> None:
    async def test() -> None:
        table = Table(choices=2)
        deltas = table.generation.deltas()
        table.dealer.deal("0", "a")
        table.dealer.deal("1", "b")
        assert (await anext(deltas)).index == 0
        table.dealer.end("0")
        assert (await anext(deltas)).index == 1
        table.dealer.end("1")
        ends = [(delta.index, delta.finish_reason) async for delta in deltas]
        assert ends == [(0, "length"), (1, "length")]

    run(test())


def test_a_stop_is_told_as_its_token_arrives_and_what_follows_is_nobodys() -> None:
    async def test() -> None:
        table = Table(stops=("lo",))
        table.dealer.deal("0", "hello")
        assert table.dealer.finished == [("0", 5, FinishReason.STOP)]
        table.dealer.deal("0", "more")
        table.dealer.end("0", FinishReason.STOP)
        await table.generation.finish()
        (choice,) = table.generation.choices
        assert (choice.content, choice.finish_reason) == ("hel", "stop")
        assert table.generation.completion_tokens == 5

    run(test())


def test_a_stop_in_the_last_allowed_token_is_a_stop() -> None:
    async def test() -> None:
        table = Table(stops=("b",), max_tokens=2)
        table.dealer.deal("0", "ab")
        table.dealer.end("0", FinishReason.LENGTH)
        await table.generation.finish()
        assert table.generation.choices[0].finish_reason == "stop"

    run(test())


def test_tokens_beyond_max_tokens_are_not_the_callers() -> None:
    async def test() -> None:
        table = Table(max_tokens=0)
        table.dealer.deal("0", "a")
        table.dealer.end("0")
        await table.generation.finish()
        assert table.generation.choices[0].content == ""

    run(test())


def test_one_failed_choice_fails_the_whole() -> None:
    async def test() -> None:
        table = Table(choices=2)
        table.dealer.deal("0", "a")
        table.dealer.end("1", FinishReason.FAILED)
        with pytest.raises(GenerationFailed, match="NaN logits"):
            await table.generation.finish()
        table.generation.close()
        assert table.dealer.aborted == ["0", "1"]

    run(test())


def test_a_dead_engine_is_raised_to_the_reader() -> None:
    async def test() -> None:
        table = Table()
        table.dealer.streams["0"].fail(EngineDead("gone"))
        with pytest.raises(EngineDead):
            await table.generation.finish()

    run(test())
