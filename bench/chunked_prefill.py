"""What chunked prefill buys: tokens' latency in running streams while long prompts arrive.

`python -m bench.chunked_prefill [--model tinygpt] [--goal-ms 30] [--json FILE] [--svg FILE]` runs
the real engine loop in this process, once for each way to size a step: whole prompts in one step,
fixed budgets, and `auto`, which sizes chunks by the cost model for a goal. Eight streams run; each
time that they have gained some tokens, a prompt of 2,000 tokens arrives. Nothing is random but the
token ids, which are seeded. With `--processor-time` one thread runs and its processor time is the
clock, so that other work on the machine does not count.
"""

from __future__ import annotations

import json
import platform
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from math import log10
from queue import SimpleQueue
from typing import Any

from bench.command import Command, start, told
from core.errors import SettingsError
from core.request import RequestId, SamplingParams
from core.settings import EngineSettings, ModelSettings, SchedulerSettings
from core.step import StepPlan, StepResult
from core.wire import Drain, FromEngine, StepReport, Submit
from costmodel.sums import ModelSums
from engine.load.load import load_engine
from engine.loop import EngineLoop, Runner
from kvcache.pool import BlockPool
from loadgen.load.spec import positive
from scheduler.pace import pace_for, step_limit
from scheduler.scheduler import Scheduler

STREAMS, STREAM_TOKENS, LONG_PROMPT, LONG_PROMPTS = 8, 240, 2_000, 6
WHOLE = 4_096  # a budget that no step here fills: every prompt in one piece
COLOURS = ("#c0392b", "#e08e0b", "#2980b9", "#27ae60", "#8e44ad")


@dataclass
class Run:
    """One way to size a step, and what came of it. Latencies in ms."""

    name: str
    limits: SchedulerSettings
    latencies_ms: list[float] = field(default_factory=list)  # between tokens of the streams
    first_tokens_ms: list[float] = field(default_factory=list)  # of the long prompts
    tokens_per_s: float = 0.0

    def row(self) -> dict[str, Any]:
        cuts = statistics.quantiles(self.latencies_ms, n=100)
        return {
            "way": self.name,
            "itl_p50_ms": cuts[49],
            "itl_p99_ms": cuts[98],
            "itl_max_ms": max(self.latencies_ms),
            "long_ttft_p50_ms": statistics.median(self.first_tokens_ms),
            "tokens_per_s": self.tokens_per_s,
        }


class Traffic:
    """Feeds the loop: the streams at once, a long prompt at each mark of their progress."""

    def __init__(self, run: Run, vocab_size: int) -> None:
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        self._run, self._draw, self._vocab_size = run, random.Random(7), vocab_size
        self._last_ns: dict[str, int] = {}
        self._asked_ns: dict[str, int] = {}
        self._marks = [20 + 30 * number for number in range(LONG_PROMPTS)]
        self._gained = self._tokens = self._start_ns = 0
        for number in range(STREAMS):
            self._submit(f"stream-{number}", 64, STREAM_TOKENS)
        self._left = STREAMS + LONG_PROMPTS

    def _submit(self, name: str, prompt: int, max_tokens: int) -> None:
        ids = tuple(self._draw.randrange(self._vocab_size) for _ in range(prompt))
        greedy = SamplingParams(temperature=0.0)
        self.inbox.put(Submit(RequestId(name), ids, max_tokens, greedy, ()))

    def publish(self, message: FromEngine) -> None:
        if not isinstance(message, StepReport):
            return
        self._start_ns = self._start_ns or message.start_ns
        self._tokens += sum(piece.length for piece in message.slices)
        for id, _ in message.tokens:
            self._hear(id, message.end_ns)
        if self._marks and self._gained >= self._marks[0] * STREAMS:
            self._marks.pop(0)
            name = f"long-{len(self._marks)}"
            self._asked_ns[name] = message.end_ns
            self._submit(name, LONG_PROMPT, 1)
        self._left -= len(message.ended)
        if not self._left:
            self._run.tokens_per_s = self._tokens * 1e9 / (message.end_ns - self._start_ns)
            self.inbox.put(Drain())

    def _hear(self, id: str, now_ns: int) -> None:
        if id in self._asked_ns:
            self._run.first_tokens_ms.append((now_ns - self._asked_ns[id]) / 1e6)
            return
        self._gained += 1
        if id in self._last_ns:
            self._run.latencies_ms.append((now_ns - self._last_ns[id]) / 1e6)
        self._last_ns[id] = now_ns


