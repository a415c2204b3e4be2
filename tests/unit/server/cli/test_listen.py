"""The listening socket: what its connections inherit."""

from __future__ import annotations

import asyncio
import socket

import pytest

from core.errors import SettingsError
from core.settings import HttpSettings
from server.cli.serve import listen


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


@pytest.mark.parametrize("host", ["192.0.2.1", "ü" * 70])
def test_a_host_that_cannot_be_had_is_refused_by_name(host: str) -> None:
    with pytest.raises(SettingsError, match=f"cannot listen on {host}:8000: ."):
        listen(HttpSettings(host=host))
