"""Runs against a server with known answers. A busy machine is late, so that times are bounds here;
what they mean to the millisecond is worked out by hand in tests/unit/loadgen.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from loadgen.cli import main
from loadgen.selftest import selftest

FAST = ("--rate", "40", "--requests", "40")


def test_a_plain_run_measures_a_known_server(serve, load) -> None:
    causes, run = load(serve(first_s=0.05, gap_s=0.01), *FAST)
    assert not causes
    assert run["outcomes"] == {"ok": 40}
    assert 50 <= run["metrics"]["ttft"]["p50"]["value"] < 500
    assert 5 < run["metrics"]["itl"]["p50"]["value"] < 20
    assert run["metrics"]["ttft"]["p99"] is None, "40 samples have no p99"
    assert run["server"]["efficiency"] == pytest.approx(0.4)
    assert run["bill"]["balanced"] is True
    assert run["floors_ms"]["itl"] == pytest.approx(4.0)
    assert 16 * 4 < run["floors_ms"]["e2e"] < 48 * 4, "4 ms for each token"


def test_four_tokens_a_chunk_every_40_ms_are_10_ms_a_token(serve, load) -> None:
    _, run = load(serve(gap_s=0.04, tokens_per_chunk=4), *FAST, "--output", "=32")
    itl, tpot_net, icl = (
        run["metrics"][name]["p50"]["value"] for name in ("itl", "tpot_net", "icl")
    )
    assert icl == pytest.approx(40, abs=20)
    assert itl == pytest.approx(icl / 4, abs=0.01)
    assert tpot_net == pytest.approx(10, abs=5)


@pytest.mark.parametrize("shape", [{"packets": 3}, {"join": 5}, {"packets": 1}])
def test_how_frames_are_packed_changes_no_count(serve, load, shape) -> None:
    _, run = load(serve(gap_s=0.001, **shape), *FAST, "--output", "=20")
    assert run["bill"]["tokens"]["output"]["client"] == 40 * 20
    assert run["outcomes"] == {"ok": 40}
    gaps_per_request = 20 - 1
    assert run["metrics"]["icl"]["n"] == 40 * gaps_per_request


def test_a_server_that_fails_a_fifth_costs_a_fifth_of_attainment(serve, load) -> None:
    causes, run = load(serve(fail_every=5), *FAST, "--slo", "ttft=20s")
    assert run["attainment"] == pytest.approx(0.8)
    assert run["outcomes"] == {"http_500": 8, "ok": 32}
    assert causes == {2, 4}
    assert run["metrics_with_failures"]["ttft"]["p90"]["value"] == "inf"


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        ("broken", "broken_stream"),
        ("error", "stream_error"),
        ("early", "early_stop"),
        ("empty", "no_content"),
        ("hang", "timeout"),
    ],
)
def test_each_way_to_fail_is_a_class_of_its_own(serve, load, failure, outcome) -> None:
    server = serve(gap_s=0.001, fail_every=5, failure=failure)
    _, run = load(server, *FAST, "--ignore-eos", "--timeout", "3s")
    assert run["outcomes"] == {outcome: 8, "ok": 32}


def test_past_the_end_each_token_has_a_text_so_that_its_arrival_shows(serve, load) -> None:
    server = serve(gap_s=0.001)
    load(server, *FAST, "--ignore-eos")
    load(server, *FAST)
    bodies = [body for body in httpx.get(f"{server}/bodies").json() if body.get("stream")]
    asked = [(body.get("ignore_eos"), body.get("skip_special_tokens")) for body in bodies]
    assert asked == [(True, False)] * 40 + [(None, None)] * 40


def test_a_bill_that_is_wrong_by_one_token_exits_5(serve, load) -> None:
    causes, run = load(serve(gap_s=0.001, overcount=1), *FAST)
    tokens = run["bill"]["tokens"]["output"]
    assert tokens["metrics"] == tokens["usage"] + 1
    assert causes == {5}


def test_a_charge_that_is_wrong_by_a_nano_dollar_exits_5(serve, load) -> None:
    causes, run = load(serve(gap_s=0.001, overcharge_nusd=1), *FAST)
    assert run["bill"]["nusd"]["metrics"] == run["bill"]["nusd"]["cost"] + 1
    assert causes == {5}


def test_another_server_is_measured_with_na_for_what_it_does_not_tell(serve, load) -> None:
    plain = {"running_usage": False, "final_usage": False, "metrics": False, "vocab_size": None}
    causes, run = load(serve(gap_s=0.001, **plain), *FAST)
    assert not causes
    assert run["metrics"]["ttft"]["n"] == 40
    for unknown in ("itl", "tpot", "tpot_net"):
        assert run["metrics"][unknown]["n"] == 0
        assert run["metrics"][unknown]["p50"] is None
    assert run["rates"]["output_tokens_per_s"] is None
    assert run["rates"]["prompt_tokens_per_s"] is None
    assert run["server"] == {}
    assert set(run["floors_ms"].values()) == {None}
    assert run["bill"]["balanced"] is None
    assert run["prompts"]["label"] == "words, approximate"


def test_chat_does_not_take_the_role_for_a_token(serve, load) -> None:
    _, run = load(serve(first_s=0.02, gap_s=0.005), *FAST, "--api", "chat", "--output", "=8")
    assert run["outcomes"] == {"ok": 40}
    assert run["metrics"]["icl"]["n"] == 40 * 7


def test_cancelled_requests_are_neither_answered_nor_failed(serve, load) -> None:
    _, run = load(serve(gap_s=0.05), *FAST, "--cancel", "50%@100ms", "--output", "=32")
    cancelled = run["outcomes"]["cancelled"]
    assert 10 < cancelled < 30
    assert run["counted"] == 40 - cancelled
    assert run["failed"] == 0
    assert run["bill"]["tokens"]["output"]["metrics"] is None


def test_a_later_turn_carries_the_conversation_before_it(serve, load) -> None:
    server = serve(gap_s=0.001)
    sessions = ("--requests", "4", "--sessions", "turns=3,think=exp:0.01s")
    causes, run = load(server, "--rate", "20", *sessions, "--output", "=4")
    assert not causes
    assert run["bill"]["balanced"] is True
    bodies = httpx.get(f"{server}/bodies").json()[1:]
    prompts = sorted((body["prompt"] for body in bodies), key=len)
    assert len(prompts) == 12
    longest = prompts[-1]
    assert sum(longest[: len(prompt)] == prompt for prompt in prompts) == 3


def test_cold_prompts_share_no_first_block_between_two_runs(serve, load) -> None:
    server = serve(gap_s=0.0)
    plan = ("--rate", "50", "--requests", "10")
    for extra in ((), (), ("--cache", "cold"), ("--cache", "cold")):
        load(server, *plan, *extra)
    measured = [body for body in httpx.get(f"{server}/bodies").json() if body.get("stream")]
    firsts = [tuple(body["prompt"][:8]) for body in measured]
    assert len(firsts) == 40
    assert len(set(firsts)) == 10 + 10 + 10, "the plain runs share theirs, the cold ones do not"


def test_a_warm_cache_has_seen_each_prompt(serve, load) -> None:
    server = serve(gap_s=0.0)
    load(server, "--rate", "50", "--requests", "10", "--cache", "warm")
    bodies = httpx.get(f"{server}/bodies").json()[1:]
    warming, measured = bodies[:10], bodies[10:]
    assert sorted(b["prompt"] for b in warming) == sorted(b["prompt"] for b in measured)
    assert all(body["max_tokens"] == 1 for body in warming)


def test_a_closed_loop_keeps_its_places_filled(serve, load) -> None:
    causes, run = load(serve(gap_s=0.005), "--arrival", "closed:4", "--requests", "24")
    assert not causes
    assert run["client"]["mean_inflight"] == pytest.approx(4, abs=1)
    assert run["metrics"]["send_lag"]["p50"]["value"] < 250, "the wait for a place is no lag"


def test_workers_send_the_same_plan(serve, load, tmp_path: Path) -> None:
    seen = set()
    for workers in ("1", "2"):
        server = serve(gap_s=0.001)
        causes, run = load(server, *FAST, "--workers", workers)
        assert not causes
        assert run["outcomes"] == {"ok": 40}
        bodies = httpx.get(f"{server}/bodies").json()[1:]
        prompts = tuple(sorted(tuple(body["prompt"]) for body in bodies))
        seen.add((run["plan"]["sha256"], prompts))
    assert len(seen) == 1


def test_the_warm_up_is_sent_but_not_counted(serve, load) -> None:
    server = serve(gap_s=0.001)
    _, run = load(server, *FAST, "--warmup", "0.5s")
    assert len(httpx.get(f"{server}/bodies").json()) == 41
    assert 0 < run["counted"] < 40
    assert run["metrics"]["ttft"]["n"] == run["counted"]


def test_a_closed_loop_has_a_warm_up_too(serve, load) -> None:
    words = ("--arrival", "closed:2", "--requests", "30", "--output", "=4", "--warmup", "0.3s")
    _, run = load(serve(first_s=0.05, gap_s=0.005), *words)
    assert 0 < run["counted"] < 30
    assert run["sent"] == 30


def test_a_stored_plan_is_sent_again(serve, load, tmp_path: Path, capsys) -> None:
    stored = str(tmp_path / "plan.jsonl")
    assert main(["plan", "--rate", "40", "--requests", "10", "-o", stored]) == 0
    digest = capsys.readouterr().out.split()[-1]
    _, run = load(serve(gap_s=0.001), "--plan", stored)
    assert run["plan"]["sha256"] == digest


@pytest.mark.slow
def test_search_finds_where_an_objective_breaks(serve, tmp_path: Path) -> None:
    server = serve(first_s=0.0, gap_s=0.005)
    capped = ("--max-inflight", "1", "--output", "=20", "--requests", "30")
    flags = ("--rate", "4", *capped, "--slo", "ttft.p90=300ms", "--quiet", "--out", str(tmp_path))
    if (code := main(["search", server, *flags])) == 3:
        pytest.skip("this machine is too busy to drive the load")
    assert code == 0
    found = json.loads((tmp_path / "sweep.json").read_text())
    assert 2 < found["passing"] < found["failing"] < 30, "one at a time, 0.1 s each"
    assert found["broken"] == ["ttft.p90=300ms"]
    assert found["failing"] / found["passing"] <= 1.05


def freeze(serve, load, freeze_s: float, rate: str, requests: str) -> dict:
    server = serve(gap_s=0.002, freeze_at_s=0.5, freeze_s=freeze_s)
    flags = ("--rate", rate, "--requests", requests, "--max-inflight", "4", "--output", "=8")
    return load(server, *flags)[1]["metrics"]


def test_a_frozen_server_shows_in_ttft_though_few_requests_were_sent(serve, load) -> None:
    metrics = freeze(serve, load, 1.5, "40", "160")
    assert metrics["ttft"]["p95"]["value"] > 1000
    assert metrics["ttft_send"]["p95"]["value"] < 500


@pytest.mark.slow
def test_a_freeze_of_five_seconds_raises_ttft_by_seconds(serve, load) -> None:
    metrics = freeze(serve, load, 5.0, "30", "450")
    assert metrics["ttft"]["p95"]["value"] > 4000
    assert metrics["ttft_send"]["p95"]["value"] < 500


def start(server: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "loadgen.cli", server, "--format", "json", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_bodies(server: str, least: int) -> None:
    while len(httpx.get(f"{server}/bodies").json()) < least:
        time.sleep(0.02)


def test_a_starved_client_says_that_it_was_the_limit(serve) -> None:
    server = serve(gap_s=0.002)
    client = start(server, "--rate", "40", "--requests", "80")
    wait_for_bodies(server, 2)
    for _ in range(6):  # stopped for most of two seconds: what no CPU means
        os.kill(client.pid, signal.SIGSTOP)
        time.sleep(0.25)
        os.kill(client.pid, signal.SIGCONT)
        time.sleep(0.05)
    out, _ = client.communicate()
    run = json.loads(out)
    assert client.returncode == 3
    assert run["valid"] is False
    assert run["client"]["limits"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_interrupt_writes_a_partial_report(serve, tmp_path: Path, workers: str) -> None:
    server = serve(gap_s=0.01)
    flags = ("--rate", "5", "--requests", "500", "--out", str(tmp_path / "run"))
    client = start(server, *flags, "--workers", workers)
    wait_for_bodies(server, 8)
    client.send_signal(signal.SIGINT)
    out, errors = client.communicate()
    assert client.returncode == 130, errors
    assert 0 < json.loads(out)["sent"] < 500
    assert json.loads((tmp_path / "run" / "run.json").read_text())["interrupted"]
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.slow
def test_the_selftest_counts_right_here(capsys) -> None:
    """Its times may fail: that a machine is too busy is what it is there to tell."""
    selftest()
    lines = capsys.readouterr().out.splitlines()
    judged = [line for line in lines if line.startswith(("ok  ", "FAIL"))]
    assert len(judged) == 6
    counts = [line for line in judged if "truly" not in line]
    assert len(counts) == 3
    assert all(line.startswith("ok  ") for line in counts)
