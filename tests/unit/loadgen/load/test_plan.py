from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from core.errors import SettingsError
from loadgen.load.plan import load_plan, make_plan
from loadgen.load.spec import PlanSpec, RunSpec
from loadgen.run.campaign import share_out

PLAIN = PlanSpec(rate=1.0)
TRACES = Path(__file__).parents[5] / "shared" / "traces"


def test_the_plan_of_seed_7_is_the_same_everywhere() -> None:
    assert make_plan(PLAIN).sha256 == (
        "d214ee46feebf241a1b6b785ddd74742f9bc88092ab92c2e636a45310ff7a359"
    )


def test_a_plan_has_the_default_size_and_lengths() -> None:
    requests = make_plan(PLAIN).requests
    assert len(requests) == 60
    assert {32 <= r.prompt_tokens <= 96 and 16 <= r.output_tokens <= 48 for r in requests} == {True}
    assert all(r.t_s == round(r.t_s, 6) for r in requests)


def test_another_rate_stretches_time_and_changes_nothing_else() -> None:
    slow, fast = make_plan(PLAIN).requests, make_plan(replace(PLAIN, rate=4.0)).requests
    for a, b in zip(slow, fast, strict=True):
        assert a.t_s == pytest.approx(4 * b.t_s, abs=4e-6)
        assert replace(a, t_s=0) == replace(b, t_s=0)


def test_one_stream_of_randomness_does_not_move_another() -> None:
    plain = make_plan(PLAIN).requests
    longer = make_plan(replace(PLAIN, prompt="=10", cancel="50%@1s")).requests
    assert [r.t_s for r in plain] == [r.t_s for r in longer]
    assert [r.prompt_seed for r in plain] == [r.prompt_seed for r in longer]
    assert 15 < sum(r.cancel_at is not None for r in longer) < 45


def test_arrivals_pass_a_kolmogorov_smirnov_test_against_the_exponential() -> None:
    times = [0.0, *(r.t_s for r in make_plan(replace(PLAIN, requests=20_000)).requests)]
    gaps = sorted(b - a for a, b in pairwise(times))
    n = len(gaps)
    expected = [1 - math.exp(-gap) for gap in gaps]
    distance = max(
        max(abs(share - k / n), abs(share - (k + 1) / n)) for k, share in enumerate(expected)
    )
    assert distance < 1.358 / math.sqrt(n), "the 5 % critical value"


def test_arrivals_are_no_burstier_than_poisson() -> None:
    times = [r.t_s for r in make_plan(replace(PLAIN, requests=20_000)).requests]
    bins = Counter(int(t) for t in times)
    counts = [bins[k] for k in range(int(times[-1]))]
    mean = sum(counts) / len(counts)
    variance = sum((c - mean) ** 2 for c in counts) / (len(counts) - 1)
    assert 0.95 < variance / mean < 1.05


@pytest.mark.parametrize(("arrival", "low", "high"), [("gamma:2", 1.9, 2.1), ("constant", 0, 1e-5)])
def test_gaps_vary_as_asked(arrival: str, low: float, high: float) -> None:
    spec = PlanSpec(rate=2.0, requests=20_000, arrival=arrival)
    times = [0.0, *(r.t_s for r in make_plan(spec).requests)]
    gaps = [b - a for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert mean == pytest.approx(0.5, rel=0.05)
    assert low <= deviation / mean <= high


def test_a_ramp_rises_from_its_start_rate_to_its_end_rate() -> None:
    requests = make_plan(PlanSpec(arrival="ramp:10-90", duration=100.0)).requests
    first = sum(r.t_s < 10 for r in requests) / 10
    last = sum(r.t_s >= 90 for r in requests) / 10
    assert first == pytest.approx(14, abs=5)
    assert last == pytest.approx(86, abs=12)
    assert len(requests) == pytest.approx(5000, rel=0.05)


def test_a_duration_cuts_the_same_arrivals_short() -> None:
    by_time, by_count = make_plan(PlanSpec(rate=5.0, duration=4.0)), make_plan(PlanSpec(rate=5.0))
    assert by_time.requests == by_count.requests[: len(by_time.requests)]
    assert by_time.requests[-1].t_s < 4


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_divide_one_plan_between_them(workers: int) -> None:
    plan = make_plan(replace(PLAIN, sessions="turns=3,think=exp:2s"))
    jobs = share_out(plan, RunSpec(workers=workers, max_inflight=5), None)  # type: ignore[arg-type]
    sent = sorted(turn.i for job in jobs for turns in job.sessions for turn in turns)
    assert sent == [r.i for r in plan.requests]
    assert sum(job.spec.max_inflight or 0 for job in jobs) == 5
    assert all(len({turn.session for turn in turns}) == 1 for job in jobs for turns in job.sessions)


def test_a_plan_reads_back_as_it_was_written(tmp_path: Path) -> None:
    plan = make_plan(replace(PLAIN, sessions="turns=2,think=const:1s", cancel="10%@1s"))
    stored = tmp_path / "plan.jsonl"
    stored.write_text(plan.dump())
    assert load_plan(str(stored)).requests == plan.requests


def test_a_duration_too_short_for_any_request_is_refused() -> None:
    with pytest.raises(SettingsError, match="too short"):
        make_plan(PlanSpec(rate=0.001, duration=0.001))


@pytest.mark.parametrize(("name", "rows"), [("conv", 19_366), ("code", 8_819)])
def test_azure_traces_are_read_whole_and_mapped_in_order(name: str, rows: int) -> None:
    trace = TRACES / f"azure_2023_{name}.csv"
    if not trace.exists():
        pytest.skip("the trace is not on this machine")
    plain = make_plan(PlanSpec(trace=str(trace))).requests
    mapped = make_plan(PlanSpec(trace=str(trace), speed=10, map="prompt:32-96")).requests
    assert len(plain) == len(mapped) == rows
    assert mapped[-1].t_s == pytest.approx(plain[-1].t_s / 10, abs=1e-5)
    assert {r.prompt_tokens for r in mapped} == set(range(32, 97))
    order = sorted(range(rows), key=lambda i: (plain[i].prompt_tokens, mapped[i].prompt_tokens))
    by_rank = [mapped[i].prompt_tokens for i in order]
    assert by_rank == sorted(by_rank)
    assert [r.output_tokens for r in plain] == [r.output_tokens for r in mapped]


def test_burstgpt_and_mooncake_traces_are_read(tmp_path: Path) -> None:
    burst = tmp_path / "burst.csv"
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    burst.write_text(
        head + "5,ChatGPT,472,18,490,x\n45,ChatGPT,1087,0,1087,x\n118,GPT-4,417,276,693,x\n"
    )
    mooncake = tmp_path / "mooncake.jsonl"
    line = '{{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": [0]}}\n'
    mooncake.write_text(line.format(27482, 6955, 52) + line.format(30535, 6472, 26))

    def rows(path: Path) -> list[tuple[float, int, int]]:
        requests = make_plan(PlanSpec(trace=str(path))).requests
        return [(r.t_s, r.prompt_tokens, r.output_tokens) for r in requests]

    assert rows(burst) == [(0.0, 472, 18), (113.0, 417, 276)], "a failed request is left out"
    assert rows(mooncake) == [(0.0, 6955, 52), (3.053, 6472, 26)]
