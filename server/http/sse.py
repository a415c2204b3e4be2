"""Server-sent events: an answer's chunks in order, and a response that ends with its reader.

Each event is one `data:` line of JSON; nothing else is sent but the closing `[DONE]`, and comments
while there is nothing to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.errors import ServiceError
from server.answers.bodies import Chunk
from server.http.errors import body_of
from server.http.json import encode

T = TypeVar("T")

DONE: Final = b"data: [DONE]\n\n"
COMMENT: Final = b": ping\n\n"  # readers skip it
QUIET_S = 15.0  # after which a comment is due: proxies give up on a connection that says nothing
HEADERS: Final[Mapping[str, str]] = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def event(body: Any) -> bytes:
    return b"data: " + encode(body) + b"\n\n"


async def events(chunks: AsyncIterator[Chunk]) -> AsyncIterator[bytes]:
    """Yield the whole stream; what fails on the way is its last event but `[DONE]`."""
    try:
        async for chunk in chunks:
            yield event(chunk)
    except ServiceError as error:
        yield event(body_of(error))
    yield DONE


class EventStream(Response):
    """Sends events until they end or the client goes; `on_end` runs once, either way.

    A slow client holds up this response alone: its events wait, and are made when it reads on.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        self._events, self._on_end = events, on_end
        self.status_code, self.background = 200, None
        self._sent_s = 0.0
        self.init_headers(HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(receive, self._send(send))
        finally:
            self._on_end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        now_s = asyncio.get_running_loop().time
        self._sent_s = now_s()
        comments = asyncio.ensure_future(self._comment(send, now_s))
        try:
            async for data in self._events:
                self._sent_s = now_s()
                await send(_part(data))
        finally:
            comments.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _comment(self, send: Send, now_s: Callable[[], float]) -> None:
        """Break each long silence, of a request that waits for its turn for example."""
        while True:
            await asyncio.sleep(self._sent_s + QUIET_S - now_s())
            if now_s() - self._sent_s >= QUIET_S:
                self._sent_s = now_s()
                await send(_part(COMMENT))


def _part(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


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
