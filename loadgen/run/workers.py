"""One share of a plan, in this process or in several: each worker sends every N-th session.

The same plan is sent for any number of workers; they share one monotonic clock.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection

from core.errors import SettingsError
from loadgen.load.plan import Plan
from loadgen.load.spec import RunSpec
from loadgen.run.client import Client
from loadgen.run.player import Job, Played, Player, Progress
from loadgen.run.target import Target

REPORT_S = 0.5
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
