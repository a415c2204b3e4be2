"""The subject and the servers that the lab's tests share: known peaks, scripted steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from costmodel.planning.sizes import Width
from lab.measure.server import LoadResult, ServerSlice, ServerStep
from lab.measure.subject import Subject
from loadgen.load.plan import make_plan
from loadgen.load.spec import PlanSpec
from loadgen.report.join import ServerView
from loadgen.run.scrape import Scrape, ScrapeWindow
from tests.unit.costmodel.models import TINYGPT, peaks
from tests.unit.loadgen.summaries import summary_of

FP32 = Width.parse("fp32")
SUBJECT = Subject(config=TINYGPT, weights=FP32, kv=FP32, peaks=peaks())
SLOWDOWN = 3.0  # the scripted machine takes three times the floor

METRICS = """
floorline_lost_seconds_total{cause="host"} 2
floorline_lost_seconds_total{cause="idle"} 5
floorline_floor_seconds_total{kind="decode",regime="memory"} 1
floorline_step_duration_seconds_count{kind="decode"} 100
floorline_bytes_moved_total{op="read",component="weights"} 4e9
floorline_step_segment_seconds_total{segment="forward"} 2
floorline_kv_bytes_per_token 3072
floorline_peak_flops_per_second{arithmetic="fp32"} 1e11
"""


def step(kind: str, slices: list[tuple[int, int]], floor_ms: float) -> ServerStep:
    """A step as /debug/steps shows it: a third is floor, a third host, a third shortfall."""
    return ServerStep(
        index=0,
        kind=kind,
        duration_ms=SLOWDOWN * floor_ms,
        useful_floor_ms=floor_ms,
        lost_ms={"host": floor_ms, "memory_shortfall": floor_ms},
        segments_ms={},
        slices=[ServerSlice(start=start, length=length) for start, length in slices],
        bytes=0,
    )


class ScriptedServer:
    """Answers any load as a machine that takes SLOWDOWN times the floor for each step.

    It keeps up with `capacity` requests per second; `caches` says whether it has a KV cache.
    """

    def __init__(self, subject: Subject, capacity: float = 20.0, caches: bool = True) -> None:
        self.subject, self.capacity, self.caches = subject, capacity, caches

    def scrape(self) -> Scrape:
        return Scrape(METRICS)

    def load(self, plan: PlanSpec) -> LoadResult:
        planned = make_plan(plan).requests
        prompt, output, batch = planned[0].prompt_tokens, planned[0].output_tokens, len(planned)
        prefill = self.subject.prefill(prompt).s * 1e3
        decode = self.subject.decode(batch, prompt + output // 2).s * 1e3
        steps = [step("prefill", [(0, prompt)], prefill)]
        if self.caches:
            steps += [step("decode", [(prompt, 1)] * batch, decode)] * (output - 1)
        else:
            again = self.subject.prefill(prompt + 1).s * 1e3
            steps += [step("prefill", [(0, prompt + 1)], again)] * (output - 1)
        offered = plan.rate or 1.0
        achieved = min(offered, self.capacity)
        empty = summary_of()
        summary = replace(
            empty,
            counted=batch,
            server=ServerView(mean_batch=1.1),
            rates=replace(
                empty.rates, window_s=10.0, offered_per_s=offered, achieved_per_s=achieved
            ),
            metrics={
                "ttft": replace(empty.metrics["ttft"], mean=2 * SLOWDOWN * prefill),
                "itl": replace(empty.metrics["itl"], mean=SLOWDOWN * decode),
            },
        )
        return LoadResult(None, summary, ScrapeWindow(Scrape(""), self.scrape()), steps)  # type: ignore[arg-type]


class ScriptedServers:
    """Starts scripted servers and notes the flags that each was asked for."""

    def __init__(self) -> None:
        self.flags: list[tuple[str, ...]] = []

    @contextmanager
    def serve(self, *flags: str) -> Iterator[ScriptedServer]:
        self.flags.append(flags)
        subject, caches = SUBJECT, True
        if "--weights" in flags:
            width = flags[flags.index("--weights") + 1]
            subject = SUBJECT.stored_as(Width.parse(width))
        if "--kv-cache" in flags:
            caches = flags[flags.index("--kv-cache") + 1] == "on"
        yield ScriptedServer(subject, caches=caches)
