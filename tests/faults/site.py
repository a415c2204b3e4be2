"""A real server that is about to be hurt, and what must hold of it afterwards. It hurts nobody."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from tests.live import BIN, READY

LIMIT_S: Final = 30.0  # for what must happen; a watchdog, no measurement
FLAGS: Final = (
    "--model=tinygpt",
    "--port=0",
    "--kv-memory=8MiB",
    "--threads=1",
    "--no-access-log",
    "--peak-bandwidth=50GB/s",  # given, so that no start measures the machine
    "--peak-flops=1TFLOP/s",
    "--header-timeout=1",
    "--body-timeout=1",
)
BODY: Final = {"prompt": "a fault", "max_tokens": 8, "ignore_eos": True}


def until(happened: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not happened():
        assert time.monotonic() < deadline_s, f"not within {LIMIT_S:g} s: {what}"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Site:
    """One `floorline serve`, from its start on."""

    def __init__(self, log: Path, *flags: str, descriptors: int | None = None) -> None:
        limit = f"ulimit -n {descriptors}; " if descriptors else ""
        command = " ".join([f"{limit}exec", str(BIN / "floorline"), "serve", *FLAGS, *flags])
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                ["bash", "-c", command], stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        ready = READY.fullmatch(self.process.stdout.readline())
        assert ready, self.log.read_text()
        self.url = httpx.URL(ready[1])
        self.client = httpx.Client(base_url=self.url, timeout=LIMIT_S)
        self.blocks = self._gauges("kv_blocks")

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def engine(self) -> int | None:
        """Find the engine's process; None while there is none."""
        for child in self.children():
            with contextlib.suppress(FileNotFoundError):
                if alive(child) and b"\0engine\0" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return child
        return None

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def ask(self) -> httpx.Response:
        return self.client.post("/v1/completions", json=BODY)

    def raw(self, sent: bytes) -> socket.socket:
        sock = socket.create_connection((self.url.host, self.url.port), timeout=LIMIT_S)
        sock.sendall(sent)
        return sock

    def stream(self, max_tokens: int) -> Iterator[str]:
        body = {**BODY, "max_tokens": max_tokens, "stream": True}
        with self.client.stream("POST", "/v1/completions", json=body) as response:
            yield from filter(None, response.iter_lines())

    def _gauges(self, name: str) -> float:
        text = self.client.get("/metrics").text
        return sum(float(n) for n in re.findall(rf"^floorline_{name}{{.*}} (\S+)$", text, re.M))

    def is_at_rest(self) -> bool:
        return self._gauges("requests_running") == self._gauges("requests_waiting") == 0

    def check(self) -> None:
        """See that nothing is live, each block is there, and the next request works."""
        until(lambda: self.client.get("/ready").status_code == 200, "ready")
        until(self.is_at_rest, "no request runs or waits")
        assert self.client.get("/load").json() == {"server_load": 0}
        text = self.client.get("/metrics").text
        (held,) = re.findall(r'^floorline_kv_blocks{.*state="referenced".*} (\S+)$', text, re.M)
        assert float(held) == 0, "blocks are held by nobody"
        assert self._gauges("kv_blocks") == self.blocks
        answer = self.ask()
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == BODY["max_tokens"]
        assert "Traceback" not in self.log.read_text()

    def end(self, number: int = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)


@contextmanager
def site(log: Path, *flags: str, descriptors: int | None = None) -> Iterator[Site]:
    """Run a server; whatever happens, it and its children are gone afterwards."""
    one = Site(log, *flags, descriptors=descriptors)
    try:
        one.wait_until_ready()
        yield one
        one.client.close()
    finally:
        if one.process.poll() is None:
            one.end()
        assert one.process.stdout is not None
        one.process.stdout.close()


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Do `count` pieces of work in threads, and wait for them."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
