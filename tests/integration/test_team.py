"""The kernels' threads under ThreadSanitizer: no race as they are, one as soon as an order goes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "kernels"
TEAM = (KERNELS / "src" / "team.h").read_text()
DRIVER = KERNELS / "tools" / "team_driver.cpp"
COMPILER = os.environ.get("CXX", "c++")
REGIONS = "200"
RACE = 66  # ThreadSanitizer's exit status
RUNS = 12  # a race shows only where threads meet: on a busy machine one run in many misses it

WEAKER = {  # what orders two threads in `team.h`, and the same with a weaker order
    "the job is not published": ("store(kOpen, release)", "store(kOpen, relaxed)"),
    "the job is not acquired": ("inside + 1, acquire)", "inside + 1, relaxed)"),
    "items are not published": ("fetch_add(done, acq_rel)", "fetch_add(done, acquire)"),
    "items are not acquired by the last": ("fetch_add(done, acq_rel)", "fetch_add(done, release)"),
    "a phase is opened without release": ("store(phase, release)", "store(phase, relaxed)"),
    "a phase is entered without acquire": ("phase_.load(acquire)", "phase_.load(relaxed)"),
    "a worker leaves without release": ("fetch_sub(1, release)", "fetch_sub(1, relaxed)"),
    "the end does not acquire": ("inside_.load(acquire)", "inside_.load(relaxed)"),
}


def spelt_out(call: str) -> str:
    """Give `load(acquire)` as C++ has it."""
    return re.sub(r"(\w+)\)$", r"std::memory_order_\1)", call)


def compiled(folder: Path, team: str) -> Path:
    (folder / "team.h").write_text(team)
    command = [COMPILER, "-std=c++20", "-O1", "-g", "-pthread", "-fsanitize=thread"]
    command += ["-I", str(folder), "-o", str(folder / "driver"), str(DRIVER)]
    subprocess.run(command, check=True)
    return folder / "driver"


def run(driver: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run at fixed addresses where that is allowed: ThreadSanitizer may not find its own else."""
    command = [str(driver), *arguments]
    setarch = shutil.which("setarch")
    if setarch and subprocess.run([setarch, "-R", "true"], capture_output=True).returncode == 0:
        command = [setarch, "-R", *command]
    options = os.environ | {"TSAN_OPTIONS": "halt_on_error=1"}
    return subprocess.run(command, env=options, capture_output=True, text=True, timeout=600)


def watches() -> bool:
    """Say whether this machine's compiler has ThreadSanitizer."""
    if shutil.which(COMPILER) is None:
        return False
    probe = [COMPILER, "-fsanitize=thread", "-x", "c++", "-", "-o", os.devnull]
    built = subprocess.run(probe, input="int main() {}", text=True, capture_output=True)
    return built.returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not watches(), reason="no C++ compiler with ThreadSanitizer here"),
]


def test_a_team_has_no_race_and_computes_what_one_thread_does(tmp_path: Path) -> None:
    done = run(compiled(tmp_path, TEAM), REGIONS)
    assert (done.returncode, done.stderr) == (0, "")
    assert "by workers" in done.stdout


@pytest.mark.parametrize("weakness", WEAKER)
def test_no_order_of_the_argument_can_be_weaker(weakness: str, tmp_path: Path) -> None:
    before, after = (spelt_out(call) for call in WEAKER[weakness])
    assert before in TEAM
    driver = compiled(tmp_path, TEAM.replace(before, after))
    found = next(
        (done for _ in range(RUNS) if (done := run(driver, REGIONS)).returncode == RACE), None
    )
    assert found, f"no race in {RUNS} runs"
    assert "data race" in found.stderr
