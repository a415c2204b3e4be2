"""One run from preflight to the last scrape, in this process or in several workers.

Each worker sends every N-th session; all share one monotonic clock. What the numbers mean is said
elsewhere.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection

from core.errors import SettingsError
from loadgen.load.plan import Plan, Planned
from loadgen.load.spec import RunSpec
from loadgen.run.client import Client
from loadgen.run.player import (
    Clock,
    Health,
    Job,
    Played,
    Player,
    Progress,
    clock_from,
    progress_line,
)
from loadgen.run.record import Record
from loadgen.run.scrape import Scrape
from loadgen.run.target import Dialogue, Target, inspect

START_S = 0.2  # between the last worker's readiness and the start of the clock
SCRAPE_S = 2.0
SETTLE_S = 0.1
SETTLE_TRIES = 20
WARMING = 4  # requests at once while the cache is warmed
TERMINAL_S, LOG_S = 0.5, 10.0  # a line in place on a terminal; elsewhere one line now and then
REPORT_S = 0.5  # between what a worker tells of its progress
TTFTS_SHOWN = 50


def share_out(plan: Plan, spec: RunSpec, target: Target) -> list[Job]:
    """Deal sessions to the workers, and split what is bounded over all of them.

    Raises:
        SettingsError: a bound that is smaller than the number of workers.
    """
    sessions, n = plan.sessions(), spec.workers
    for bound in (spec.max_inflight, plan.closed):
        if bound is not None and bound < n:
            raise SettingsError(f"--workers {n}: more than the {bound} requests in flight allowed")

    holds, places = _split(spec.max_inflight, n), _split(plan.closed, n)
    return [
        Job(target, replace(spec, max_inflight=hold), sessions[worker::n], place)
        for worker, (hold, place) in enumerate(zip(holds, places, strict=True))
    ]


def _split(total: int | None, n: int) -> list[int | None]:
    return [None if total is None else total // n + (k < total % n) for k in range(n)]


class Remote:
    """A player in a process of its own, seen from the parent."""

    def __init__(self, job: Job) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, self._theirs = spawn.Pipe()
        self._process = spawn.Process(target=work, args=(job, self._theirs), daemon=True)
        self.progress = Progress()

    async def start(self) -> None:
        self._process.start()
        self._theirs.close()
        await asyncio.to_thread(self._pipe.recv)

    async def play(self, start_s: float, stop: asyncio.Event) -> Played:
        self._pipe.send(start_s)
        while True:
            told: Progress | Played = await asyncio.to_thread(self._pipe.recv)
            if not isinstance(told, Progress):
                self._process.join()
                return told
            self.progress = told
            if stop.is_set():
                with suppress(ConnectionError):  # it has just ended by itself
                    self._pipe.send("stop")


def work(job: Job, pipe: Connection) -> None:
    """Send one job in a process of its own; an interrupt comes from the parent alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_work(job, pipe))


async def _work(job: Job, pipe: Connection) -> None:
    client, stop = Client(job.target.url, job.spec), asyncio.Event()
    player = Player(client, job)
    await player.start()
    pipe.send("ready")
    start_s = pipe.recv()
    telling = asyncio.create_task(_tell(pipe, player.progress, stop))
    played = await player.play(start_s, stop)
    telling.cancel()
    await client.close()
    pipe.send(played)


