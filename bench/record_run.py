"""Records a short real run: the step records of an engine, and what one of its requests was billed.

`python -m bench.record_run > docs/real-run.json`; docs/cost-model.md explains the run, and a test
computes its numbers anew from the records.
"""

from __future__ import annotations

import asyncio
import platform
import sys
from dataclasses import asdict
from typing import Any

import msgspec

from bench.command import Command, start
from bench.engine import QuietListener, running
from core.formats import KVFormat, Storage
from core.machine import Peaks
from core.model import ModelConfig
from core.request import FinishReason, RequestId, SamplingParams
from core.settings import EngineSettings, TelemetrySettings
from core.wire import Fault, Idle, Ready, StepReport, Submit
from server.engines.client import EngineClient
from telemetry.telemetry import Telemetry

USD_PER_HOUR = 0.10
PREFIX = tuple(range(1000, 1032))  # both prompts begin so: two blocks are shared
FIRST = Submit(RequestId("a"), (*PREFIX, *range(2000, 2016)), 5, SamplingParams(temperature=0), ())
SECOND = Submit(RequestId("b"), (*PREFIX, *range(3000, 3008)), 4, SamplingParams(temperature=0), ())


class RealRun(msgspec.Struct, frozen=True):
    """All that the bill of `request` follows from, and the bill."""

    machine: str
    model: ModelConfig
    storage: Storage
    kv_dtype: KVFormat
    peaks: Peaks
    usd_per_hour: float
    request: RequestId
    cost: dict[str, Any]
    steps: tuple[StepReport, ...]


class Recorder:
    """Hears what the telemetry hears, and sends the second request once the first is decoding."""

    def __init__(self, telemetry: Telemetry, client: EngineClient) -> None:
        self._telemetry, self._client = telemetry, client
        self.steps: list[StepReport] = []
        self.idle = asyncio.Event()

    def send(self, request: Submit) -> None:
        self._telemetry.on_received(request.id, len(request.prompt_ids))
        self._client.submit(request, QuietListener())

    def on_report(self, report: StepReport) -> None:
        self.steps.append(report)
        self._telemetry.on_report(report)
        if len(self.steps) == 1:
            self.send(SECOND)

    def on_idle(self, idle: Idle) -> None:
        self._telemetry.on_idle(idle)
        if self.steps:
            self.idle.set()

    def on_fault(self, fault: Fault) -> None:
        raise RuntimeError(f"{fault.kind}: {fault.message}")

    def wants_peaks(self) -> bool:
        return False

    def on_peaks(self, peaks: Peaks) -> None: ...
    def on_finish_sent(self, id: RequestId, n_tokens: int, reason: FinishReason) -> None: ...


async def record() -> RealRun:
    async with running(EngineSettings()) as (client, ready):
        telemetry = Telemetry(ready.model.name, TelemetrySettings(price_per_hour=USD_PER_HOUR))
        telemetry.on_ready(ready)
        recorder = Recorder(telemetry, client)
        reading = asyncio.create_task(client.run(recorder))
        recorder.send(FIRST)
        await recorder.idle.wait()
        cost = asdict(telemetry.cost([FIRST.id]))
    await reading
    return run_of(ready, recorder.steps, cost)


def run_of(ready: Ready, steps: list[StepReport], cost: dict[str, Any]) -> RealRun:
    kernels = f"{ready.backend} kernels ({ready.isa}), {ready.threads} threads"
    return RealRun(
        machine=f"{platform.machine()}, {kernels}",
        model=ready.model,
        storage=ready.storage,
        kv_dtype=ready.kv_dtype,
        peaks=ready.peaks,
        usd_per_hour=USD_PER_HOUR,
        request=FIRST.id,
        cost=cost,
        steps=tuple(steps),
    )


def options() -> Command:
    return Command("bench.record_run", __doc__)


def main() -> None:
    options().parse_args()
    text = msgspec.json.encode(asyncio.run(record()))
    sys.stdout.write(msgspec.json.format(text, indent=0).decode() + "\n")


if __name__ == "__main__":
    start(main)
