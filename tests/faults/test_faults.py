"""Faults that a short run can make; after each the server is as it was (`make faults`)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.faults.site import LIMIT_S, Site, alive, at_once, site, until

pytestmark = pytest.mark.slow

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
STREAM = b'{"prompt": "a", "max_tokens": 400, "ignore_eos": true, "stream": true}'
WHOLE = b'{"prompt": "a", "max_tokens": 8, "ignore_eos": true}'


def request(body: bytes) -> bytes:
    return HEAD + b"content-length: %d\r\n\r\n" % len(body) + body


def received(sock: socket.socket) -> bytes:
    pieces = []
    with contextlib.suppress(ConnectionError):
        while piece := sock.recv(65536):
            pieces.append(piece)
    return b"".join(pieces)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("faults") / "log") as one:
        one.check()
        yield one


def test_a_storm_of_aborts(shared: Site) -> None:
    before = shared.descriptors()

    def abort(number: int) -> None:
        for _ in range(8):
            with shared.raw(request(STREAM)) as sock:
                if number % 2:
                    sock.recv(1)  # in decode; else in the queue or before it

    at_once(8, abort)
    shared.check()
    until(lambda: shared.descriptors() <= before + 2, "descriptors came back")


def test_readers_that_reset_half_close_or_read_late(shared: Site) -> None:
    reset = shared.raw(request(STREAM))
    reset.recv(1)
    reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    reset.close()
    for body, last in ((WHOLE, b'"completion_tokens":8'), (STREAM, b"data: [DONE]")):
        with shared.raw(request(body)) as half:
            half.shutdown(socket.SHUT_WR)
            assert last in received(half)
    shared.check()


def test_heads_and_bodies_that_do_not_come(shared: Site) -> None:
    late = [shared.raw(HEAD) for _ in range(20)]
    late += [shared.raw(HEAD + b"content-length: 100\r\n\r\n{") for _ in range(20)]
    assert shared.client.get("/health").status_code == 200
    for sock in late:
        assert received(sock).startswith(b"HTTP/1.1 408 ")
        sock.close()
    shared.check()


def test_bodies_that_are_no_request(shared: Site) -> None:
    for body in (b"", b"{", b"[]", b"\xff", b'{"prompt": 1}', b'{"prompt": "' + b"a" * 2**20):
        with shared.raw(
            request(body).replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
        ) as s:
            assert received(s).startswith(b"HTTP/1.1 400 ")
    shared.check()


def test_probes_and_scrapes_while_a_stream_runs(shared: Site) -> None:
    lines = shared.stream(300)
    next(lines)

    def probe(_: int) -> None:
        with httpx.Client(base_url=shared.url, timeout=LIMIT_S) as client:
            for path in ("/health", "/metrics", "/debug/steps", "/nowhere") * 5:
                assert client.get(path).status_code < 500

    at_once(4, probe)
    assert list(lines)[-1] == "data: [DONE]"
    shared.check()


def test_the_engine_is_killed_in_decode_and_idle(shared: Site) -> None:
    lines = shared.stream(400)
    next(lines)
    for _ in range(2):
        killed = shared.engine()
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        until(lambda pid=killed: shared.engine() not in (None, pid), "another engine was started")
        shared.check()
    *_, error, done = list(lines)
    assert '"engine_dead"' in error
    assert done == "data: [DONE]"
    assert "SIGKILL, from outside" in shared.log.read_text()


def test_sigterm_under_load_cuts_nobody_short_and_leaves_nobody_behind(shared: Site) -> None:
    children = shared.children()
    lines = shared.stream(100)
    next(lines)
    shared.process.send_signal(signal.SIGTERM)
    assert list(lines)[-1] == "data: [DONE]"
    assert shared.process.wait(LIMIT_S) == 0
    until(lambda: not any(map(alive, children)), "every child ended")
    assert "Traceback" not in shared.log.read_text()


def test_few_descriptors_and_many_connections(tmp_path: Path) -> None:
    with site(tmp_path / "log", descriptors=64) as one:
        socks = [one.raw(b"") for _ in range(120)]
        said = [received(sock) for sock in socks]  # to the end: 503 at once, or 408 for want of one
        for sock in socks:
            sock.close()
        assert {answer[:13] for answer in said} == {b"HTTP/1.1 503 ", b"HTTP/1.1 408 "}
        one.check()
        assert one.log.read_text().count("connections are taken") == 1
        assert len(one.log.read_text().splitlines()) < 100


def test_a_second_signal_ends_at_once_and_a_killed_server_leaves_no_orphan(tmp_path: Path) -> None:
    with site(tmp_path / "first") as one:
        children = one.children()
        lines = one.stream(2500)
        next(lines)
        one.process.send_signal(signal.SIGTERM)
        until(lambda: "draining" in one.log.read_text(), "the drain began")
        assert one.end(signal.SIGTERM) == 0
        assert '"shutting_down"' in list(lines)[-2]
        until(lambda: not any(map(alive, children)), "every child ended")
    loading = Site(tmp_path / "loading")
    until(lambda: bool(loading.children()), "the engine was started")
    children = loading.children()
    loading.end()
    until(lambda: not any(map(alive, children)), "every child of a killed server ended")
    assert loading.process.stdout is not None
    loading.process.stdout.close()
