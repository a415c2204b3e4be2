"""Our native steps beside llama.cpp's on this machine, interleaved, and the bars they must reach.

    python -m bench.peers --peer-python VENV/bin/python --models F16.gguf Q8_0.gguf Q4_1.gguf

The three files are of the default model; `bench.llamacpp_bench --quantize` makes the first two
of the third. A floor is a step's bytes over the bandwidth in the same turns; a read is a bare read
of these bytes, which a cache may help, and is shown beside it. `--clock cpu --threads 1` compares
CPU seconds of one thread: on a busy machine two threads measure whoever else runs. Prints a line a
bar, and JSON with every reading (`--json`).
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.bars import Bar
from bench.command import Command, program, start, to_read
from bench.native import CLOCKS, Bench, load, time_step
from bench.peer import Peer
from core.formats import WeightFormat

PEERS = ("F16", "Q8_0", "Q4_1")
WIDTHS = (WeightFormat.FP16, WeightFormat.INT8, WeightFormat.INT4, WeightFormat.NATIVE)
BATCHES = (1, 8, 16)
PREFILLS = (128, 512)
CONTEXT = 128
PEER_STEPS = 16
EQUAL_WIDTHS = (("fp16", "F16", 0.80), ("int8", "Q8_0", 0.55), ("native", "Q4_1", 0.50))
SPEEDUPS = (("decode 8", 2.8), ("decode 16", 3.0), ("prefill 128", 1.5), ("prefill 512", 1.5))

Readings = dict[str, list[float]]


def run_peer(peer: Peer, models: Sequence[Path], readings: Readings) -> None:
    """Read llama.cpp once: decode at each batch, prefill at each length."""
    for kind, model in zip(PEERS, models, strict=True):
        for prompt, parallel in ((CONTEXT, BATCHES), (PREFILLS[-1], (1,))):
            for row in peer.time(model, prompt, PEER_STEPS, parallel):
                if prompt == CONTEXT:
                    readings[f"peer {kind} decode {row['parallel']}"].append(row["step_ms"] / 1e3)
                if row["parallel"] == 1:
                    seconds = prompt / row["prefill_tok_s"]
                    readings[f"peer {kind} prefill {prompt}"].append(seconds)


def run_ours(width: WeightFormat, bench: Bench, readings: Readings) -> None:
    """Read our steps of one width once, each beside its floor."""

    def read(name: str, requests: int, length: int, context: int, repeats: int) -> None:
        timed = time_step(bench, requests, length, context, repeats)
        readings[f"{width} {name}"].append(timed.step_s)
        readings[f"{width} {name} floor"].append(timed.floor_s)
        readings[f"{width} {name} read"].append(timed.read_s)

    for requests in BATCHES:
        read(f"decode {requests}", requests, 1, CONTEXT, 11)
    for length in PREFILLS:
        read(f"prefill {length}", 1, length, 0, 3)
    read("decode 1 at 4096", 1, 1, 4096, 9)
    read("decode 16 at 0", 16, 1, 0, 5)
    read("decode 16 at 1024", 16, 1, 1024, 5)


def bars(readings: Readings) -> list[Bar]:
    """Compare medians over rounds with the limits they must keep."""
    median = {name: statistics.median(values) for name, values in readings.items()}
    found = []

    def over_floor(name: str, limit: float) -> None:
        ratios = zip(readings[name], readings[f"{name} floor"], strict=True)
        value = statistics.median(step / floor for step, floor in ratios)
        found.append(Bar(f"{name}, over its floor", value, limit, at_most=True))

    over_floor("fp16 decode 1", 1.15)
    over_floor("int8 decode 1", 1.20)
    over_floor("int4 decode 1", 1.35)
    for ours, peer, limit in EQUAL_WIDTHS:
        value = median[f"{ours} decode 1"] / median[f"peer {peer} decode 1"]
        found.append(Bar(f"{ours} decode 1, over llama.cpp {peer}", value, limit, at_most=True))
    for name, limit in SPEEDUPS:
        peer_s = min(median[f"peer {kind} {name}"] for kind in PEERS[:2])
        ours_s, width = min((median[f"{width} {name}"], width) for width in WIDTHS)
        title = f"{name}, tokens/s of {width} over llama.cpp's best"
        found.append(Bar(title, peer_s / ours_s, limit, at_most=False))
    over_floor("fp16 decode 1 at 4096", 1.25)
    found.append(
        Bar("attention, 16 at 1024, over its KV bytes", _attention(median), 1.5, at_most=True)
    )
    return found


def _attention(median: dict[str, float]) -> float:
    """Divide what 1,024 tokens of context add to a step by what they add to its floor."""
    ours = median["fp16 decode 16 at 1024"] - median["fp16 decode 16 at 0"]
    floor = median["fp16 decode 16 at 1024 floor"] - median["fp16 decode 16 at 0 floor"]
    return ours / floor


def options() -> Command:
    parser = Command("bench.peers", __doc__)
    python = "a Python that has llama-cpp-python"
    parser.add_argument("--peer-python", required=True, type=program, metavar="PYTHON", help=python)
    models = "the peer's files of the default model, one of each width"
    parser.add_argument(
        "--models", nargs=3, required=True, type=to_read, metavar=PEERS, help=models
    )
    parser.count("--threads", 2, "threads of either side")
    parser.count("--rounds", 3, "rounds, the peer's and ours by turns")
    clock = "what seconds are: the wall's, or the process's own CPU time"
    parser.option("--clock", clock, choices=CLOCKS, default="wall")
    parser.file("--json", "the bars and every reading")
    return parser


def main() -> None:
    arguments = options().parse_args()
    peer = Peer(arguments.peer_python, arguments.threads, arguments.clock)
    ours = {width: load(width, arguments.threads, arguments.clock) for width in WIDTHS}
    readings: Readings = defaultdict(list)
    for _ in range(arguments.rounds):
        run_peer(peer, arguments.models, readings)
        for width, bench in ours.items():
            run_ours(width, bench, readings)
    found = bars(readings)
    for name, values in readings.items():
        print(f"{name:40s} {statistics.median(values) * 1e3:8.2f} ms")
    for bar in found:
        print(bar)
    if arguments.json:
        record = {"bars": [asdict(bar) | {"held": bar.held} for bar in found]}
        arguments.json.write_text(json.dumps(record | {"seconds": readings}, indent=1) + "\n")


if __name__ == "__main__":
    start(main)
