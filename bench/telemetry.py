"""What telemetry costs: one engine, watched and unwatched by turns, in one run.

`python -m bench.telemetry [--model smollm2-135m] [--rounds 20] [--json FILE]` starts the real
engine process and decodes the same batches over and over, to short answers and to long ones. In
every second round this process keeps the books of each step, as a server does after the tokens
went out; in the others it only reads the messages. `books_us` is all the CPU time that telemetry
took in a round, with opening and closing its requests, over the round's decode steps. What a long
round took more than a short one is what its further steps cost: that, beside the step, has the
goal of 1 %. The rest is the price of a round's answers, whatever their length.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.command import Command, start
from bench.engine import QuietListener, running
from core.errors import ServiceError
from core.machine import Peaks
from core.request import FinishReason, RequestId, SamplingParams
from core.settings import EngineSettings, ModelSettings, TelemetrySettings
from core.wire import Fault, Idle, Ready, StepReport, Submit
from server.engines.client import EngineClient
from telemetry.telemetry import Telemetry

GOAL_PERCENT = 1.0
BATCHES = (1, 32)
SHORT, LONG = 48, 256  # tokens of an answer
PROMPT_TOKENS = 32


class Switch:
    """An observer that lets telemetry see a round, or nothing."""

    def __init__(self, telemetry: Telemetry, vocab_size: int) -> None:
        self._telemetry, self.vocab_size = telemetry, vocab_size
        self.watching = False
        self.steps_ns: list[int] = []  # of decode steps in which all rows ran
        self.books_ns = 0  # CPU time of all that telemetry was told in a round
        self.batch = 0
        self.idle = asyncio.Event()

    def tell(self, method: Callable[..., None], *what: object) -> None:
        """Call one of telemetry's methods, or none, and count its time and the clock's own."""
        begin_ns = time.thread_time_ns()
        if self.watching:
            method(*what)
        self.books_ns += time.thread_time_ns() - begin_ns

    def on_report(self, report: StepReport) -> None:
        self.tell(self._telemetry.on_report, report)
        if len(report.slices) == self.batch and all(s.length == 1 for s in report.slices):
            self.steps_ns.append(report.end_ns - report.start_ns)

    def on_idle(self, idle: Idle) -> None:
        self.tell(self._telemetry.on_idle, idle)
        self.idle.set()

    def on_fault(self, fault: Fault) -> None:
        raise RuntimeError(f"{fault.kind}: {fault.message}")

    def wants_peaks(self) -> bool:
        return False

    def on_peaks(self, peaks: Peaks) -> None: ...
    def on_finish_sent(self, id: RequestId, n_tokens: int, reason: FinishReason) -> None: ...


def prompt_of(row: int, vocab_size: int) -> tuple[int, ...]:
    """Give a row of the batch a prompt of its own, the same in every round."""
    return tuple((row + 7 * k) % vocab_size for k in range(PROMPT_TOKENS))


async def run_round(
    client: EngineClient, telemetry: Telemetry, switch: Switch, number: int, tokens: int
) -> None:
    """Decode one batch to its end.

    Raises:
        ServiceError: a request failed, or the engine did.
    """
    all_ended, live = asyncio.Event(), switch.batch
    switch.idle.clear()
    ids = [RequestId(f"{switch.batch}/{number}/{row}") for row in range(live)]

    def wake() -> None:
        if all(listener.end is not None for listener in listeners):
            all_ended.set()

    listeners = [QuietListener(wake) for _ in ids]
    for row, (id, listener) in enumerate(zip(ids, listeners, strict=True)):
        prompt = prompt_of(row, switch.vocab_size)
        greedy = SamplingParams(temperature=0)
        client.submit(Submit(id, prompt, tokens, greedy, ()), listener)
        switch.tell(telemetry.on_received, id, len(prompt))
    await all_ended.wait()
    for listener in listeners:
        if isinstance(listener.end, ServiceError):
            raise listener.end
    await switch.idle.wait()  # the observer sees the last step after its listeners did
    switch.tell(telemetry.forget, ids)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    settings = EngineSettings(model=ModelSettings(model=options.model))
    async with running(settings) as (client, ready):
        telemetry = Telemetry(ready.model.name, TelemetrySettings(price_per_hour=0.1))
        telemetry.on_ready(ready)
        switch = Switch(telemetry, ready.model.vocab_size)
        reading = asyncio.create_task(client.run(switch))
        figures = [
            await compare(client, telemetry, switch, batch, tokens, options.rounds)
            for batch in BATCHES
            for tokens in (SHORT, LONG)
        ]
    await reading
    prices = [price(*figures[i : i + 2]) for i in range(0, len(figures), 2)]
    about = {"machine": machine(ready), "load": os.getloadavg()}
    return about | {"figures": figures, "prices": prices}


async def compare(
    client: EngineClient,
    telemetry: Telemetry,
    switch: Switch,
    batch: int,
    tokens: int,
    rounds: int,
) -> dict[str, Any]:
    """Alternate watched and unwatched rounds of one batch size; the first of each warms up."""
    switch.batch = batch
    steps_ns: dict[bool, list[int]] = {True: [], False: []}
    # of a step, by round, since steps are booked in bursts; unwatched rounds have the clock's alone
    books_ns: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * rounds + 2):
        switch.watching = number % 2 == 0
        switch.steps_ns, switch.books_ns = [], 0
        await run_round(client, telemetry, switch, number, tokens)
        if number >= 2:
            steps_ns[switch.watching] += switch.steps_ns
            books_ns[switch.watching].append(switch.books_ns / len(switch.steps_ns))
    watched_ms, unwatched_ms = (statistics.median(steps_ns[on]) / 1e6 for on in (True, False))
    watched_us, clock_us = (statistics.median(books_ns[on]) / 1e3 for on in (True, False))
    books_us = watched_us - clock_us
    return {
        "batch": batch,
        "tokens": tokens,
        "steps": len(steps_ns[True]),
        "steps_of_a_round": len(steps_ns[True]) / rounds,
        "books_us": books_us,
        "clock_us": clock_us,
        "step_unwatched_ms": unwatched_ms,
        "step_watched_ms": watched_ms,
        "books_percent_of_step": books_us / 10 / unwatched_ms,
        "step_slower_percent": 100 * (watched_ms / unwatched_ms - 1),
    }


def price(short: dict[str, Any], long: dict[str, Any]) -> dict[str, float]:
    """Split the books' time into that of a step and that of a round's answers."""
    extra_us = long["steps"] * long["books_us"] - short["steps"] * short["books_us"]
    step_us = extra_us / (long["steps"] - short["steps"])
    return {
        "batch": short["batch"],
        "step_us": step_us,
        "percent_of_step": step_us / 10 / short["step_unwatched_ms"],
        "answers_us": short["steps_of_a_round"] * (short["books_us"] - step_us),
    }


def machine(ready: Ready) -> str:
    kernels = f"{ready.backend} {ready.isa}, {ready.threads} threads"
    return f"{platform.machine()}, Python {platform.python_version()}, {kernels}"


def options() -> Command:
    parser = Command("bench.telemetry", __doc__)
    parser.option("--model", "what runs, as for serve", default="smollm2-135m")
    parser.count("--rounds", 20, "rounds watched, and as many unwatched")
    parser.file("--json", "the figures")
    return parser


def main() -> None:
    chosen = options().parse_args()
    result = asyncio.run(measure(chosen))
    for figure in (*result["figures"], *result["prices"]):
        print(" ".join(f"{name}={value:.5g}" for name, value in figure.items()))
    worst = max(price["percent_of_step"] for price in result["prices"])
    print(f"{result['machine']}: worst {worst:.2f} % of the step (goal {GOAL_PERCENT} %)")
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    start(main)
