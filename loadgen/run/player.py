"""Send a plan on time: absolute deadlines, nothing skipped, and a watch on the client itself."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from loadgen.load.plan import Planned
from loadgen.load.spec import RunSpec
from loadgen.run.client import Client
from loadgen.run.record import CANCELLED, INTERRUPTED, Exchange, Reading, Record, read_record
from loadgen.run.target import Dialogue, Target

Clock = Callable[[], float]  # seconds since the start of the run; negative before it

LEAD_S = 0.05  # a request's body is built this long before it is due
TICK_S = 0.01
LATE_S = 0.025
MAX_CONNECTIONS = 64


def clock_from(start_s: float) -> Clock:
    """Count from a moment of the monotonic clock, which all processes of a machine share."""
    return lambda: time.monotonic() - start_s


@dataclass(slots=True)
class Progress:
    """What the live line shows: requests sent, late, done and failed, and the TTFTs so far."""

    n: Counter[str] = field(default_factory=Counter)
    ttft_s: list[float] = field(default_factory=list)


def progress_line(parts: Sequence[Progress], total: int) -> str:
    """Show what all workers have done together."""
    n = sum((part.n for part in parts), Counter())
    ttfts_s = [ttft_s for part in parts for ttft_s in part.ttft_s]
    ttft = f"{median(ttfts_s) * 1e3:.0f} ms" if ttfts_s else "–"
    return (
        f"sent {n['sent']}/{total}  late {n['late']}  done {n['done']}  failed {n['failed']}"
        f"  in flight {n['sent'] - n['done']}  TTFT p50 {ttft}"
    )


@dataclass(slots=True)
class Health:
    """How well the client kept up."""

    tick_lags_s: list[float] = field(default_factory=list)  # also of ticks that a stall swallowed
    inflight_sum: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0


Played = tuple[list[Record], Health]


@dataclass(frozen=True, slots=True)
class Job:
    """A share of a plan, and how to send it."""

    target: Target
    spec: RunSpec
    sessions: Sequence[list[Planned]]
    closed: int | None  # the concurrency of a closed loop; None is an open loop


class Player:
    """Plays one job. One event loop, one thread."""

    def __init__(self, client: Client, job: Job) -> None:
        self._client, self._job = client, job
        self._target, self._spec = job.target, job.spec
        self._slots = asyncio.Semaphore(job.spec.max_inflight or 2**31)
        self._sent: list[tuple[Exchange, int]] = []
        self._health = Health()
        self.progress = Progress()

    async def start(self) -> None:
        """Open the connections, before the clock starts."""
        most = self._job.closed or self._spec.max_inflight or MAX_CONNECTIONS
        await self._client.connect(min(most, len(self._job.sessions) or 1))

    async def play(self, start_s: float, stop: asyncio.Event) -> Played:
        """Send everything, or until `stop`; then parse. `start_s` is on the monotonic clock.

        Returns: a record of every request that was sent.
        """
        self._clock = clock_from(start_s)
        cpu_s, began_s = time.process_time(), self._clock()
        ticking = asyncio.create_task(self._tick())
        sending = asyncio.create_task(self._send_all())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({sending, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (sending, stopping, ticking):
            task.cancel()
        await asyncio.gather(stopping, ticking, return_exceptions=True)
        try:
            await sending
        except asyncio.CancelledError:
            assert stop.is_set(), "only an interrupt ends sending"
        self._health.cpu_s = time.process_time() - cpu_s
        self._health.wall_s = self._clock() - max(began_s, 0.0)
        eos = self._spec.ignore_eos
        return [read_record(sent, n, eos) for sent, n in self._sent], self._health

    async def _send_all(self) -> None:
        """Start each session when it is due; in a closed loop, when a place comes free."""
        places = asyncio.Semaphore(self._job.closed or 1)
        async with asyncio.TaskGroup() as group:
            for turns in self._job.sessions:
                if self._job.closed:
                    await self._until(0.0)
                    await places.acquire()
                    session = group.create_task(self._session(turns, None))
                    session.add_done_callback(lambda _: places.release())
                else:
                    await self._until(turns[0].t_s - LEAD_S)
                    group.create_task(self._session(turns, turns[0].t_s))

    async def _session(self, turns: list[Planned], due_s: float | None) -> None:
        """Send turns one after another; `due_s` None is at once."""
        conversation = Dialogue(self._target)
        for n, planned in enumerate(turns):
            body = self._body(conversation, planned)
            intended_s = self._clock() if due_s is None else due_s
            await self._until(intended_s)
            exchange = Exchange(planned, intended_s, self._clock())
            async with self._slots:
                await self._send(exchange, body, conversation.tokens)
            if n + 1 < len(turns):
                due_s = exchange.end_s + turns[n + 1].think_s
                conversation.hear(Reading.of(exchange))

    async def _send(self, exchange: Exchange, body: bytes, prompt_tokens: int) -> None:
        n = self.progress.n
        n["sent"] += 1
        n["late"] += self._clock() - exchange.intended_s > LATE_S
        self._sent.append((exchange, prompt_tokens))
        path = self._target.path
        try:
            await self._client.exchange(path, body, exchange, self._clock, self._spec.timeout)
        finally:
            n["done"] += 1
            answered = exchange.status == 200 and not exchange.failure
            n["failed"] += not answered and exchange.failure not in (CANCELLED, INTERRUPTED)
            if content := Reading.of(exchange, only_first=True).content:
                self.progress.ttft_s.append(content[0][0] - exchange.intended_s)

    def _body(self, conversation: Dialogue, planned: Planned) -> bytes:
        fields = {
            **conversation.say(planned),
            "max_tokens": planned.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        if self._spec.ignore_eos:  # each token past the end has a text, so that its arrival shows
            fields |= {"ignore_eos": True, "skip_special_tokens": False}
        if self._target.floorline:
            fields["return_token_ids"] = True
        return json.dumps({**fields, **(self._spec.body or {})}).encode()

    async def _until(self, t_s: float) -> None:
        if (left_s := t_s - self._clock()) > 0:
            await asyncio.sleep(left_s)

    async def _tick(self) -> None:
        """Note how late each tick is, and how many requests are in flight.

        A tick that a stall swallowed counts with its own lateness; else a stall of seconds would
        be one sample among thousands.
        """
        await self._until(0.0)
        due_s = self._clock() + TICK_S
        while True:
            await self._until(due_s)
            now_s, n = self._clock(), self.progress.n
            inflight = n["sent"] - n["done"]
            while due_s <= now_s:
                self._health.tick_lags_s.append(now_s - due_s)
                self._health.inflight_sum += inflight
                due_s += TICK_S
