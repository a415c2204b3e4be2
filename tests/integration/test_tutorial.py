"""Every command of the tutorial is run in order, and its output is of the shape that is shown."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.live import end
from tests.pages import CI, ROOT, Block, at, blocks, commands

PAGE = ROOT / "docs/tutorial.md"
SERVE = next(command for command in commands(PAGE) if "floorline serve" in command)


@dataclass(frozen=True, slots=True)
class Ran:
    """A command of the page, what it printed, and the block that the page shows for it."""

    command: str
    output: str
    shown: Block


def shown_outputs() -> dict[str, Block]:
    """Give the block that follows each command's own."""
    pairs = zip(blocks(PAGE), blocks(PAGE)[1:], strict=False)
    return {
        command.text.strip(): shown
        for command, shown in pairs
        if command.language == "sh" and shown.language in ("json", "text")
    }


def test_each_command_but_the_setup_shows_its_output() -> None:
    assert len(commands(PAGE)) > 5
    assert [c for c in commands(PAGE) if c not in shown_outputs()] == ["make setup"]
    assert "make setup" in CI.splitlines()


def run_tutorial(log: Path) -> Iterator[Ran]:
    """Serve on a free port as the page says, and send it the page's commands."""
    shown = shown_outputs()
    words = [*shlex.split(SERVE), "--port", "0"]
    with log.open("w") as errors:
        process = subprocess.Popen(
            words, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    try:
        ready = next((line for line in process.stdout if "ready on" in line), "")
        assert ready, log.read_text()
        yield Ran(SERVE, ready + log.read_text(), shown[SERVE])
        for command in shown:
            if command != SERVE:
                yield Ran(command, run(at(command, ready.split()[-1])), shown[command])
    finally:
        end(process)


def run(command: str) -> str:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    too_busy = 3 if "bin/loadgen" in command else 0  # for the client's own times
    assert done.returncode in (0, too_busy), done.stderr
    return done.stdout


OF_THE_MACHINE = {"peaks_proven", "spent_ms", "why"}  # what is in it


def keys_of(value: Any) -> Any:
    """Give the keys of JSON, but for ids of requests, and for what depends on the machine."""
    if isinstance(value, dict):
        kept = {key: v for key, v in value.items() if not key.startswith("cmpl-")}
        return {key: key in OF_THE_MACHINE or keys_of(v) for key, v in kept.items()}
    if isinstance(value, list):
        return [keys_of(item) for item in value]
    return None


def first_words(text: str) -> set[str]:
    return {line.split()[0] for line in text.splitlines() if line.strip()} - {"…"}


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> list[Ran]:
    return list(run_tutorial(tmp_path_factory.mktemp("tutorial") / "stderr"))


@pytest.mark.slow
def test_what_the_tutorial_shows_is_what_its_commands_print(walk: list[Ran]) -> None:
    assert len(walk) == len(shown_outputs())
    for ran in walk:
        if ran.shown.language == "json":
            assert keys_of(json.loads(ran.shown.text)) == keys_of(json.loads(ran.output))
        else:
            assert first_words(ran.shown.text) <= first_words(ran.output), ran.command


@pytest.mark.slow
def test_the_sums_that_the_tutorial_names_hold(walk: list[Ran]) -> None:
    outputs = {ran.command: ran.output for ran in walk}
    answer, steps = (json.loads(text) for text in outputs.values() if text.startswith("{"))
    (counters,) = (text for text in outputs.values() if text.startswith("floorline_"))
    assert_sums(answer, steps["steps"][0], counters)


def test_the_sums_that_the_tutorial_names_hold_in_what_it_shows() -> None:
    answer, steps = (json.loads(b.text) for b in blocks(PAGE) if b.language == "json")
    (counters,) = (b.text for b in blocks(PAGE) if b.text.startswith("floorline_"))
    assert_sums(answer, steps["steps"][0], counters)


def assert_sums(answer: Any, step: Any, counters: str) -> None:
    """Check step, bill and counters; the counters' clock is read a little before their sums."""
    lost_ms = sum(step["lost_ms"].values())
    assert step["useful_floor_ms"] + lost_ms == pytest.approx(step["duration_ms"], abs=1e-5)
    assert len(answer["choices"]) == 1
    assert answer["cost"]["steps"] == answer["usage"]["completion_tokens"]
    samples = re.findall(r"^floorline_(\w+)_seconds_total\{.*\} (\S+)$", counters, re.MULTILINE)
    floor_s, lost_s, (wall_s,) = (
        [float(value) for name, value in samples if name == counter]
        for counter in ("floor", "lost", "engine_wall")
    )
    assert sum(floor_s) * 1e3 == pytest.approx(answer["cost"]["floor_ms"], abs=1e-5)
    assert sum(floor_s) + sum(lost_s) == pytest.approx(wall_s, rel=0.01)
