"""How a decode step's time grows with its batch and with its context: measured, predicted, peer's.

    python -m bench.growth --svg docs/growth.svg [--json FILE]
        [--peer-python VENV/bin/python --models F16.gguf Q8_0.gguf Q4_1.gguf]

Runs the real engine in this process in fp16 and in the fastest width, beside llama.cpp where a
Python that has it is named. Predicted are the floor, from calibrated peaks, and the fit of
`bench.validate_costmodel`: overhead + bytes / bandwidth + FLOPs / rate, over the steps shown.
Times are of the forward pass, without sampling, and the best of all passes on either side.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.command import Command, program, start, to_read
from bench.log_plot import DASHED, DOTTED, SOLID, Line, Plot, svg
from bench.peer import Peer
from bench.validate_costmodel import Point, fit, measure
from core.errors import SettingsError
from core.formats import WeightFormat
from core.settings import EngineSettings, KVSettings, ModelSettings
from engine.load.load import Engine, load_engine

WIDTHS = (WeightFormat.FP16, WeightFormat.NATIVE)
BATCHES = (1, 2, 4, 8, 16, 32)
CONTEXTS = (64, 256, 1024, 4096, 8192)
CONTEXT = 128  # of every batch
KV_MEMORY = "1GiB"
PEER_STEPS = 8  # the last of them ends at the context that is asked for
OURS, PEERS = ("#c0392b", "#2980b9"), ("#e08e0b", "#27ae60", "#8e44ad")


@dataclass(frozen=True, slots=True)
class Grown:
    """The steps of one engine: ours of a width, or llama.cpp's of a file. Times in seconds.

    Both are keyed by what grows. A context counts the new token.
    """

    name: str
    by_batch: dict[int, float]
    by_context: dict[int, float]

    def best(self, other: Grown) -> Grown:
        return replace(
            self,
            by_batch={at: min(s, other.by_batch[at]) for at, s in self.by_batch.items()},
            by_context={at: min(s, other.by_context[at]) for at, s in self.by_context.items()},
        )

    def lines(self, colour: str, dashes: str = SOLID) -> tuple[Line, Line]:
        marked = dashes == SOLID
        return (
            Line(self.name, tuple(self.by_batch.items()), colour, dashes, marked),
            Line(self.name, tuple(self.by_context.items()), colour, dashes, marked),
        )


def load(width: WeightFormat, model: str) -> Engine:
    """Load a model of one width.

    Raises:
        ModelError, SettingsError: no such model, or the largest batch does not fit.
    """
    chosen = ModelSettings(model=model, weights=width)
    settings = EngineSettings(model=chosen, kv=KVSettings(kv_memory=KV_MEMORY))
    engine = load_engine(settings, progress=lambda _: None)
    tokens = max(BATCHES) * CONTEXT
    if engine.ready.num_blocks * engine.ready.block_size < tokens:
        raise SettingsError(
            f"--model {model}: {KV_MEMORY} of KV store hold less than {tokens} tokens"
        )
    return engine


def run_ours(engine: Engine, passes: int) -> list[Point]:
    """Time each step once: those of all batches, then those of all contexts."""
    cells = [(batch, CONTEXT) for batch in BATCHES] + [(1, context) for context in CONTEXTS]
    return [
        measure(engine, passes, "decode", batch, context - 1, 1)
        for batch, context in cells
        if context <= engine.ready.max_model_len
    ]


def grown(name: str, points: Sequence[Point], seconds: Sequence[float | None]) -> Grown:
    timed = [(point, s) for point, s in zip(points, seconds, strict=True) if s is not None]
    first = len(BATCHES)
    return Grown(
        name,
        {point.batch: s for point, s in timed[:first]},
        {point.context + 1: s for point, s in timed[first:]},
    )


def fitted_s(points: Sequence[Point]) -> tuple[dict[str, Any], list[float]]:
    """Fit overhead and two rates to the steps; a rate that takes no time is unknown."""
    found = fit(points)
    overhead_s = found["overhead_ms"] / 1e3
    per_byte, per_flop = (
        1 / rate if (rate := found[name]) else 0.0
        for name in ("implied_bytes_per_s", "implied_flops_per_s")
    )
    return found, [overhead_s + p.bytes * per_byte + p.flops * per_flop for p in points]


def run_peer(peer: Peer, model: Path) -> Grown:
    """Time llama.cpp's steps once."""

    def step_s(prompt: int, *batches: int) -> list[float]:
        rows = peer.time(model, prompt, PEER_STEPS, batches)
        return [row["step_ms_min"] / 1e3 for row in rows]

    by_batch = dict(zip(BATCHES, step_s(CONTEXT - PEER_STEPS, *BATCHES), strict=True))
    by_context = {context: step_s(context - PEER_STEPS, 1)[0] for context in CONTEXTS}
    return Grown(f"llama.cpp, {model.stem}", by_batch, by_context)


