"""Files of the user that have the names of our packages change nothing."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.live import BIN, LiveServer, serving
from tests.patience import PATIENCE_S
from tests.test_architecture import MAY_IMPORT

PROPERTIES = {letter: {"type": "string", "pattern": f"^{letter}$"} for letter in "abcdefghij"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hold a module for each package of ours; one as a folder. All end who imports them."""
    folder = tmp_path_factory.mktemp("theirs")
    for package in set(MAY_IMPORT) - {"floorline", "server"}:
        (folder / f"{package}.py").write_text("raise SystemExit('the wrong one')")
    (folder / "server").mkdir()
    (folder / "server/__init__.py").write_text("raise SystemExit('the wrong one')")
    return folder


@pytest.fixture(scope="module")
def environment(folder: Path) -> Mapping[str, str]:
    """Have the folder on the path of every Python, too."""
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def server(
    folder: Path, environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    log = tmp_path_factory.mktemp("log") / "stderr.txt"
    flags = ("--model", "tinygpt", "--kv-memory", "8MiB", "--threads", "1")
    with serving(log, *flags, cwd=folder, env=environment) as server:
        yield server


def run(
    folder: Path, environment: Mapping[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / words[0]), *words[1:]]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("floorline", "models"), "presets:"),
        (("loadgen", "--help"), "usage: loadgen"),
        (("floorline", "plan", "tinygpt", "--device", "l4"), "tinygpt"),  # asks an engine
    ],
)
def test_a_command_does_its_work(
    folder: Path, environment: Mapping[str, str], words: tuple[str, ...], told: str
) -> None:
    done = run(folder, environment, *words)
    assert done.returncode == 0, done.stderr
    assert told in done.stdout


def test_a_server_generates(server: LiveServer) -> None:
    answer = server.post("/v1/completions", prompt="a", max_tokens=2)
    assert answer.status_code == 200, answer.text


def test_a_chat_template_is_rendered_in_its_process(server: LiveServer) -> None:
    answer = server.post(
        "/v1/chat/completions",
        messages=[{"role": "user", "content": "hi"}],
        chat_template="{{ messages[0].content }}",
        max_tokens=2,
    )
    assert answer.status_code == 200, answer.text


def test_a_hard_grammar_is_tried_in_its_process(server: LiveServer) -> None:
    schema = {"type": "object", "properties": PROPERTIES}
    answer = server.post(
        "/v1/chat/completions",
        messages=[{"role": "user", "content": "hi"}],
        max_tokens=2,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    )
    assert answer.status_code == 200, answer.text


def test_loadgen_s_workers_send(
    folder: Path, environment: Mapping[str, str], server: LiveServer
) -> None:
    words = ("--requests", "4", "--rate", "20", "--workers", "2", "--output", "=2", "--quiet")
    done = run(folder, environment, "loadgen", server.url, *words, "--format", "json")
    assert json.loads(done.stdout)["outcomes"] == {"ok": 4}, done.stderr  # slow ones are right, too
