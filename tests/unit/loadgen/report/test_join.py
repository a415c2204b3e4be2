from __future__ import annotations

import pytest

from loadgen.report.join import (
    ServerView,
    ServerWork,
    capacity_per_s,
    floor_curve,
    floor_itl_s,
    server_view,
)
from loadgen.run.scrape import Scrape

BEFORE = """# HELP floorline_step_duration_seconds x
floorline_step_duration_seconds_sum{kind="decode",model="m"} 1.0
floorline_step_duration_seconds_count{kind="decode",model="m"} 10
floorline_step_floor_seconds_sum{kind="decode",model="m"} 0.5
floorline_step_floor_seconds_count{kind="decode",model="m"} 10
floorline_kv_blocks{state="free",model="m"} 10
floorline_kv_blocks{state="referenced",model="m"} 0
"""
AFTER = """floorline_step_duration_seconds_sum{kind="decode",model="m"} 3.0
floorline_step_duration_seconds_sum{kind="mixed",model="m"} 2.0
floorline_step_duration_seconds_count{kind="decode",model="m"} 30
floorline_step_duration_seconds_count{kind="mixed",model="m"} 5
floorline_step_floor_seconds_sum{kind="decode",model="m"} 1.3
floorline_step_floor_seconds_sum{kind="mixed",model="m"} 0.2
floorline_step_floor_seconds_count{kind="decode",model="m"} 30
floorline_step_floor_seconds_count{kind="mixed",model="m"} 5
floorline_kv_blocks{state="free",model="m"} 5
floorline_kv_blocks{state="referenced",model="m"} 5
floorline_bytes_moved_total{op="read",component="weights",model="m"} 4e9
floorline_peak_bytes_per_second{source="measured",level="dram",model="m"} 2e9
"""


def seen(scrapes: list[Scrape], warmup_s: float = 0.0) -> ServerView:
    view = server_view(scrapes, warmup_s)
    assert view is not None
    return view


def test_a_window_is_the_difference_of_two_readings() -> None:
    view = seen([Scrape(BEFORE, 0.0), Scrape(AFTER, 9.0)])
    assert view.efficiency == pytest.approx((0.8 + 0.2) / (2.0 + 2.0))
    assert view.step_ms == pytest.approx(4000 / 25)
    assert view.floor_decode_step_ms == pytest.approx(1000 / 25)
    assert view.mbu == pytest.approx(4e9 / 4.0 / 2e9)
    assert view.kv_use == pytest.approx(0.25)
    assert view.mean_batch is None, "what the server does not tell is not zero"


def test_the_warm_up_is_outside_the_window() -> None:
    scrapes = [Scrape(BEFORE, 0.0), Scrape(AFTER, 5.0), Scrape(AFTER, 9.0)]
    assert seen(scrapes, 4.0).efficiency is None, "no step ran after the warm-up"
    assert server_view(scrapes[:2], 4.0) is None


def engine(t_s: float, floor: float, calibration: float, idle: float, waiting: int) -> Scrape:
    return Scrape(
        f"""floorline_floor_seconds_total{{kind="decode"}} {floor}
floorline_lost_seconds_total{{cause="calibration"}} {calibration}
floorline_lost_seconds_total{{cause="idle"}} {idle}
floorline_requests_waiting{{reason="kv"}} 0
floorline_requests_waiting{{reason="slots"}} {waiting}
""",
        t_s,
    )


def test_the_servers_time_is_told_by_cause_in_all_and_while_requests_queued() -> None:
    readings = [
        engine(0.0, 0.0, 1.0, 0.0, waiting=0),
        engine(2.0, 0.5, 1.0, 1.5, waiting=0),
        engine(4.0, 0.6, 2.9, 1.5, waiting=3),
        engine(6.0, 1.6, 3.9, 1.5, waiting=0),
        engine(8.0, 1.6, 3.9, 3.5, waiting=0),
    ]
    view = seen(readings)
    whole = {"useful floor": 1.6, "calibration": 2.9, "idle": 3.5}
    assert view.time_s == pytest.approx(whole), "eight seconds, all of them"
    assert list(view.time_s) == ["idle", "calibration", "useful floor"], "the most first"
    assert view.queued_time_s == pytest.approx({"useful floor": 1.1, "calibration": 2.9})
    assert seen(readings[:2]).queued_time_s == {}, "nobody was seen to wait"
    other = Scrape("vllm:num_requests_running 3.0\n")
    assert (seen([other, other]).time_s, seen([other, other]).queued_time_s) == ({}, None)


def requests(t_s: float, slots: float, floor: float, slow: int) -> Scrape:
    return Scrape(
        f"""floorline_request_time_seconds_total{{cause="wait_slots"}} {slots}
floorline_request_time_seconds_total{{cause="floor_decode"}} {floor}
floorline_request_time_seconds_total{{cause="host"}} 0
floorline_slow_requests_total{{part="ttft",code="wait_slots"}} {slow}
floorline_slow_requests_total{{part="e2e",code="wait_slots"}} {2 * slow}
floorline_slow_requests_total{{part="e2e",code="host"}} 0
""",
        t_s,
    )


def test_the_requests_time_and_what_made_them_slow_are_told() -> None:
    view = seen([requests(0.0, 1.0, 0.5, 1), requests(4.0, 4.0, 1.0, 3)])
    assert view.request_time_s == {"wait_slots": 3.0, "floor_decode": 0.5}
    assert view.slow == {"wait_slots": 6}, "both parts"
    assert seen([requests(0.0, 1.0, 0.5, 1), requests(4.0, 1.0, 0.5, 1)]).slow == {}
    other = Scrape("vllm:num_requests_running 3.0\n")
    assert (seen([other, other]).request_time_s, seen([other, other]).slow) == (None, None)


def test_other_servers_give_what_they_have() -> None:
    vllm = Scrape('vllm:num_requests_running{model_name="m"} 3.0\nvllm:kv_cache_usage_perc 0.5\n')
    view = seen([vllm, vllm])
    assert (view.mean_running, view.kv_use, view.efficiency) == (3.0, 0.5, None)


WORK = ServerWork(
    weight_bytes=2e9, kv_bytes_per_request=5e7, flops_per_token=2e9, peak_bytes_per_s=1e11,
    peak_flops_per_s=1e13, prompt_tokens=64, output_tokens=32,
)  # fmt: skip


def test_the_floor_curve_starts_at_the_lone_request_and_satisfies_its_own_balance() -> None:
    assert floor_itl_s(WORK, 1e-9) == pytest.approx((2e9 + 5e7) / 1e11)
    rate = 30.0
    step_s = floor_itl_s(WORK, rate)
    assert step_s is not None
    batch = rate * WORK.output_tokens * step_s
    moved = WORK.weight_bytes + batch * WORK.kv_bytes_per_request
    assert batch > 1
    assert step_s == pytest.approx(moved / WORK.peak_bytes_per_s)


def test_no_step_time_sustains_more_than_capacity() -> None:
    limit = capacity_per_s(WORK)
    assert limit == pytest.approx(1e13 / (96 * 2e9)), "here the FLOPs bind"
    assert floor_itl_s(WORK, limit) is None
    points = floor_curve(WORK, 1e9)
    assert points[-1].rate < limit
    assert [p.itl_ms for p in points] == sorted(p.itl_ms for p in points)