async def _tell(pipe: Connection, progress: Progress, stop: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(REPORT_S)
        pipe.send(replace(progress, ttft_s=progress.ttft_s[-TTFTS_SHOWN:]))
        if pipe.poll():
            stop.set()


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a plan: raw material for every report."""

    plan: Plan
    spec: RunSpec
    target: Target
    started: str
    records: list[Record]
    healths: list[Health]
    scrapes: list[Scrape]
    interrupted: bool


async def run_plan(url: str, plan: Plan, spec: RunSpec, quiet: bool) -> Run:
    """Send `plan` to `url`. An interrupt ends it early, and what was seen is returned.

    Raises:
        SettingsError: the preflight found what makes the run pointless; nothing was measured.
    """
    if spec.warmup and not plan.closed and spec.warmup >= plan.span_s:
        raise SettingsError(f"--warmup {spec.warmup:g}s is longer than the plan")
    client = Client(url, spec)
    try:
        target = await inspect(client, spec, plan)
        jobs = share_out(plan, spec, target)
        if spec.cache == "warm":
            await _warm(client, plan, target)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        stop, watch = _stop_on_signals(), Watch(client, target.metrics)
        played = await _play(client, jobs, stop, watch, None if quiet else len(plan.requests))
        if not stop.is_set():
            await watch.settle()
    finally:
        await client.close()
    records = sorted((r for share, _ in played for r in share), key=lambda record: record.i)
    if spec.warmup and not stop.is_set() and all(r.intended_s < spec.warmup for r in records):
        raise SettingsError(
            f"--warmup {spec.warmup:g}s: all {len(records)} requests began before it ended; "
            "send more (--requests), or warm up for less"
        )
    healths = [health for _, health in played]
    return Run(plan, spec, target, started, records, healths, watch.scrapes, stop.is_set())


def _stop_on_signals() -> asyncio.Event:
    """From here on an interrupt leaves something to report; before, it just ends us."""
    stop = asyncio.Event()
    with suppress(ValueError, RuntimeError):  # not the main thread: its owner interrupts it
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


@dataclass(slots=True)
class Watch:
    """Reads /metrics around and during a run, where there is one; parses nothing meanwhile."""

    client: Client
    readable: bool
    clock: Clock = lambda: 0.0
    scrapes: list[Scrape] = field(default_factory=list)

    async def read(self) -> None:
        if self.readable and (text := await self.client.metrics()):
            self.scrapes.append(Scrape(text, self.clock()))

    async def keep_reading(self, warmup_s: float) -> None:
        """Read as the warm-up ends and every two seconds from then on."""
        await asyncio.sleep(max(warmup_s - self.clock(), 0.0))
        while True:
            await self.read()
            await asyncio.sleep(SCRAPE_S)

    async def settle(self) -> None:
        """Read until the token counters stand still: the last tokens are booked last."""
        before = None
        for _ in range(SETTLE_TRIES if self.scrapes else 0):
            await self.read()
            now = self.scrapes[-1].total("floorline_tokens_total")
            if now == before:
                return
            before = now
            await asyncio.sleep(SETTLE_S)


async def _play(
    client: Client, jobs: list[Job], stop: asyncio.Event, watch: Watch, total: int | None
) -> list[Played]:
    """Play each job in a process of its own, or a single one in this."""
    players = [Remote(job) for job in jobs] if len(jobs) > 1 else [Player(client, jobs[0])]
    await asyncio.gather(*(player.start() for player in players))
    await watch.read()
    start_s = time.monotonic() + START_S
    watch.clock = clock_from(start_s)
    beside = [asyncio.create_task(watch.keep_reading(jobs[0].spec.warmup))]
    if total is not None:
        beside.append(asyncio.create_task(_show(watch.clock, players, total)))
    played = await asyncio.gather(*(player.play(start_s, stop) for player in players))
    for task in beside:
        task.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    return played


async def _show(clock: Clock, players: Sequence[Player | Remote], total: int) -> None:
    """Print the progress until cancelled; on a terminal the line is then cleared."""
    terminal = sys.stderr.isatty()
    clear, end = ("\r\x1b[K", "") if terminal else ("", "\n")
    try:
        while True:
            await asyncio.sleep(TERMINAL_S if terminal else LOG_S)
            told = progress_line([player.progress for player in players], total)
            print(f"{clear}{clock():5.0f} s  {told}", end=end, file=sys.stderr, flush=True)
    finally:
        print(clear, end="", file=sys.stderr, flush=True)


async def _warm(client: Client, plan: Plan, target: Target) -> None:
    """Send every prompt once for one token, before the clock starts."""
    places = asyncio.Semaphore(WARMING)

    async def once(planned: Planned) -> None:
        async with places:
            body = {"max_tokens": 1, **Dialogue(target).say(planned)}
            await client.ask(target.path, body, timeout_s=60.0)

    await asyncio.gather(*map(once, plan.requests))
