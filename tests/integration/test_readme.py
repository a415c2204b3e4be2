"""Every command that the README gives is run: here, or by CI, whose script is read."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator

import pytest

from tests.live import end
from tests.pages import CI, ROOT, at, commands

PAGE = ROOT / "README.md"
PREPARES_ONLY = {"make serve"}  # the fixture below runs it


def test_the_readme_gives_commands() -> None:
    assert len(commands(PAGE)) > 10


def test_make_targets_in_the_readme_are_served_here_or_run_by_ci() -> None:
    for command in commands(PAGE):
        if command.startswith("make ") and command not in PREPARES_ONLY:
            assert command in CI.splitlines(), command


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve as the README says, on a free port; `make serve` itself, so that its words are true."""
    log = tmp_path_factory.mktemp("readme") / "stderr"
    with log.open("w") as errors:
        process = subprocess.Popen(
            ["make", "--silent", "serve", "PORT=0"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        line = next((line for line in process.stdout if "ready on" in line), "")
        assert line, log.read_text()
        yield line.split()[-1]
    finally:
        end(process)


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in commands(PAGE) if not c.startswith("make ")])
def test_a_command_of_the_readme_works(command: str, url: str) -> None:
    words = shlex.split(at(command, url))
    if words[0] == "curl":
        words.insert(1, "--fail")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    too_busy = 3 if words[0].endswith("loadgen") else 0  # for the client's own times
    was_slow = 1 if words[:2] == [".venv/bin/floorline", "why"] else 0
    assert done.returncode in (0, too_busy, was_slow), done.stderr
    assert done.stdout
    if '"stream":true' in command:
        assert '"floor_ms"' in done.stdout
        assert done.stdout.rstrip().endswith("data: [DONE]")
