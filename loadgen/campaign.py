"""One run from preflight to the last scrape. What the numbers mean is said elsewhere."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from core.errors import SettingsError
from loadgen.client import PATHS, Client
from loadgen.join import Scrape
from loadgen.live import Live
from loadgen.observe import Record
from loadgen.plan import Plan
from loadgen.player import Health, Played, Progress
from loadgen.preflight import inspect
from loadgen.prompts import Conversation, Target
from loadgen.spec import RunSpec
from loadgen.workers import START_S, Job, Remote, connections, merge, play_here, share_out

SCRAPE_S = 2.0
SETTLE_S = 0.1
SETTLE_TRIES = 20
WARMING = 4  # requests at once while the cache is warmed


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
    if spec.warmup >= plan.span_s and spec.warmup > 0:
        raise SettingsError(f"--warmup {spec.warmup:g}s is longer than the plan")
    stop = asyncio.Event()
    client = Client(url, spec)
    try:
        target = await inspect(client, spec, plan)
        jobs = share_out(plan, spec, target)
        if spec.cache == "warm":
            await _warm(client, plan, target)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        live = Live(plan, quiet)
        _stop_on_signals(stop)
        played, scrapes = await _play(client, jobs, stop, live, spec.warmup)
    finally:
        await client.close()
    records = sorted((r for part in played for r in part.records), key=lambda record: record.i)
    healths = [part.health for part in played]
    return Run(plan, spec, target, started, records, healths, scrapes, stop.is_set())


def _stop_on_signals(stop: asyncio.Event) -> None:
    """From here on an interrupt leaves something to report; before, it just ends us."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    except (ValueError, RuntimeError):
        pass  # not the main thread: whoever runs us there interrupts in his own way


async def _play(
    client: Client, jobs: Sequence[Job], stop: asyncio.Event, live: Live, warmup_s: float
) -> tuple[list[Played], list[Scrape]]:
    remotes = [Remote(job) for job in jobs] if len(jobs) > 1 else []
    await asyncio.gather(*(remote.start() for remote in remotes))
    if not remotes:
        await client.connect(connections(jobs[0]))
    scrapes: list[tuple[float, str]] = []
    if jobs[0].target.metrics:
        scrapes.append((0.0, await client.metrics() or ""))
    start_s = time.monotonic() + START_S

    def clock() -> float:
        return time.monotonic() - start_s

    own = Progress()
    watching = asyncio.create_task(_scrape(client, clock, scrapes, warmup_s))
    showing = asyncio.create_task(
        live.show(clock, lambda: merge([remote.progress for remote in remotes] or [own]))
    )
    if remotes:
        played = list(await asyncio.gather(*(r.play(start_s, stop) for r in remotes)))
    else:
        played = [await play_here(client, jobs[0], clock, stop, own)]
    for task in (watching, showing):
        task.cancel()
    await asyncio.gather(watching, showing, return_exceptions=True)
    live.end()
    if scrapes and not stop.is_set():
        await _settle(client, clock, scrapes)
    return played, [Scrape(text, t_s) for t_s, text in scrapes if text]


async def _scrape(
    client: Client, clock: Callable[[], float], scrapes: list[tuple[float, str]], warmup_s: float
) -> None:
    """Read /metrics as the warm-up ends and every two seconds; parse nothing now."""
    if not scrapes:
        return
    await asyncio.sleep(max(warmup_s - clock(), 0.0))
    while True:
        if text := await client.metrics():
            scrapes.append((clock(), text))
        await asyncio.sleep(SCRAPE_S)


async def _settle(
    client: Client, clock: Callable[[], float], scrapes: list[tuple[float, str]]
) -> None:
    """Read /metrics until its token counters stand still: the last tokens are booked last."""
    before = None
    for _ in range(SETTLE_TRIES):
        text = await client.metrics() or ""
        now = Scrape(text).total("floorline_tokens_total")
        if text:
            scrapes.append((clock(), text))
        if now == before:
            return
        before = now
        await asyncio.sleep(SETTLE_S)


async def _warm(client: Client, plan: Plan, target: Target) -> None:
    """Send every prompt once for one token, before the clock starts."""
    places = asyncio.Semaphore(WARMING)

    async def once(i: int, seed: int, tokens: int) -> None:
        fields = Conversation.begin(target).say(i, seed, tokens)
        async with places:
            body = {"model": target.model, "max_tokens": 1, **fields}
            await client.ask(PATHS[target.api], body, timeout_s=60.0)

    await asyncio.gather(*(once(r.i, r.prompt_seed, r.prompt_tokens) for r in plan.requests))
