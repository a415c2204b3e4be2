"""Server-sent events: a generation's chunks in order, and a response that ends with its reader.

Each event is one `data:` line of JSON; nothing else is sent but the closing `[DONE]`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.errors import ServiceError
from server.answers.bodies import Head, Shape, usage
from server.answers.choice import Delta
from server.answers.generation import Generation
from server.contract.validation import GenerationCall
from server.http.errors import body_of, encode

T = TypeVar("T")

DONE: Final = b"data: [DONE]\n\n"
HEADERS: Final[Mapping[str, str]] = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def event(body: Any) -> bytes:
    return b"data: " + encode(body) + b"\n\n"


@dataclass(slots=True)
class ChunkWriter:
    """Writes one request's chunks.

    `cost` is asked for once, after the last delta: it goes into the usage chunk where usage was
    asked for, else into the chunk with the last finish reason.
    """

    shape: Shape
    head: Head
    generation: Generation
    call: GenerationCall
    cost: Callable[[], Mapping[str, Any] | None]
    _sent_tokens: int = 0
    _begun: set[int] = field(default_factory=set)
    _ended: int = 0

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the whole stream; what fails on the way is its last event but `[DONE]`."""
        try:
            async for delta in self.generation.deltas():
                for chunk in self._chunks(delta):
                    yield event(chunk)
            if self.call.include_usage:
                yield event(self._usage_chunk())
        except ServiceError as error:
            yield event(body_of(error))
        yield DONE

    def _chunks(self, delta: Delta) -> Iterator[dict[str, Any]]:
        first = delta.index not in self._begun
        self._begun.add(delta.index)
        written = self.shape.chunk_choices(delta, first)
        for choice in written[:-1]:  # opens the choice, before any of its tokens
            yield self._chunk(choice)
        self._sent_tokens += len(delta.token_ids)
        self._ended += delta.finish_reason is not None
        choice = written[-1]
        if self.call.return_token_ids:
            if first:
                prompt = self.generation.choices[delta.index].submit.prompt_ids
                choice["prompt_token_ids"] = prompt
            choice["token_ids"] = delta.token_ids
        chunk = self._chunk(choice)
        if self._ended == len(self.generation.choices) and not self.call.include_usage:
            self._add_cost(chunk)
        yield chunk

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = self.head.body(self.shape.chunk_object, [choice])
        if self.call.running_usage:
            chunk["usage"] = usage(self.generation, self._sent_tokens)
        elif self.call.include_usage:
            chunk["usage"] = None
        return chunk

    def _usage_chunk(self) -> dict[str, Any]:
        chunk = self.head.body(self.shape.chunk_object, [])
        chunk["usage"] = usage(self.generation, self.generation.completion_tokens)
        self._add_cost(chunk)
        return chunk

    def _add_cost(self, chunk: dict[str, Any]) -> None:
        cost = self.cost()
        if cost is not None:
            chunk["cost"] = cost


class EventStream(Response):
    """Sends events until they end or the client goes; `on_end` runs once, either way.

    A slow client holds up this response alone: its events wait, and are made when it reads on.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        self._events, self._on_end = events, on_end
        self.status_code, self.background = 200, None
        self.init_headers(HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(receive, self._send(send))
        finally:
            self._on_end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for data in self._events:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Do the work, unless the client goes first: then stop it and return None."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
