"""One `floorline serve` as a process of ours: started on a free port, driven, read, ended."""

from __future__ import annotations

import asyncio
import re
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from core.children import interrupts_held, python_child
from core.errors import SettingsError
from core.settings import STEPS_KEPT
from costmodel.account import LostCause
from lab.measure.outcome import Account
from loadgen.load.plan import make_plan
from loadgen.load.spec import PlanSpec, RunSpec
from loadgen.report import measure
from loadgen.report.summary import Summary, report
from loadgen.run.campaign import Run, run_plan
from loadgen.run.scrape import Scrape, ScrapeWindow

_READY: Final = re.compile(r"floorline: ready on (http://\S+)\n")
_STOP_S: Final = 45.0  # above the server's own drain


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSlice:
    """One request's part of a step: `length` tokens from `start` on."""

    start: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStep:
    """What is read here of a step as /debug/steps shows it."""

    index: int
    kind: str
    duration_ms: float
    useful_floor_ms: float
    lost_ms: dict[str, float]
    segments_ms: dict[str, float]
    slices: list[ServerSlice]
    bytes: int

    def account(self) -> Account:
        lost = {cause: ms / 1e3 for cause, ms in self.lost_ms.items()}
        return Account(self.useful_floor_ms / 1e3, lost)


@dataclass(frozen=True, slots=True)
class ServerSteps:
    steps: list[ServerStep]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one load showed: the client's report, and the server's counters before and after."""

    run: Run
    summary: Summary
    window: ScrapeWindow
    steps: list[ServerStep]

    def account(self, idle: bool = False) -> Account:
        """Split the engine's time in the window by the time law; without `idle`, busy time."""
        lost = {
            str(cause): self.window.grew("floorline_lost_seconds_total", cause=cause) or 0.0
            for cause in LostCause
            if idle or cause not in (LostCause.IDLE, LostCause.CALIBRATION)
        }
        return Account(self.window.grew("floorline_floor_seconds_total") or 0.0, lost)


@dataclass(frozen=True, slots=True)
class Server:
    url: str

    def text(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return str(answer.read().decode())

    def scrape(self) -> Scrape:
        return Scrape(self.text("/metrics"))

    def load(self, plan: PlanSpec, timeout_s: float = 600.0) -> LoadResult:
        """Send a load with loadgen and read both sides of it.

        Raises:
            SettingsError: too many of its requests failed, so that its numbers mean nothing.
            KeyboardInterrupt: the user interrupted it.
        """
        last = self.steps(1)
        first_index = last[-1].index + 1 if last else 0
        before = self.scrape()
        spec = RunSpec(ignore_eos=True, timeout=timeout_s, cache="cold")
        run = asyncio.run(run_plan(self.url, make_plan(plan), spec, quiet=True))
        if run.interrupted:
            raise KeyboardInterrupt
        summary = report(run)
        if summary.failed > spec.max_error_rate * summary.counted:
            raise SettingsError(f"a load failed: {_failures(run)}")
        steps = [step for step in self.steps(STEPS_KEPT) if step.index >= first_index]
        return LoadResult(run, summary, ScrapeWindow(before, self.scrape()), steps)

    def steps(self, count: int) -> list[ServerStep]:
        """Read the last `count` step records that the server keeps, oldest first."""
        told = self.text(f"/debug/steps?n={count}")
        return msgspec.json.decode(told, type=ServerSteps).steps


def _failures(run: Run) -> str:
    """Name the outcomes of the requests that failed, and the detail of the first one."""
    failed = [record for record in run.records if record.failed]
    named = ", ".join(f"{n} {outcome}" for outcome, n in measure.outcomes(failed).items())
    return " ".join(f"{named}: {failed[0].detail}".split())[:300]


@contextmanager
def serving(*flags: str) -> Iterator[Server]:
    """Run a server from its ready line to its end.

    Raises:
        SettingsError: it did not start; its last line says why.
    """
    child = python_child("server.cli.main", "serve", "--port", "0", *flags)
    with tempfile.TemporaryFile("w+") as errors, ExitStack() as ours:
        with interrupts_held():
            process = subprocess.Popen(
                child.command,
                env=child.environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            ours.callback(_end, process)
        assert process.stdout is not None
        ready = _READY.fullmatch(process.stdout.readline())
        if ready is None:
            process.wait()
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["no reason told"])[-1]
            raise SettingsError(f"a server did not start: {last}")
        yield Server(ready[1])


def _end(process: subprocess.Popen[str]) -> None:
    with interrupts_held():
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def median_step(steps: Sequence[ServerStep]) -> ServerStep | None:
    """Give the step of median duration, so that its account adds up to what is shown for it."""
    ordered = sorted(steps, key=lambda step: step.duration_ms)
    return ordered[len(ordered) // 2] if ordered else None
