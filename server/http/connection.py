"""One HTTP connection: what it may hold, and for how long. What is said on it is the app's matter.

uvicorn's protocol with limits of its own: on the time of a head, on a client that does not read, on
a body that comes after its answer, and on the number of connections.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
from collections.abc import Callable
from typing import Any, Final

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from core.errors import FloorlineError, HeadTooSlow, Overloaded, ShuttingDown
from server.http.errors import TABLE, body_of, headers_of
from server.http.json import encode

log = logging.getLogger("floorline.server")

STALLED_READER_S: Final = 30.0  # without a byte read, while bytes wait to be read
LINGER_S: Final = 2.0  # to read and drop what comes after the last answer, so that it gets there
PROBE_S: Final = (0.05, 0.2, 1.0, 5.0)  # after a probe: when to see whether the client is there
RESERVED_DESCRIPTORS: Final = 32  # for the engine, templates, grammars, files
LEAST_CONNECTIONS: Final = 4
ACCEPTED_AT_ONCE: Final = 4  # in a turn of the loop: a burst must not take the reserve
WARN_EVERY_S: Final = 60.0
RETRY_AFTER_S: Final = 1.0
_COMMENT: Final = b":\n\n"  # what readers of server-sent events skip
_UNREAD: Final = (h11.SEND_BODY, h11.ERROR)  # bytes of a request may still come


def most_connections() -> int:
    """Count the connections that the limit on file descriptors leaves room for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft - RESERVED_DESCRIPTORS, LEAST_CONNECTIONS)


