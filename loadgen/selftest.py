"""Is the client right, and up to which load? Answered against the mock, on this machine."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from core.children import python_child
from loadgen.load.plan import make_plan
from loadgen.load.spec import PlanSpec, RunSpec
from loadgen.report.summary import Summary, report
from loadgen.report.verdict import Exit
from loadgen.run.campaign import run_plan
from loadgen.run.mock import Behaviour

OUTPUT_TOKENS = 32
LADDER_PER_S = (25, 50, 100, 200, 400, 800)
RUNG_S = 4.0


@contextmanager
def mock_process(behaviour: Behaviour) -> Iterator[str]:
    """Serve from a process of its own, so that client and server share no interpreter."""
    child = python_child("loadgen.run.mock", json.dumps(asdict(behaviour)))
    pipe = subprocess.PIPE
    with subprocess.Popen(
        child.command, env=child.environment, stdin=pipe, stdout=pipe, text=True
    ) as process:  # it ends with its standard input, and so with us
        assert process.stdin
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def measured(behaviour: Behaviour, plan: PlanSpec) -> Summary:
    with mock_process(behaviour) as url:
        return report(asyncio.run(run_plan(url, make_plan(plan), RunSpec(), quiet=True)))


def exact() -> Iterator[tuple[str, bool]]:
    """Check what is known to the millisecond or to the token. Yields (what, whether it holds)."""
    plan = PlanSpec(rate=20.0, requests=40, output=f"={OUTPUT_TOKENS}")
    by_four = measured(Behaviour(gap_s=0.04, tokens_per_chunk=4), plan).metrics
    for metric, want_ms in (("itl", 10.0), ("tpot_net", 10.0), ("icl", 40.0)):
        p50 = by_four[metric].p50
        assert p50
        yield f"{metric} {p50.value:.2f} ms, truly {want_ms:.0f} ms", abs(p50.value - want_ms) < 1
    packings = {
        "a frame split over 3 packets": Behaviour(packets=3),
        "5 frames joined in one packet": Behaviour(join=5),
    }
    for name, behaviour in packings.items():
        count = measured(behaviour, plan).bill.tokens["output"]["client"]
        yield f"{name}: {count} tokens", count == OUTPUT_TOKENS * 40
    attained = measured(Behaviour(fail_every=5), plan).attainment
    yield f"1 in 5 fails: attainment {attained:.0%}", attained == 0.8


def selftest() -> Exit:
    """Check the client against a server with known answers, and raise the rate to its own limit.

    Returns: CLIENT_LIMITED where a check failed, or the lowest rung is too much already.
    """
    right, trusted = True, ""
    for what, holds in exact():
        print("ok  " if holds else "FAIL", what, flush=True)
        right = right and holds
    for rate in LADDER_PER_S:
        plan = PlanSpec(rate=float(rate), duration=RUNG_S, output=f"={OUTPUT_TOKENS}")
        client = measured(Behaviour(gap_s=0.03), plan).client
        load = f"{rate} requests/s, {client.mean_inflight:.0f} streams"
        print(f"     {load}: {'; '.join(client.limits) or 'keeps up'}", flush=True)
        if not client.valid:
            break
        trusted = f"{load}, {rate * OUTPUT_TOKENS} chunks/s"
    if trusted:
        print(f"trust one worker here up to {trusted}")
    return Exit.OK if trusted and right else Exit.CLIENT_LIMITED