def best_points(rounds: Sequence[Sequence[Point]]) -> list[Point]:
    return [min(same, key=lambda point: point.forward_s) for same in zip(*rounds, strict=True)]


def draw(lines: Sequence[tuple[Line, Line]], model: str, path: Path) -> None:
    by_batch, by_context = zip(*lines, strict=True)
    title = f"A decode step's time, in ms ({model})"
    left = Plot(f"against the batch, {CONTEXT} tokens of context each", "requests", by_batch)
    right = Plot("against the context, batch 1", "tokens of context", by_context)
    path.write_text(svg(title, (left, right)))


def options() -> Command:
    parser = Command("bench.growth", __doc__)
    parser.option("--model", "what we run, as for serve", default="smollm2-135m")
    parser.count("--rounds", 3, "rounds, ours and the peer's by turns")
    parser.count("--passes", 9, "passes of each of our steps in a round")
    python = "a Python that has llama-cpp-python"
    parser.option("--peer-python", python, "no peer", type=program, metavar="PYTHON")
    models = "the peer's files of the model, one a width"
    files: dict[str, Any] = {"type": to_read, "nargs": "+", "metavar": "GGUF"}
    parser.option("--models", models, "no peer", default=[], **files)
    parser.file("--json", "all points and fits")
    parser.file("--svg", "a plot of them")
    return parser


def main() -> None:
    parser = options()
    chosen = parser.parse_args()
    if bool(chosen.models) != bool(chosen.peer_python):
        parser.error("--peer-python and --models go together")
    before = os.getloadavg()
    engines = {width: load(width, chosen.model) for width in WIDTHS}
    threads = engines[WIDTHS[0]].ready.threads
    rounds: dict[WeightFormat, list[list[Point]]] = {width: [] for width in WIDTHS}
    peers: dict[Path, Grown] = {}
    for _ in range(chosen.rounds):
        for width, engine in engines.items():
            rounds[width].append(run_ours(engine, chosen.passes))
        for model in chosen.models:
            found = run_peer(Peer(chosen.peer_python, threads), model)
            peers[model] = found.best(peers.get(model, found))
    lines, record = [], []
    for (width, runs), colour in zip(rounds.items(), OURS, strict=True):
        points = best_points(runs)
        fitting, fitted = fitted_s(points)
        measured = grown(f"{width}, measured", points, [p.forward_s for p in points])
        floor = grown(f"{width}, floor", points, [p.floor_s for p in points])
        line = grown(f"{width}, fitted", points, fitted)
        lines += [measured.lines(colour), floor.lines(colour, DASHED), line.lines(colour, DOTTED)]
        rows = [asdict(p) | {"fitted_s": s} for p, s in zip(points, fitted, strict=True)]
        record.append({"width": width, "fit": fitting, "points": rows})
    lines += [peer.lines(PEERS[i % len(PEERS)]) for i, peer in enumerate(peers.values())]
    for row in (row for pair in lines for row in pair):
        print(row)
    if chosen.svg:
        draw(lines, chosen.model, chosen.svg)
    if chosen.json:
        machine = f"{platform.machine()}, {threads} threads"
        about = {"machine": machine, "model": chosen.model}
        about |= {"load_average": [*before, *os.getloadavg()]}
        shown = about | {"ours": record, "peers": [asdict(peer) for peer in peers.values()]}
        chosen.json.write_text(json.dumps(shown, indent=1) + "\n")


if __name__ == "__main__":
    start(main)
