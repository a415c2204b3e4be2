"""The listening socket: what its connections inherit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import pytest

from core.errors import SettingsError
from core.settings import HttpSettings
from server.cli.serve import _tell, has_room, listen


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


def test_the_second_of_two_starts_on_one_port_is_refused_in_words() -> None:
    first = listen(HttpSettings(port=0))
    with first, pytest.raises(SettingsError, match=r"cannot listen on .*: Address already in use"):
        listen(HttpSettings(port=first.getsockname()[1]))


def test_what_cannot_be_printed_ends_no_start(caplog: pytest.LogCaptureFixture) -> None:
    with Path("/dev/full").open("w") as full:
        with contextlib.suppress(OSError):
            _tell("ready", full)
        assert "No space left on device" in caplog.text
        _tell("ready", None)
        with contextlib.suppress(OSError):
            full.close()


def test_a_pipe_that_nobody_reads_is_left_half_empty(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    line, written = b"x" * 1000, 0
    while has_room(writing):
        written += os.write(writing, line)
        assert written < 2**20
    os.set_blocking(writing, False)
    assert os.write(writing, line) == 1000, "there is room for what matters more"
    os.read(reading, 2**20)
    assert has_room(writing)
    os.close(reading)
    os.close(writing)
    with (tmp_path / "log").open("w") as file:
        assert has_room(file.fileno())
