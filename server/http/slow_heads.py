"""An HTTP connection that does not wait for ever for a request's head."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from core.errors import HeadTooSlow
from server.http.errors import TABLE, body_of
from server.http.json import encode


def impatient(timeout_s: float) -> type[H11Protocol]:
    """Make a protocol for uvicorn that gives each head `timeout_s`, from its first byte on.

    The first head's time runs from the connection on; between requests uvicorn's own limit holds.
    """

    class Impatient(H11Protocol):
        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._start_timer()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_timer()
            elif self.conn.trailing_data[0] and self._head_timer is None:
                self._start_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def _start_timer(self) -> None:
            self._head_timer = self.loop.call_later(timeout_s, self._give_up)

        def _stop_timer(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _give_up(self) -> None:
            if not self.transport.is_closing():
                self.transport.write(_answer(timeout_s))
                self.transport.close()

    return Impatient


def _answer(timeout_s: float) -> bytes:
    error = HeadTooSlow(f"the request's head did not come within {timeout_s:g} s")
    body = encode(body_of(error))
    head = (
        f"HTTP/1.1 {TABLE[HeadTooSlow].status} Request Timeout\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
    )
    return head.encode() + b"\r\n" + body
