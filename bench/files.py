"""Our steps on GGUF files beside llama.cpp's on the same files, and beside each file's floor.

    python -m bench.files --peer-python VENV/bin/python Q8_0.gguf Q4_K_M.gguf …

`bench.llamacpp_bench --quantize` makes the files. A file's floor is the bytes that a step needs of
it, and its KV, over the bandwidth in the same turns. With `--llama-bench PROGRAM`, that of
ik_llama.cpp, say, the better of two peers counts where it times: one sequence, and a prompt.
Prints a line a bar, and JSON (`--json`).
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Final

from bench.bars import Bar
from bench.command import Command, program, start, to_read
from bench.native import CLOCKS, Bench, load, time_step
from bench.peer import BenchProgram, Peer
from core.formats import WeightFormat
from engine.checkpoint.gguf_file import source

CONTEXT: Final = 128
PROMPT: Final = 512
STEPS: Final = 16
CLOSE: Final = ("Q4_K_M", "Q8_0", "Q4_0", "Q4_1")  # the types whose step is held to the closer bar

Readings = dict[str, list[float]]


def read_peer(peer: Peer, file: Path, readings: Readings) -> None:
    for row in peer.time(file, CONTEXT, STEPS, (1, 16)):
        readings[f"peer decode {row['parallel']}"].append(row["step_ms"] / 1e3)
    (row,) = peer.time(file, PROMPT, 1, (1,))
    readings["peer prefill"].append(PROMPT / row["prefill_tok_s"])


def read_program(program: BenchProgram, file: Path, readings: Readings) -> None:
    prefill_s, step_s = program.time(file, PROMPT, STEPS)
    readings["llama-bench decode 1"].append(step_s)
    readings["llama-bench prefill"].append(prefill_s)


def read_ours(bench: Bench, readings: Readings) -> None:
    for requests, repeats in ((1, 11), (16, 7)):
        timed = time_step(bench, requests, 1, CONTEXT, repeats)
        kv_bytes = requests * CONTEXT * bench.kv_token_bytes
        held = bench.step_bytes + kv_bytes
        floor_s = timed.floor_s * (bench.checkpoint_bytes + kv_bytes) / held
        readings[f"decode {requests}"].append(timed.step_s)
        readings[f"floor {requests}"].append(floor_s)
    readings["prefill"].append(time_step(bench, 1, PROMPT, 0, 3).step_s)


def bars(file: Path, bench: Bench, readings: Readings) -> list[Bar]:
    """Compare medians over rounds with the limits that a file's own blocks must keep."""
    median = {name: statistics.median(values) for name, values in readings.items()}
    best = {
        name: min(s for peer, s in median.items() if peer.endswith(f" {name}"))
        for name in ("decode 1", "decode 16", "prefill")
    }
    over_floor = [s / f for s, f in zip(readings["decode 1"], readings["floor 1"], strict=True)]
    limit = 1.15 if file.stem.endswith(CLOSE) else 1.25

    def named(title: str) -> str:
        return f"{file.stem}: {title}"

    return [
        Bar(
            named("bytes held over the file's"),
            bench.step_bytes / bench.checkpoint_bytes,
            1.005,
            at_most=True,
        ),
        Bar(
            named("decode 1 over the file's floor"),
            statistics.median(over_floor),
            limit,
            at_most=True,
        ),
        Bar(
            named("decode 1 over the peer's"),
            median["decode 1"] / best["decode 1"],
            0.5,
            at_most=True,
        ),
        Bar(
            named("tokens/s at 16 over the peer's"),
            best["decode 16"] / median["decode 16"],
            3.0,
            at_most=False,
        ),
        Bar(
            named(f"prefill of {PROMPT} over the peer's"),
            best["prefill"] / median["prefill"],
            1.8,
            at_most=False,
        ),
    ]


def program_and_words(text: str) -> tuple[Path, list[str]]:
    name, *words = text.split() or [""]
    return program(name), words


def options() -> Command:
    parser = Command("bench.files", __doc__)
    python = "a Python that has llama-cpp-python"
    parser.add_argument("--peer-python", required=True, type=program, metavar="PYTHON", help=python)
    fork = "the llama-bench of a fork, to time as well; the words after it are its options"
    parser.option("--llama-bench", fork, "none", type=program_and_words, metavar="PROGRAM …")
    parser.add_argument("files", nargs="+", type=to_read, metavar="GGUF", help="files of any type")
    parser.count("--threads", 2, "threads of either side")
    parser.count("--rounds", 3, "rounds, the peer's and ours by turns")
    clock = "what seconds are: the wall's, or the process's own CPU time"
    parser.option("--clock", clock, choices=CLOCKS, default="wall")
    parser.file("--json", "the bars and every reading")
    return parser


def main() -> None:
    arguments = options().parse_args()
    peer = Peer(arguments.peer_python, arguments.threads, arguments.clock)
    fork = None
    if arguments.llama_bench:
        path, words = arguments.llama_bench
        fork = BenchProgram(path, arguments.threads, words)
    found: list[Bar] = []
    record = {}
    for file in arguments.files:
        checkpoint = source(file.resolve()).open()
        bench = load(WeightFormat.NATIVE, arguments.threads, arguments.clock, checkpoint)
        readings: Readings = defaultdict(list)
        for _ in range(arguments.rounds):
            read_peer(peer, file, readings)
            if fork is not None:
                read_program(fork, file, readings)
            read_ours(bench, readings)
        for name, values in readings.items():
            print(f"{file.stem + ': ' + name:40s} {statistics.median(values) * 1e3:8.2f} ms")
        found += bars(file, bench, readings)
        record[file.name] = readings
    for bar in found:
        print(bar)
    if arguments.json:
        held = [asdict(bar) | {"held": bar.held} for bar in found]
        arguments.json.write_text(json.dumps({"bars": held, "seconds": record}, indent=1) + "\n")


if __name__ == "__main__":
    start(main)
