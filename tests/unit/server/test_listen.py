"""The listening socket: what its connections inherit."""

from __future__ import annotations

import asyncio
import socket

from core.settings import HttpSettings
from server.serve import listen


def test_a_small_write_does_not_wait_for_the_readers_acknowledgement() -> None:
    async def test() -> int:
        accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            accepted.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = listen(HttpSettings(port=0))
        async with await asyncio.start_server(serve, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            no_delay = await accepted
            writer.close()
            await writer.wait_closed()
            return no_delay

    assert asyncio.run(test()) == 1
