"""The cost model against the machine: measured forward time over a grid, beside what is predicted.

`python -m bench.validate_costmodel [--model tinygpt] [--backend torch] [--json FILE] [--html FILE]`
runs the real engine's runner over decode batches × contexts and over prefill lengths, and fits

    forward = overhead + bytes / bandwidth + FLOPs / rate

It reports the implied rates, R², the worst residual and where it sits, violations of the floor, and
what each further term would explain: where one brings R² up, that is the term that is missing.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from bench.command import Command, start
from core.errors import SettingsError
from core.formats import Backend
from core.machine import Peaks
from core.request import BlockId, Request, RequestId
from core.settings import EngineSettings, KVSettings, ModelSettings, SchedulerSettings
from core.step import Slice, StepPlan
from core.wire import SliceRecord
from costmodel.floor import floors_of
from costmodel.sums import ModelSums
from engine.load.load import Engine, load_engine

BATCHES = (1, 2, 4, 8, 16, 32)
CONTEXTS = (16, 64, 256, 1024, 4096)
PREFILLS = (8, 16, 32, 64, 128, 256, 512)
COUNTERS = "LLC-load-misses"
MAX_TERMS = 4  # of a fit: overhead, bytes, FLOPs and one further


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One cell of the grid. `floor_s` is None where a peak is unknown."""

    kind: str
    batch: int
    context: int
    length: int
    bytes: int
    kv_bytes: int  # of `bytes`
    flops: int
    attention_flops: int  # of `flops`
    forward_s: float
    floor_s: float | None

    @property
    def where(self) -> str:
        return f"{self.kind}: {self.batch} × {self.length} tokens after {self.context}"


def options() -> Command:
    parser = Command("bench.validate_costmodel", __doc__)
    parser.option("--model", "what runs, as for serve", default="tinygpt")
    backends = [str(backend) for backend in Backend]
    parser.option("--backend", "what computes", choices=backends, default="auto")
    memory = "memory for the KV store; 1MB is 10^6 bytes, 1MiB is 2^20"
    parser.option("--kv-memory", memory, default="1GiB", metavar="SIZE")
    parser.count("--passes", 5, "passes of each step, of which the best counts")
    parser.file("--json", "the points and the fit")
    parser.file("--html", "a page that plots them")
    return parser


def main() -> None:
    chosen = options().parse_args()
    engine = load_engine(
        EngineSettings(
            model=ModelSettings(model=chosen.model),
            kv=KVSettings(kv_memory=chosen.kv_memory),
            scheduler=SchedulerSettings(max_num_batched_tokens=max(PREFILLS)),
            backend=Backend(chosen.backend),
        )
    )
    before = os.getloadavg()
    points = measure_grid(engine, chosen.passes)
    result = fit(points) | {
        "model": chosen.model,
        "machine": f"{platform.processor() or platform.machine()}, {engine.ready.threads} threads",
        "load_average": [*before, *os.getloadavg()],
        "backend": f"{engine.ready.backend} ({engine.ready.isa})",
        "hardware_counters": hardware_counters(),
        "points": [asdict(point) for point in points],
    }
    for name, value in result.items():
        if name != "points":
            print(f"{name:32} {value}")
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1))
    if chosen.html:
        picture(points, engine.ready.peaks, result).write_html(chosen.html, include_plotlyjs="cdn")


def measure_grid(engine: Engine, passes: int) -> list[Point]:
    """Run every cell that the context limit and the KV store hold.

    Raises:
        SettingsError: too few to fit.
    """
    slots = engine.ready.num_blocks * engine.ready.block_size
    cells = [("decode", batch, context, 1) for context in CONTEXTS for batch in BATCHES]
    cells += [("prefill", 1, 0, length) for length in PREFILLS]
    held = [
        cell
        for cell in cells
        if cell[1] * (cell[2] + cell[3] + engine.ready.block_size) <= slots
        and cell[2] + cell[3] <= engine.ready.max_model_len
    ]
    if len(held) <= MAX_TERMS:
        few = f"{slots} tokens hold {len(held)} steps of the grid"
        raise SettingsError(f"--kv-memory: {few}, too few for a fit of {MAX_TERMS} terms")
    return [measure(engine, passes, *cell) for cell in held]


def measure(engine: Engine, passes: int, kind: str, batch: int, context: int, length: int) -> Point:
    requests = [_request(engine, number, context + length) for number in range(batch)]
    plan = StepPlan(tuple(Slice(request, context, length, samples=True) for request in requests))
    forwards_ns = [engine.runner.execute(plan).forward_ns for _ in range(passes)]
    sums = ModelSums.of(engine.ready.model, engine.ready.storage, engine.ready.kv_dtype)
    records = tuple(
        SliceRecord(request.id, context, length, 1, 0, 0, len(request.block_table))
        for request in requests
    )
    distinct = len({request.token_at(context + k) for request in requests for k in range(length)})
    work = sums.work(records, (), distinct)
    floors = floors_of(work, engine.ready.peaks)
    return Point(
        kind=kind,
        batch=batch,
        context=context,
        length=length,
        bytes=work.bytes_total.item(),
        kv_bytes=(work.kv_read_bytes + work.kv_write_bytes).item(),
        flops=work.flops.item(),
        attention_flops=work.attention_flops.item(),
        forward_s=min(forwards_ns) / 1e9,
        floor_s=floors.s.item() if floors.known.all() else None,
    )


