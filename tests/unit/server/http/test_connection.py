"""Connections over real sockets, with a small app behind, and clients that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from server.http import connection, sse
from server.http.connection import Connection, Warnings, connections, quiet_accept
from server.http.sse import EventStream, while_connected
from tests.patience import PATIENCE_S

HEAD = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n"


async def answer(send: Send, body: bytes, status: int = 200, more: bool = False) -> None:
    headers = [(b"content-length", b"%d" % len(body))] if not more else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": more})


class Site:
    """A listening server, and what it holds."""

    def __init__(self, port: int, state: ServerState) -> None:
        self.port, self.state = port, state
        self.writers: list[asyncio.StreamWriter] = []

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, kind: type[Connection]) -> AsyncIterator[Site]:
    config = uvicorn.Config(app, http=kind, log_config=None, lifespan="off")
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: kind(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    site = Site(server.sockets[0].getsockname()[1], state)
    try:
        yield site
    finally:
        server.close()
        for writer in site.writers:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        for one in tuple(state.connections):
            one.transport.abort()
        await asyncio.gather(*state.tasks, return_exceptions=True)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, PATIENCE_S))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110, the end of a connection is no event here
        await asyncio.sleep(0.01)


def limited(most: int = 100) -> type[Connection]:
    return connections(PATIENCE_S, most)


def test_who_reads_nothing_is_cut_off_and_others_are_served() -> None:
    piece, made = b"x" * 2**16, 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/short":
            await answer(send, b"here")
            return
        await answer(send, piece, more=True)
        await while_connected(receive, flood(send))

    async def flood(send: Send) -> None:
        nonlocal made
        while made < 2**12:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            made += 1
            await asyncio.sleep(0)  # as a real stream does, which waits for tokens

    async def test() -> None:
        kind = limited()
        kind.stalled_reader_s = 0.05
        async with serving(app, kind) as site:
            _, writer = await site.open()
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            other, others = await site.open()
            others.write(b"GET /short HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await other.readuntil(b"here")).startswith(b"HTTP/1.1 200")
            await until(lambda: len(site.state.connections) == 1)
            assert made < 2**12, "it was cut off before all was made"
            others.close()
            writer.transport.abort()

    run(test())


def test_an_answer_before_the_body_ends_the_connection_and_is_read_whole() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, b"too large", 413)

    async def test() -> None:
        async with serving(app, limited()) as site:
            reader, writer = await site.open()
            writer.write(HEAD % 10**9 + b"x" * 10**6)
            said = await reader.read()  # to the end, which comes though the body does not
            assert said.startswith(b"HTTP/1.1 413 ")
            assert b"\r\nconnection: close\r\n" in said
            assert said.endswith(b"too large")
            writer.close()
            await until(lambda: not site.state.connections)

    run(test())


def test_a_body_that_is_dripped_after_its_answer_holds_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "LINGER_S", 0.05)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, b"no key", 401)

    async def test() -> None:
        async with serving(app, limited()) as site:
            reader, writer = await site.open()
            writer.write(HEAD % 100)
            await reader.read()
            with contextlib.suppress(ConnectionError):
                while site.state.connections:
                    writer.write(b"x")
                    await asyncio.sleep(0.01)
            writer.transport.abort()

    run(test())


def slow(begun: asyncio.Event, go: asyncio.Event, gone: asyncio.Event) -> ASGIApp:
    """Answer once told, or note that the client went."""

    async def work() -> bytes:
        await go.wait()
        return b"the answer"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        said = await while_connected(receive, work())
        if said is None:
            gone.set()
        else:
            await answer(send, said)

    return app


def test_who_closes_its_own_side_after_the_request_gets_the_answer() -> None:
    async def test() -> None:
        begun, go, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
        async with serving(slow(begun, go, gone), limited()) as site:
            reader, writer = await site.open()
            writer.write(HEAD % 1 + b"x")
            writer.write_eof()
            await reader.readuntil(b"100 Continue\r\n\r\n")  # it was seen that our side is closed
            go.set()
            said = await reader.read()
            assert said.startswith(b"HTTP/1.1 200 ")
            assert said.endswith(b"the answer")
            assert not gone.is_set()
            writer.close()

    run(test())


def test_who_has_gone_is_noticed_before_the_answer_is_there() -> None:
    async def test() -> None:
        begun, gone = asyncio.Event(), asyncio.Event()
        async with serving(slow(begun, asyncio.Event(), gone), limited()) as site:
            _, writer = await site.open()
            writer.write(HEAD % 1 + b"x")
            await begun.wait()
            writer.close()
            await gone.wait()

    run(test())


def test_one_connection_too_many_is_told_so_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, b"here")

    async def test() -> None:
        async with serving(app, limited(most=1)) as site:
            first, writer = await site.open()
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            await first.readuntil(b"here")
            for _ in range(20):
                late, other = await site.open()
                said = await late.read()
                assert said.startswith(b"HTTP/1.1 503 ")
                assert b'"code":"overloaded"' in said
                assert b"\r\nretry-after: 1\r\n" in said
                other.close()
            writer.close()

    run(test())
    assert len([line for line in caplog.messages if "connections are taken" in line]) == 1


def test_a_lack_of_descriptors_is_one_line_and_other_faults_are_told_as_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.new_event_loop()
    quiet_accept(loop)
    lack = OSError(24, "Too many open files")
    for _ in range(5):
        message = "socket.accept() out of system resource"
        loop.call_exception_handler({"message": message, "exception": lack})
    loop.call_exception_handler({"message": "a bug"})
    loop.close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.ERROR]
    assert "Too many open files" in caplog.messages[0]


def test_a_warning_is_repeated_once_its_time_has_passed(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    warnings = Warnings(lambda: now_s)
    for now_s in (0.0, 1.0, 59.0, 60.0, 61.0):
        warnings.warn("at %g", now_s)
    assert caplog.messages == ["at 0", "at 60"]


def test_a_stream_that_waits_for_its_turn_sends_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "QUIET_S", 0.001)
    sent: list[bytes] = []

    async def test() -> None:
        commented = asyncio.Event()

        async def events() -> AsyncIterator[bytes]:
            await commented.wait()
            yield b"data: 1\n\n"

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if sent.count(sse.COMMENT) == 2:
                commented.set()

        async def receive() -> Any:
            await asyncio.Event().wait()

        await EventStream(events(), lambda: None)({"type": "http"}, receive, send)

    run(test())
    assert sent.count(sse.COMMENT) >= 2
    assert [piece for piece in sent if piece not in (b"", sse.COMMENT)] == [b"data: 1\n\n"]
