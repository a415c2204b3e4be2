"""The real command and the real engine: standard output, a killed engine, signals, refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

SERVE = [sys.executable, "-m", "server.cli.main", "serve", "--port", "0", "--model", "tinygpt"]
READY = "floorline: ready on "


class Process:
    """`floorline serve`, from its ready line on."""

    def __init__(self, *flags: str) -> None:
        self.popen = subprocess.Popen(
            [*SERVE, "--kv-memory", "8MiB", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.popen.stdout
        line = self.popen.stdout.readline()
        assert line.startswith(READY)
        self.client = httpx.Client(base_url=line.removeprefix(READY).strip(), timeout=PATIENCE_S)

    @property
    def engine_pid(self) -> int:
        """The child that is the engine; another renders chat templates."""
        pid = self.popen.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        (engine,) = (
            int(child)
            for child in children
            if b"\0engine\0" in Path(f"/proc/{child}/cmdline").read_bytes()
        )
        return engine

    def stream(self, max_tokens: int) -> Iterator[str]:
        body = {"prompt": "a", "max_tokens": max_tokens, "stream": True, "ignore_eos": True}
        with self.client.stream("POST", "/v1/completions", json=body) as response:
            yield from filter(None, response.iter_lines())

    def end(self) -> tuple[int, str, str]:
        out, err = self.popen.communicate(timeout=PATIENCE_S)
        return self.popen.returncode, out, err


@pytest.fixture
def serving() -> Iterator[Process]:
    process = Process()
    yield process
    process.client.close()
    process.popen.kill()
    process.popen.communicate()


def test_a_killed_engine_is_told_to_its_streams_and_replaced(serving: Process) -> None:
    lines = serving.stream(2000)
    next(lines)
    os.kill(serving.engine_pid, signal.SIGKILL)
    *_, error, done = list(lines)
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "engine_dead"
    assert done == "data: [DONE]"
    assert serving.client.get("/health").status_code == 503
    assert serving.client.get("/metrics").status_code == 200
    while serving.client.get("/ready").status_code != 200:
        assert serving.popen.poll() is None
    answer = serving.client.post("/v1/completions", json={"prompt": "a", "max_tokens": 2})
    assert answer.json()["usage"]["completion_tokens"] == 2


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="no such policy here")
def test_every_thread_of_the_engine_gives_way_to_the_server(serving: Process) -> None:
    tasks = Path(f"/proc/{serving.engine_pid}/task").iterdir()
    assert {os.sched_getscheduler(int(task.name)) for task in tasks} == {os.SCHED_BATCH}
    assert os.sched_getscheduler(serving.popen.pid) == os.SCHED_OTHER


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_with_status_0(serving: Process, number: int) -> None:
    engine_pid = serving.engine_pid
    lines = serving.stream(20)
    next(lines)
    for pid in (engine_pid, serving.popen.pid):  # as a service manager does
        os.kill(pid, number)
    *rest, done = list(lines)
    assert json.loads(rest[-1].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    assert done == "data: [DONE]"
    status, out, err = serving.end()
    assert (status, out) == (0, "")
    assert "Traceback" not in err
    assert not Path(f"/proc/{engine_pid}").exists()


def test_the_start_screen_is_on_standard_error(serving: Process) -> None:
    os.kill(serving.popen.pid, signal.SIGTERM)
    _, out, err = serving.end()
    assert out == ""
    for text in ("5,838,080", "3,072 bytes", "tokens/s", "backend", "http://127.0.0.1:"):
        assert text in err


def test_a_context_that_the_kv_store_cuts_short_is_told_as_it_is(serving: Process) -> None:
    limit = 8 * 2**20 // (16 * 3_072) * 16  # whole blocks in --kv-memory; the model's is 8,192
    assert serving.client.get("/v1/models").json()["data"][0]["max_model_len"] == limit
    body = {"prompt": "a" * limit}
    message = serving.client.post("/v1/completions", json=body).json()["error"]["message"]
    assert message.startswith(f"This model's maximum context length is {limit} tokens. However, ")
    assert message.endswith("all that the KV store holds")


@pytest.mark.parametrize(
    "flags",
    [
        ["--model", "/nowhere/model.gguf"],
        ["--slo", "nonsense"],
        ["--num-kv-blocks", "1", "--max-model-len", "100000000"],
    ],
)
def test_what_cannot_be_served_is_one_line_and_status_2(flags: list[str]) -> None:
    result = subprocess.run([*SERVE, *flags], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    errors = [line for line in result.stderr.splitlines() if "error" in line]
    assert len(errors) == 1
    assert errors[0].startswith("floorline: error: ")
    assert "Traceback" not in result.stderr


def test_a_taken_port_is_refused_before_a_model_is_loaded(serving: Process) -> None:
    port = str(serving.client.base_url.port)
    result = subprocess.run([*SERVE, "--port", port], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        f"floorline: error: cannot listen on 127.0.0.1:{port}: Address already in use"
    ]
