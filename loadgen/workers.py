"""One share of a plan, in this process or in several: each worker sends every N-th session.

The same plan is sent for any number of workers; they share one monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from core.errors import SettingsError
from loadgen.arrivals import parse_arrival
from loadgen.client import Client
from loadgen.observe import Record
from loadgen.plan import Plan, Planned
from loadgen.player import Health, Played, Player, Progress
from loadgen.prompts import Target
from loadgen.spec import RunSpec

START_S = 0.2  # between the last worker's readiness and the start of the clock
REPORT_S = 0.5
MAX_CONNECTIONS = 64
LINE_LIMIT_BYTES = 2**26  # of one record on the pipe


@dataclass(frozen=True, slots=True)
class Job:
    """All that a worker is told, but for when the clock starts."""

    target: Target
    spec: RunSpec
    sessions: tuple[list[Planned], ...]
    closed: int | None

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @staticmethod
    def parse(line: str) -> Job:
        fields = json.loads(line)
        spec: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields["spec"].items()
        }
        sessions = tuple([Planned(**turn) for turn in turns] for turns in fields["sessions"])
        return Job(Target.from_json(fields["target"]), RunSpec(**spec), sessions, fields["closed"])


def share_out(plan: Plan, spec: RunSpec, target: Target) -> list[Job]:
    """Deal sessions to the workers, and split what is bounded over all of them.

    Raises:
        SettingsError: a bound that is smaller than the number of workers.
    """
    sessions, n = plan.sessions(), spec.workers
    arrival = parse_arrival(plan.spec["arrival"])
    closed = int(arrival.a) if arrival.kind == "closed" and not plan.spec["trace"] else None
    for bound in (spec.max_inflight, closed):
        if bound is not None and bound < n:
            raise SettingsError(f"--workers {n}: more than the {bound} requests in flight allowed")

    def part(total: int | None, worker: int) -> int | None:
        return None if total is None else total // n + (worker < total % n)

    return [
        Job(
            target,
            replace(spec, max_inflight=part(spec.max_inflight, worker)),
            tuple(sessions[worker::n]),
            part(closed, worker),
        )
        for worker in range(n)
    ]


def connections(job: Job) -> int:
    return min(job.closed or job.spec.max_inflight or MAX_CONNECTIONS, len(job.sessions) or 1)


async def play_here(
    client: Client, job: Job, clock: Callable[[], float], stop: asyncio.Event, progress: Progress
) -> Played:
    player = Player(client, job.target, job.spec, clock, job.closed)
    player.progress = progress
    return await player.play(job.sessions, stop)


class Remote:
    """A worker process, seen from the parent."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.progress = Progress()

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "loadgen.workers"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT_BYTES,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(self._job.line())
        ready = await self._process.stdout.readline()
        assert ready == b"ready\n", "a worker process ended before the run"

    async def play(self, start_s: float, stop: asyncio.Event) -> Played:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{start_s!r}\n".encode())
        stopping = asyncio.create_task(self._forward(stop))
        played = Played([], Health())
        async for line in self._process.stdout:
            [(kind, fields)] = json.loads(line).items()
            if kind == "progress":
                self.progress.__init__(**fields)  # type: ignore[misc]
            elif kind == "record":
                played.records.append(Record(**fields))
            else:
                played.health = Health(**fields)
        stopping.cancel()
        code = await self._process.wait()
        assert code == 0, f"a worker process ended with {code}"
        return played

    async def _forward(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._process.send_signal(signal.SIGINT)


def tell(kind: str, value: Any) -> None:
    print(json.dumps({kind: asdict(value)}), flush=True)


async def tell_progress(progress: Progress) -> None:
    while True:
        await asyncio.sleep(REPORT_S)
        tell("progress", replace(progress, ttft_s=progress.ttft_s[-50:]))


async def worker() -> None:
    """Serve one job from standard input to standard output."""
    job = Job.parse(sys.stdin.readline())
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    client = Client(job.target.url, job.spec)
    await client.connect(connections(job))
    print("ready", flush=True)
    start_s = float(sys.stdin.readline())
    progress = Progress()
    telling = asyncio.create_task(tell_progress(progress))
    played = await play_here(client, job, lambda: time.monotonic() - start_s, stop, progress)
    telling.cancel()
    await client.close()
    for record in played.records:
        tell("record", record)
    tell("health", played.health)


def merge(parts: Sequence[Progress]) -> Progress:
    """Sum what several workers show."""
    return Progress(
        sum(part.sent for part in parts),
        sum(part.late for part in parts),
        sum(part.done for part in parts),
        sum(part.failed for part in parts),
        [value for part in parts for value in part.ttft_s],
    )


if __name__ == "__main__":
    asyncio.run(worker())