class ProcessorTimed:
    """A runner whose steps took what the thread's processor was at work for them."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def execute(self, plan: StepPlan) -> StepResult:
        start_ns = time.thread_time_ns()
        result = self._runner.execute(plan)
        return replace(result, forward_ns=time.thread_time_ns() - start_ns, sample_ns=0)


def measure(run: Run, model: str, processor_time: bool) -> None:
    """Run the traffic through a fresh engine.

    Mutates: `run`, which takes the figures.
    Raises:
        ModelError, SettingsError: no such model, or its context does not hold a long prompt.
    """
    settings = EngineSettings(
        model=ModelSettings(model=model),
        scheduler=run.limits,
        threads=1 if processor_time else None,
    )
    engine = load_engine(settings, progress=lambda _: None)
    if engine.ready.max_model_len <= LONG_PROMPT:
        limit = f"--model {model}: its context limit here is {engine.ready.max_model_len} tokens"
        raise SettingsError(f"{limit}, no more than a prompt's {LONG_PROMPT}")
    engine.warm_up()
    traffic = Traffic(run, min(engine.ready.model.vocab_size, 256))
    sums = ModelSums.of(engine.ready.model, engine.ready.storage, engine.ready.kv_dtype)
    pool = BlockPool(engine.ready.num_blocks, engine.ready.block_size)
    scheduler = Scheduler(pool, run.limits, pace_for(run.limits, sums, engine.ready.peaks))
    clock = time.thread_time_ns if processor_time else time.monotonic_ns
    runner = ProcessorTimed(engine.runner) if processor_time else engine.runner
    EngineLoop(scheduler, runner, traffic.inbox, traffic.publish, clock).run()


def ways(goal_ms: float) -> list[Run]:
    fixed = [
        Run(name, SchedulerSettings(max_num_batched_tokens=tokens))
        for name, tokens in (("whole prompts", WHOLE), ("512 tokens", 512), ("128 tokens", 128))
    ]
    auto = SchedulerSettings(itl_goal=goal_ms / 1e3)
    return [*fixed, Run(f"auto, itl={goal_ms:g}ms, at most {step_limit(auto)}", auto)]


def picture(runs: Sequence[Run], title: str) -> str:
    """Draw the share of tokens (up) that came within a latency (across, logarithmic)."""
    low = min(min(run.latencies_ms) for run in runs)
    high = max(max(run.latencies_ms) for run in runs)
    across = 560 / log10(high / low)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 420" font-family="sans-serif">',
        '<rect width="720" height="420" fill="#fff"/>',
        f'<text x="60" y="28" font-size="15">{title}</text>',
    ]
    for share in (0.0, 0.5, 0.9, 0.99):
        y = _height(share)
        parts.append(f'<path d="M60 {y:.1f}H640" stroke="#ddd"/>')
        parts.append(f'<text x="22" y="{y + 4:.1f}" font-size="11">{share * 100:g} %</text>')
    tick = 10 ** int(log10(low))
    while tick <= high:
        if tick >= low:
            x = 60 + across * log10(tick / low)
            parts.append(f'<path d="M{x:.1f} 50V360" stroke="#eee"/>')
            parts.append(f'<text x="{x - 14:.1f}" y="378" font-size="11">{tick:g} ms</text>')
        tick *= 10
    for number, (run, colour) in enumerate(zip(runs, COLOURS, strict=False)):
        ranked = sorted(run.latencies_ms)
        points = " ".join(
            f"{60 + across * log10(value / low):.1f},{_height(rank / len(ranked)):.1f}"
            for rank, value in enumerate(ranked)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        where = f'x="360" y="{300 + 17 * number}" font-size="12" fill="{colour}"'
        parts.append(f"<text {where}>{run.name}</text>")
    return "\n".join([*parts, "</svg>\n"])


def _height(share: float) -> float:
    """Spread the tail: 0 at the bottom, each nine as high as the one before."""
    return 360 - 100 * -log10(1 - min(share, 0.999))


def options() -> Command:
    parser = Command("bench.chunked_prefill", __doc__)
    parser.option("--model", "what runs, as for serve", default="tinygpt")
    goal = "time between tokens that auto sizes chunks for, in ms"
    parser.option("--goal-ms", goal, type=told(positive), default=30.0, metavar="MS")
    clock = "run one thread, and time it by its processor seconds"
    parser.option("--processor-time", clock, "by the wall's clock", action="store_true")
    parser.file("--json", "the rows and every way's limits")
    parser.file("--svg", "a plot of the latencies")
    return parser


def main() -> None:
    chosen = options().parse_args()
    runs = ways(chosen.goal_ms)
    for run in runs:
        measure(run, chosen.model, chosen.processor_time)
        row = run.row()
        if run is runs[0]:
            print(" | ".join(row))
        cells = (f"{v:.4g}" if isinstance(v, float) else v for v in row.values())
        print(" | ".join(cells), flush=True)
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    if chosen.json:
        record = {"machine": machine, "model": chosen.model, "rows": [run.row() for run in runs]}
        record["limits"] = [asdict(run.limits) for run in runs]
        chosen.json.write_text(json.dumps(record, indent=1) + "\n")
    if chosen.svg:
        title = f"Time between tokens of 8 streams while prompts of 2,000 arrive ({chosen.model})"
        chosen.svg.write_text(picture(runs, title))


if __name__ == "__main__":
    start(main)