class Warnings:
    """Logs a warning once in a while, however often there is reason to."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s, self._next_s = now_s, float("-inf")

    def warn(self, message: str, *given: object) -> None:
        if self._now_s() >= self._next_s:
            self._next_s = self._now_s() + WARN_EVERY_S
            log.warning(message, *given)


def quiet_accept(loop: asyncio.AbstractEventLoop) -> None:
    """Have the loop say once, and not with every connection, that no descriptor is left."""
    warnings = Warnings()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "socket.accept()" in context.get("message", ""):
            warnings.warn("no file descriptor is left for a connection: %s", context["exception"])
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


class _Transport:
    """The transport as uvicorn sees it: the connection closes it, and may linger."""

    def __init__(self, transport: Any, connection: Connection) -> None:
        self._transport, self._connection = transport, connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._connection.lingers or self._transport.is_closing()

    def close(self) -> None:
        self._connection.close()


class Connection(H11Protocol):
    """Bounded in time and memory whatever its client does.

    * Each head has `head_timeout_s`, from its first byte on; the first one from the connection on.
      Between requests uvicorn's own limit holds.
    * Once the kernel's buffer is full, nothing more is made for the client, and one that reads
      nothing for `STALLED_READER_S` is cut off.
    * An answer to a request whose body has not come ends the connection: what comes is dropped.
    * A client that closes its own side after the request gets its answer.
    """

    head_timeout_s = 10.0
    most = 1000
    stalled_reader_s = STALLED_READER_S
    warnings = Warnings()

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.app: Any = self._closing(self.config.loaded_app)
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self.lingers = self._half_closed = self._sends_events = False

    # ── what the loop calls ───────────────────────────────────────────────────────────────────

    def connection_made(self, transport: Any) -> None:
        super().connection_made(_Transport(transport, self))  # type: ignore[arg-type]
        self._socket = transport
        transport.set_write_buffer_limits(0)
        if len(self.connections) > self.most:
            self._refuse()
        else:
            self._start_timer()

    def _refuse(self) -> None:
        """Say that there is no room, and let go: of its descriptor at once, where few are left."""
        words = "all %d connections are taken; more are refused (`ulimit -n` sets how many)"
        self.warnings.warn(words, self.most)
        error = Overloaded(f"all {self.most} connections are taken", RETRY_AFTER_S)
        self._say(error, 503, "Service Unavailable")
        if len(self.connections) > self.most + RESERVED_DESCRIPTORS // 4:
            self._socket.close()

    def data_received(self, data: bytes) -> None:
        if self.lingers:
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self.conn.trailing_data[0] and self._head_timer is None:
            self._start_timer()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Go on with a request that came whole: the client may only have closed its own side.

        One that has gone says so only when something is sent to it.
        """
        whole = self.conn.their_state in (h11.DONE, h11.MUST_CLOSE)
        if self.lingers or self.cycle is None or self.cycle.response_complete or not whole:
            return None
        self._half_closed = True
        self._probe()
        return True

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_watching()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._half_closed:
            self._socket.close()

    def shutdown(self) -> None:
        """End a connection without a request; an answer that has begun goes on to its end."""
        cycle, waits = self.cycle, self.conn.their_state is h11.SEND_BODY
        if self.lingers:
            self._socket.close()
        elif cycle is not None and waits and not cycle.response_started:
            error = ShuttingDown("the server is shutting down", RETRY_AFTER_S)
            self._say(error, TABLE[ShuttingDown].status, "Service Unavailable")
            self._socket.close()
        else:
            super().shutdown()

    # ── heads ─────────────────────────────────────────────────────────────────────────────────

    def _start_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._give_up)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            words = f"the request's head did not come within {self.head_timeout_s:g} s"
            self._say(HeadTooSlow(words), TABLE[HeadTooSlow].status, "Request Timeout")

    def _say(self, error: FloorlineError, status: int, phrase: str) -> None:
        """Answer by hand, where there is no request to answer to, and close."""
        body = encode(body_of(error))
        headers = {"content-type": "application/json", "content-length": str(len(body))}
        headers |= headers_of(error) | {"connection": "close"}
        lines = [f"HTTP/1.1 {status} {phrase}", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
        self.transport.write("\r\n".join(lines).encode() + body)
        self._linger()

    # ── readers ───────────────────────────────────────────────────────────────────────────────

    def _watch_reader(self) -> None:
        waiting = self._socket.get_write_buffer_size()

        def look() -> None:
            if self._socket.get_write_buffer_size() < waiting:
                self._watch_reader()
                return
            log.warning("a client read nothing for %g s; it is cut off", self.stalled_reader_s)
            self._socket.abort()

        self._write_timer = self.loop.call_later(self.stalled_reader_s, look)

    def _stop_watching(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # ── ends ──────────────────────────────────────────────────────────────────────────────────

    def _closing(self, app: ASGIApp) -> ASGIApp:
        """Tell the client, in an answer that its body did not wait for, that it is the last."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_last(message: Message) -> None:
                if message["type"] == "http.response.start":
                    headers = list(message.get("headers", ()))
                    kind = dict(headers).get(b"content-type", b"")
                    self._sends_events = kind.startswith(b"text/event-stream")
                    if self.conn.their_state is h11.SEND_BODY or self._half_closed:
                        message = {**message, "headers": [*headers, (b"connection", b"close")]}
                await send(message)

            await app(scope, receive, send_last)

        return answer

    def close(self) -> None:
        if self.conn.their_state in _UNREAD and not self._half_closed:
            self._linger()
        else:
            self._socket.close()

    def _linger(self) -> None:
        """Close our side, and drop what still comes: a reset would take the answer away."""
        if self.lingers or self._socket.is_closing():
            return
        self.lingers = True
        self._stop_timer()
        self._socket.write_eof()
        self._socket.resume_reading()
        self.loop.call_later(LINGER_S, self._socket.close)

    def _probe(self) -> None:
        """Send what any client skips, and see whether the system answers that nobody is there."""
        cycle = self.cycle
        if not cycle.response_started and self.scope["http_version"] == "1.1":
            event: Any = h11.InformationalResponse(status_code=100, headers=[], reason="Continue")
            self.transport.write(self.conn.send(event))
        elif cycle.response_started and self._sends_events:
            self.transport.write(self.conn.send(h11.Data(data=_COMMENT)))
        for delay_s in PROBE_S:
            self.loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        if self._socket.is_closing():
            return
        plain = self._socket.get_extra_info("socket")
        if plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._socket.abort()


def connections(head_timeout_s: float, most: int) -> type[Connection]:
    """Make the protocol for uvicorn, with the limits of one server."""
    limits = {"head_timeout_s": head_timeout_s, "most": most, "warnings": Warnings()}
    return type("Limited", (Connection,), limits)