def _request(engine: Engine, number: int, tokens: int) -> Request:
    """A request with blocks of its own, whose keys and values are whatever the store holds."""
    blocks = -(-tokens // engine.ready.block_size)
    prompt = tuple((7 * k + number) % engine.ready.model.vocab_size for k in range(tokens))
    return Request(
        id=RequestId(str(number)),
        prompt_ids=prompt,
        max_tokens=1,
        block_table=[BlockId(number * blocks + k) for k in range(blocks)],
    )


FURTHER_TERMS: dict[str, Callable[[Point], float]] = {
    "tokens": lambda point: point.batch * point.length,
    "tokens of context": lambda point: point.batch * point.context,
    "bytes of KV apart": lambda point: point.kv_bytes,
    "FLOPs of attention apart": lambda point: point.attention_flops,
}


def fit(points: Sequence[Point]) -> dict[str, Any]:
    """Fit by least squares of relative error, so that short steps count as much as long ones."""
    measured = np.array([point.forward_s for point in points])
    terms = np.array([[1.0, point.bytes, point.flops] for point in points])
    factors = _positive_factors(terms / measured[:, None])
    overhead_s, per_byte, per_flop = factors
    residuals = measured - terms @ factors
    worst = int(np.argmax(np.abs(residuals / measured)))
    apart = np.column_stack([terms, [point.attention_flops for point in points]])
    slower = _positive_factors(apart / measured[:, None])  # what a FLOP of attention takes more
    floors = [(point, point.floor_s) for point in points if point.floor_s is not None]
    violated = [point.where for point, floor_s in floors if point.forward_s < floor_s]
    return {
        "overhead_ms": overhead_s * 1e3,
        "implied_bytes_per_s": _rate(per_byte),
        "implied_flops_per_s": _rate(per_flop),
        "r_squared": _r_squared(terms, measured),
        "r_squared_with": {
            name: _r_squared(np.column_stack([terms, [term(p) for p in points]]), measured)
            for name, term in FURTHER_TERMS.items()
        },
        "with_attention_apart": {
            "implied_bytes_per_s": _rate(slower[1]),
            "implied_flops_per_s": _rate(slower[2]),
            "implied_attention_flops_per_s": _rate(slower[2] + slower[3]),
            "mean_relative_residual": float(np.abs(1 - apart @ slower / measured).mean()),
        },
        "mean_relative_residual": float(np.abs(residuals / measured).mean()),
        "worst_relative_residual": float(residuals[worst] / measured[worst]),
        "worst_at": points[worst].where,
        "best_efficiency": max((floor_s / p.forward_s for p, floor_s in floors), default=None),
        "floor_violations": len(violated),
        "violated_at": violated,
    }


def _rate(seconds_each: float) -> float | None:
    """Turn a factor into a rate; a term that takes no time has none."""
    return float(1 / seconds_each) if seconds_each > 0 else None


def _r_squared(terms: np.ndarray, measured: np.ndarray) -> float:
    """Say what share of the steps' spread the terms explain, fitted anew."""
    residuals = measured - terms @ _positive_factors(terms / measured[:, None])
    spread = float(((measured - measured.mean()) ** 2).sum())
    return 1 - float((residuals**2).sum()) / spread


def _positive_factors(rows: np.ndarray) -> np.ndarray:
    """Solve rows · factors ≈ 1; a term that would take time away is left out, and shown as 0."""
    kept = list(range(rows.shape[1]))
    while True:
        found = np.linalg.lstsq(rows[:, kept], np.ones(len(rows)), rcond=None)[0]
        if found.min() >= 0:
            break
        kept.pop(int(found.argmin()))
    factors = np.zeros(rows.shape[1])
    factors[kept] = found
    return factors


def hardware_counters() -> str:
    """Say whether the machine lets anybody count its cache misses."""
    try:
        result = subprocess.run(
            ["perf", "stat", "-x,", "-e", COUNTERS, "true"],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return "perf is not installed"
    count = result.stderr.split(",")[0].strip()
    return f"{COUNTERS} can be read" if count.isdigit() else f"{COUNTERS} cannot be read here"


def picture(points: Sequence[Point], peaks: Peaks, result: dict[str, Any]) -> go.Figure:
    """Draw measured against floor, with the line where both are equal."""
    figure = go.Figure()
    for kind in ("decode", "prefill"):
        own = [p for p in points if p.kind == kind and p.floor_s is not None]
        figure.add_scatter(
            x=[p.flops / p.bytes for p in own],
            y=[p.flops / p.forward_s for p in own],
            text=[p.where for p in own],
            mode="markers",
            name=f"{kind}, measured",
        )
        figure.add_scatter(
            x=[p.flops / p.bytes for p in own],
            y=[p.flops / p.floor_s for p in own if p.floor_s],
            mode="markers",
            marker={"symbol": "line-ew-open"},
            name=f"{kind}, floor",
        )
    intensities = np.geomspace(0.25, 1024, 60)
    if peaks.dram is not None and peaks.flops is not None:
        roof = np.minimum(intensities * peaks.dram.per_s, peaks.flops.per_s)
        figure.add_scatter(x=intensities, y=roof, mode="lines", name="roofs")
    figure.update_xaxes(type="log", title="FLOPs per byte")
    figure.update_yaxes(type="log", title="FLOP/s")
    figure.update_layout(title=f"{result['model']}: R² {result['r_squared']:.3f}")
    return figure


if __name__ == "__main__":
    start(main)
