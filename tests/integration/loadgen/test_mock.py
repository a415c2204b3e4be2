from __future__ import annotations

import asyncio
import socket

from loadgen.run.mock import Behaviour, Mock


class Watched(Mock):
    """Notes the option of each connection before it answers there."""

    nodelay: int | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        self.nodelay = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await super().serve(reader, writer)


async def asked_once() -> Watched:
    mock = Watched(Behaviour())
    server = await mock.listen()
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"GET /bodies HTTP/1.1\r\n\r\n")
    assert b"200 OK" in await reader.readline()
    writer.close()
    server.close()
    return mock


def test_small_answers_do_not_wait_for_their_acknowledgement() -> None:
    assert asyncio.run(asked_once()).nodelay
