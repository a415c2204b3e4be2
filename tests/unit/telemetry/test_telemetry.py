"""Scripted engine messages, and what a scrape and a bill say of them."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from dataclasses import fields

import pytest

from core.errors import SettingsError
from core.machine import Peak, Peaks, PeakSource
from core.request import DEFAULT_TENANT, FinishReason, Obstacle, RequestId
from core.settings import STEPS_KEPT, TelemetrySettings
from core.wire import PoolState, SharedRun
from telemetry.history import PoolView
from telemetry.telemetry import Telemetry
from tests.unit.costmodel.models import peaks, piece
from tests.unit.telemetry.scripted import MS, Scripted, assert_phases_add_up, ns

STOP, LENGTH, FAILED = FinishReason.STOP, FinishReason.LENGTH, FinishReason.FAILED
REFUSED = FinishReason.REFUSED
PRICED = TelemetrySettings(price_per_hour=3.6, slo="ttft=15ms,itl=12ms,e2e=1s")


def one_request(script: Scripted, id: str = "a", tokens: int = 3) -> RequestId:
    """Prefill of 32 tokens and `tokens` sampled, 10 ms a step."""
    key = script.receive(id)
    script.step(piece(id, length=32, blocks=2), admitted=(key,))
    for n in range(tokens - 1):
        last = {id: LENGTH} if n == tokens - 2 else None
        script.step(piece(id, start=32 + n, blocks=3), ended=last)
    return key


def assert_time_law(script: Scripted) -> None:
    scrape = script.scrape()
    lost, floor = scrape("floorline_lost_seconds_total"), scrape("floorline_floor_seconds_total")
    assert floor + lost == pytest.approx(scrape("floorline_engine_wall_seconds_total"), rel=1e-9)


def assert_request_law(script: Scripted) -> None:
    scrape = script.scrape()
    live = scrape("floorline_requests_running") + scrape("floorline_requests_waiting")
    ended = scrape("floorline_requests_total")
    assert scrape("floorline_requests_received_total") == ended + live


def test_a_request_is_counted_timed_and_billed() -> None:
    script = Scripted(PRICED)
    key = one_request(script)
    scrape, cost = script.scrape(), script.telemetry.cost([key])
    assert scrape("floorline_requests_total", outcome="length") == 1
    assert scrape("floorline_tokens_total", kind="prompt") == 32
    assert scrape("floorline_tokens_total", kind="generated") == 3
    assert scrape("floorline_time_to_first_token_seconds_sum") == pytest.approx(0.010)
    itl = "floorline_inter_token_latency_seconds"
    assert scrape(f"{itl}_count", context="decode_only") == 2
    assert scrape(f"{itl}_sum", context="decode_only") == pytest.approx(0.020)
    assert cost.steps == 3
    assert (cost.queue_ms, cost.prefill_ms, cost.decode_ms, cost.stalled_ms) == (0, 10, 20, 0)
    assert cost.ttft_ms == cost.mean_itl_ms == 10
    assert cost.tokens_per_second == 100
    assert cost.mean_batch == 1
    assert cost.interference_ms == 0
    assert cost.cost_usd == pytest.approx(30e-3 * 3.6 / 3600)
    assert cost.kv_block_seconds == pytest.approx(0.01 * (2 + 3 + 3))


def test_a_lone_request_pays_for_all_that_its_steps_moved() -> None:
    script = Scripted()
    key = one_request(script)
    scrape, cost = script.scrape(), script.telemetry.cost([key])
    assert cost.bytes_read == scrape("floorline_bytes_moved_total", op="read")
    assert cost.bytes_written == scrape("floorline_bytes_moved_total", op="write")
    assert cost.flops == scrape("floorline_flops_total")
    assert cost.floor_ms == pytest.approx(scrape("floorline_floor_seconds_total") * 1e3)
    assert cost.efficiency == pytest.approx(cost.floor_ms / 30, abs=1e-6)
    assert cost.regime == "memory"
    assert cost.cost_usd is None


def test_floor_and_lost_time_of_a_bill_are_split_by_phase_to_the_nanosecond() -> None:
    script = Scripted()
    key = one_request(script)
    cost, steps = script.telemetry.cost([key]), script.telemetry.recent_steps(3)
    prefill, *decode = (round(step.useful_floor_ms * 1e6) for step in steps)
    assert ns(cost.prefill_floor_ms) == prefill > 0
    assert ns(cost.decode_floor_ms) == sum(decode) > 0
    assert ns(cost.prefill_lost_ms) == 10 * MS - prefill
    assert ns(cost.decode_lost_ms) == 20 * MS - sum(decode)


def test_what_runs_again_and_a_prompt_beside_others_belong_to_prefill() -> None:
    script = Scripted()
    a, b = script.receive("a"), script.receive("b")
    script.step(piece("a", length=32), piece("b", length=32), admitted=(a, b))
    script.step(piece("b", start=32), preempted=(a,))
    script.step(piece("a", length=33, recomputed=32), piece("b", start=33), admitted=(a,))
    for key, decodes in ((a, False), (b, True)):
        cost = script.telemetry.cost([key])
        assert_phases_add_up(cost)
        assert ((cost.decode_floor_ms or 0) > 0) == decodes
        assert ((cost.decode_lost_ms or 0) > 0) == decodes


def test_fields_of_several_generations_are_sums_and_times_span_them() -> None:
    script = Scripted(PRICED)
    first = one_request(script, "a")
    script.idle(100)
    second = one_request(script, "b")
    one, two, both = (script.telemetry.cost(ids) for ids in ([first], [second], [first, second]))
    assert both.bytes_read == one.bytes_read + two.bytes_read
    assert both.steps == 6
    assert both.decode_ms == 40
    assert both.ttft_ms == 10
    assert both.tokens_per_second == pytest.approx(6 / 0.16005)


def test_useful_floor_and_lost_time_make_up_the_wall() -> None:
    script = Scripted()
    one_request(script)
    script.idle(30)
    assert_time_law(script)
    script.clock.now_ns += 7 * MS  # nothing happens, time goes on
    assert_time_law(script)
    assert script.scrape()("floorline_lost_seconds_total", cause="idle") == pytest.approx(0.037)


def test_a_scrape_while_a_step_is_under_way_books_no_idle_time() -> None:
    script = Scripted()
    one_request(script, "a")
    script.idle(5)
    b = script.receive("b")
    script.clock.now_ns += 3 * MS  # its first step runs since then, and is not yet reported
    assert_time_law(script)
    script.step(piece("b", length=32), admitted=(b,), ended={"b": LENGTH})
    script.idle(40)
    script.scrape()
    assert_time_law(script)
    assert script.scrape()("floorline_lost_seconds_total", cause="idle") == pytest.approx(0.045)


def test_recomputed_tokens_are_waste_and_stalls_are_told_apart() -> None:
    script = Scripted(PRICED)
    a, b = script.receive("a"), script.receive("b")
    script.step(piece("a", length=32), piece("b", length=32), admitted=(a, b))
    script.step(piece("b", start=32), preempted=(a,))
    script.step(piece("b", start=33))
    script.step(piece("a", length=33, recomputed=32), piece("b", start=34), admitted=(a,))
    scrape, cost = script.scrape(), script.telemetry.cost([a])
    assert scrape("floorline_preemptions_total") == 1
    assert scrape("floorline_tokens_total", kind="recomputed") == 32
    assert scrape("floorline_lost_seconds_total", cause="recompute") > 0
    assert scrape("floorline_inter_token_latency_seconds_count", context="resumed") == 1
    assert scrape("floorline_inter_token_latency_seconds_count", context="mixed") == 1
    assert scrape("floorline_cost_usd_total", component="waste") > 0
    assert (cost.prefill_ms, cost.stalled_ms, cost.recomputed_tokens) == (10, 30, 32)
    assert_time_law(script)


def test_tokens_after_a_stop_are_overrun_and_charged_to_nobody() -> None:
    script = Scripted(PRICED)
    key = script.receive("a")
    script.step(piece("a", length=32), admitted=(key,))
    script.telemetry.on_finish_sent(key, 2, STOP)  # told while the second token is on its way
    script.step(piece("a", start=32))
    before = script.telemetry.cost([key])
    script.step(piece("a", start=33), ended={"a": LENGTH})
    scrape = script.scrape()
    assert script.telemetry.cost([key]) == before
    assert scrape("floorline_tokens_total", kind="generated") == 2
    assert scrape("floorline_tokens_total", kind="overrun") == 1
    assert scrape("floorline_lost_seconds_total", cause="overrun") > 0
    assert scrape("floorline_requests_total", outcome="stop") == 1
    assert scrape("floorline_request_duration_seconds_sum") == pytest.approx(0.020)
    assert_time_law(script)


def test_a_token_of_a_request_that_was_refused_meanwhile_is_charged_to_nobody() -> None:
    script = Scripted(PRICED)
    key = script.receive("a")
    script.telemetry.on_finish_sent(key, 0, REFUSED)  # told while its first step runs
    script.step(piece("a", length=32), admitted=(key,), ended={"a": REFUSED}, tokens=((key, 7),))
    scrape = script.scrape()
    assert script.telemetry.cost([key]).cost_usd == 0
    assert scrape("floorline_tokens_total", kind="overrun") == 1
    assert scrape("floorline_tokens_total", kind="generated") == 0
    assert scrape("floorline_requests_total", outcome="refused") == 1
    assert_time_law(script)


def test_a_stop_found_after_its_tokens_were_counted_still_ends_there() -> None:
    script = Scripted()
    key = one_request(script, tokens=2)
    other = script.receive("b")
    script.step(piece("b", length=32), admitted=(other,))
    script.step(piece("b", start=32))
    script.telemetry.on_finish_sent(other, 1, STOP)
    script.telemetry.forget([key])
    assert script.scrape()("floorline_tokens_total", kind="overrun") == 1
    timeline = script.telemetry.request_timeline(other, DEFAULT_TENANT)
    assert timeline is not None
    assert timeline.generated_tokens == 1


def test_a_row_that_fails_is_waste_and_ends_its_request_alone() -> None:
    script = Scripted(PRICED)
    a, b = script.receive("a"), script.receive("b")
    script.step(piece("a", length=8), piece("b", length=8), admitted=(a, b))
    script.step(piece("a", start=8), piece("b", start=8), ended={"a": FAILED}, tokens=((b, 7),))
    scrape = script.scrape()
    assert scrape("floorline_lost_seconds_total", cause="failed") > 0
    assert scrape("floorline_requests_total", outcome="failed") == 1
    assert script.telemetry.cost([a]).steps == 1
    assert script.telemetry.cost([b]).steps == 2
    assert_time_law(script)
    assert_request_law(script)


def test_a_step_that_raised_is_lost_whole() -> None:
    script = Scripted(PRICED)
    key = script.receive("a")
    script.step(piece("a", length=8), admitted=(key,))
    script.fault(20, {"a": FAILED})
    script.fault(1, {}, kind="Weird")
    scrape = script.scrape()
    assert scrape("floorline_lost_seconds_total", cause="failed") == pytest.approx(0.021)
    assert scrape("floorline_engine_faults_total", kind="RuntimeError") == 1
    assert scrape("floorline_engine_faults_total", kind="other") == 1
    assert_time_law(script)


def test_requests_add_up_at_every_scrape() -> None:
    script = Scripted()
    script.telemetry.on_refused(2)
    assert_request_law(script)
    keys = [script.receive(name) for name in "abc"]
    assert script.scrape()("floorline_requests_waiting", reason="budget") == 3
    pool = PoolState(8, 0, 2, running=1, waiting={Obstacle.KV: 1, Obstacle.BUDGET: 1})
    script.step(piece("a", length=8), admitted=(keys[0],), pool=pool)
    scrape = script.scrape()
    assert scrape("floorline_requests_running") == 1
    assert scrape("floorline_requests_waiting", reason="kv") == 1
    assert_request_law(script)
    script.receive("d")
    script.idle(1, ended={"a": STOP, "b": FinishReason.ABORTED, "c": FAILED, "d": REFUSED})
    assert_request_law(script)
    scrape = script.scrape()
    assert scrape("floorline_requests_total", outcome="refused") == 2 + 1
    waited = scrape("floorline_request_duration_seconds_count", finish_reason="refused")
    assert waited == 1, "who is refused at once has no duration"


def test_an_engine_that_dies_fails_what_is_live_and_counters_go_on() -> None:
    script = Scripted()
    done, live = one_request(script, "a"), script.receive("b")
    script.telemetry.on_engine_down()
    scrape = script.scrape()
    assert scrape("floorline_engine_up") == 0
    assert scrape("floorline_requests_total", outcome="failed") == 1
    assert scrape("floorline_kv_blocks") == 0
    assert_request_law(script)
    wall = scrape("floorline_engine_wall_seconds_total")
    script.clock.now_ns += 500 * MS
    assert script.scrape()("floorline_engine_wall_seconds_total") == wall
    script.start()
    script.telemetry.forget([done, live])
    one_request(script, "c")
    scrape = script.scrape()
    assert scrape("floorline_engine_up") == scrape("floorline_engine_restarts_total") == 1
    assert scrape("floorline_requests_total", outcome="length") == 2
    assert_time_law(script)


def test_objectives_are_met_or_missed_by_request() -> None:
    script = Scripted(PRICED)
    one_request(script, "fast")
    script.receive("slow")
    script.idle(20)
    script.step(piece("slow", length=32), admitted=(RequestId("slow"),), ended={"slow": STOP})
    script.receive("dead")
    script.fault(1, {"dead": FAILED})
    script.receive("late")
    script.idle(1, ended={"late": REFUSED})
    scrape = script.scrape()

    def counts(objective: str) -> tuple[float, ...]:
        outcomes = ("met", "missed")
        name = "floorline_slo_requests_total"
        return tuple(scrape(name, objective=objective, outcome=o) for o in outcomes)

    assert counts("ttft") == (1, 3)
    assert counts("itl") == (1, 2), "one token has no latency between tokens"
    assert counts("e2e") == (2, 2)


def test_tenants_pay_for_themselves_and_share_the_rest() -> None:
    script = Scripted(PRICED)
    a, b = script.receive("a", tenant="red"), script.receive("b", tenant="blue")
    ended = {"a": LENGTH, "b": LENGTH}
    script.step(piece("a", length=32), piece("b", length=32), admitted=(a, b), ended=ended)
    script.idle(10)
    scrape, name = script.scrape(), "floorline_cost_usd_total"
    assert scrape(name, tenant="red") == pytest.approx(scrape(name, tenant="blue"))
    assert scrape(name, tenant="_shared", component="idle") == pytest.approx(10.05e-3 * 1e-3)
    assert scrape(name) == pytest.approx(20.05e-3 * 3.6 / 3600)
    usage = scrape("floorline_cost_usd_per_million_tokens", direction="input", basis="usage")
    assert usage == pytest.approx(10e-3 * 1e-3 / 64 * 1e6)
    allocation = scrape(
        "floorline_cost_usd_per_million_tokens", direction="input", basis="allocation"
    )
    assert allocation == pytest.approx(usage * 20.05 / 10)
    assert scrape("floorline_price_usd_per_hour") == pytest.approx(3.6)


def test_a_tenant_past_the_limit_is_other() -> None:
    script = Scripted(PRICED)
    for n in range(70):
        key = script.receive(f"r{n}", tenant=f"t{n}")
        script.step(piece(f"r{n}", length=8), admitted=(key,), ended={f"r{n}": STOP})
        script.telemetry.forget([key])
    names = {s.labels["tenant"] for s in script.scrape().samples if "tenant" in s.labels}
    assert len(names) == 64 + 2
    assert {"other", "_shared", "t63"} <= names
    assert "t64" not in names


def test_a_cost_model_that_misses_bytes_makes_no_floor(caplog: pytest.LogCaptureFixture) -> None:
    script = Scripted(kv_bytes=1)
    key = one_request(script)
    scrape = script.scrape()
    assert scrape("floorline_cost_model_coverage_ratio", of="weights") == 1
    assert scrape("floorline_cost_model_coverage_ratio", of="kv") > 1
    assert scrape("floorline_step_floor_seconds_count") == 0
    assert scrape("floorline_lost_seconds_total", cause="unknown_peak") == pytest.approx(0.024)
    assert not scrape.has("floorline_peak_bytes_per_second")
    assert script.telemetry.cost([key]).floor_ms is None
    assert script.telemetry.cost([key]).efficiency is None
    assert script.telemetry.cost([key]).lost_ms is None
    assert script.telemetry.cost([key]).decode_floor_ms is None
    assert "KV store" in caplog.text
    assert_time_law(script)


def test_a_floor_above_the_forward_is_counted_as_a_violation() -> None:
    script = Scripted(peaks=peaks(bytes_per_s=1e6))
    one_request(script)
    assert script.scrape()("floorline_floor_violations_total") == 3
    assert_time_law(script)


def measured(bytes_per_s: float) -> Peaks:
    dram, flops = (Peak(rate, PeakSource.MEASURED) for rate in (bytes_per_s, 100e9))
    return Peaks(dram=dram, cache=None, cache_bytes=0, flops=flops, arithmetic="fp32")


def test_a_violation_asks_for_new_peaks_once_and_later_steps_are_held_against_them() -> None:
    script = Scripted(peaks=measured(1e6))
    assert not script.telemetry.wants_peaks()
    one_request(script, "a")
    assert [script.telemetry.wants_peaks() for _ in range(2)] == [True, False]
    script.telemetry.on_peaks(measured(10e9))
    one_request(script, "b")
    scrape = script.scrape()
    assert scrape("floorline_peak_bytes_per_second", source="measured") == 10e9
    assert scrape("floorline_floor_violations_total") == 3
    assert not script.telemetry.wants_peaks()


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (10e9, "measured the peaks again: memory 1 MB/s → 10 GB/s, "),
        (1e6, "measured the peaks again, and none rose: memory 1 MB/s → 1 MB/s, "),
    ],
)
def test_the_log_says_what_a_new_measurement_came_to(
    after: float, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    script = Scripted(peaks=measured(1e6))
    script.telemetry.on_peaks(measured(after))
    (line,) = caplog.messages
    assert line.startswith(f"{words}arithmetic 100 GFLOP/s → 100 GFLOP/s")
    assert ("`floorline calibrate`" in line) == ("none rose" in line)
    assert ("--peak-bandwidth" in line) == ("none rose" in line)


def test_violations_that_no_measurement_explains_ask_once_a_minute() -> None:
    script = Scripted(peaks=measured(1e6))
    one_request(script, "a")
    assert script.telemetry.wants_peaks()
    one_request(script, "b")
    assert not script.telemetry.wants_peaks()
    script.idle(60_000)
    assert script.telemetry.wants_peaks()


def test_the_pause_doubles_up_to_an_hour_while_no_measurement_raises_a_peak() -> None:
    script = Scripted(peaks=measured(1e6))
    asked_min = []
    for minute in range(200):
        one_request(script, f"r{minute}")
        if script.telemetry.wants_peaks():
            asked_min.append(minute)
            script.telemetry.on_peaks(measured(1e6))
        script.idle(60_000)
    assert asked_min[:6] == [0, 1, 3, 7, 15, 31]
    assert asked_min[6:] == [63, 123, 183]


def test_a_question_that_nobody_answered_makes_no_pause_longer() -> None:
    """The engine had work again, or dropped the measurement."""
    script = Scripted(peaks=measured(1e6))
    asked_min = []
    for minute in range(4):
        one_request(script, f"r{minute}")
        if script.telemetry.wants_peaks():
            asked_min.append(minute)
        script.idle(60_000)
    assert asked_min == [0, 1, 2, 3]


def test_a_peak_that_rose_makes_the_pause_short_again() -> None:
    script = Scripted(peaks=measured(1e6))
    asked_min = []
    for minute in range(12):
        one_request(script, f"r{minute}")
        if script.telemetry.wants_peaks():
            asked_min.append(minute)
            rose = len(asked_min) == 3
            script.telemetry.on_peaks(measured(2e6 if rose or minute > 3 else 1e6))
        script.idle(60_000)
    assert asked_min[:4] == [0, 1, 3, 7]
    assert asked_min[4] == 8


@pytest.mark.parametrize("given", ["dram", "flops"])
def test_a_measurement_that_cannot_change_what_is_in_doubt_is_not_asked_for(given: str) -> None:
    slow = measured(1e6)
    changed = dataclasses.replace(slow, **{given: Peak(1e6, PeakSource.GIVEN)})
    if given == "flops":  # so slow that FLOPs make each floor
        changed = dataclasses.replace(changed, dram=Peak(1e12, PeakSource.MEASURED))
    script = Scripted(peaks=changed)
    one_request(script, "a")
    assert script.scrape()("floorline_floor_violations_total") > 0
    assert not script.telemetry.wants_peaks()


def test_measuring_the_peaks_is_lost_time_of_its_own() -> None:
    script = Scripted()
    script.idle(100)
    script.measure(40)
    script.idle(10)
    one_request(script)
    scrape = script.scrape()
    lost = "floorline_lost_seconds_total"
    assert scrape(lost, cause="calibration") == pytest.approx(0.04005)  # until it said its end
    assert scrape(lost, cause="idle") == pytest.approx(0.11005)
    assert_time_law(script)


def test_a_scrape_in_the_middle_of_a_measurement_books_it_as_one() -> None:
    script = Scripted()
    script.measure(40)
    assert script.scrape()("floorline_lost_seconds_total", cause="calibration") == pytest.approx(
        0.040
    )
    one_request(script)
    assert_time_law(script)


def test_peaks_that_were_given_are_not_doubted() -> None:
    script = Scripted(peaks=peaks(bytes_per_s=1e6))
    one_request(script)
    assert not script.telemetry.wants_peaks()


def test_new_peaks_make_no_floor_where_the_cost_model_misses_bytes() -> None:
    script = Scripted(kv_bytes=1)
    script.telemetry.on_peaks(measured(10e9))
    one_request(script)
    assert script.scrape()("floorline_step_floor_seconds_count") == 0


def test_utilization_is_over_busy_time_and_fades() -> None:
    script = Scripted()
    one_request(script)
    scrape = script.scrape()
    floor = scrape("floorline_floor_seconds_total")
    assert scrape("floorline_bandwidth_utilization_ratio") == pytest.approx(floor / 0.03, rel=0.3)
    assert 0 < scrape("floorline_flops_utilization_ratio") < 1
    script.idle(11_000)
    assert script.scrape()("floorline_bandwidth_utilization_ratio") == 0


def test_headroom_is_in_requests_of_recent_size() -> None:
    script = Scripted()
    assert script.scrape()("floorline_kv_blocks", state="free") == 64
    one_request(script)
    pool = PoolState(50, 0, 14, 0)
    script.receive("b")
    script.step(piece("b", length=8), admitted=(RequestId("b"),), pool=pool)
    scrape = script.scrape()
    assert scrape("floorline_kv_headroom_requests", size="p50") == 50 // 3
    assert scrape("floorline_kv_bytes", state="referenced") == 14 * 16 * 3072


def test_a_hit_of_the_prefix_index_is_counted_with_what_it_bought() -> None:
    script = Scripted(peaks=peaks(flops_per_s=10e9))
    a, b = script.receive("a"), script.receive("b")
    script.step(piece("a", length=32), admitted=(a,))
    pool = PoolState(50, 4, 10, 2)
    found = piece("b", start=16, length=16, cached=16)
    run = SharedRun((0, 1), 16)
    script.step(piece("a", start=32), found, admitted=(b,), shared=(run,), pool=pool)
    scrape = script.scrape()
    assert scrape("floorline_prefix_tokens_total", result="hit") == 16
    assert scrape("floorline_prefix_tokens_total", result="miss") == 32 + 16
    assert scrape("floorline_tokens_total", kind="cached") == 16
    assert scrape("floorline_prefix_saved_seconds_total") > 0
    assert scrape("floorline_prefix_saved_bytes_total") > 0
    assert scrape("floorline_kv_blocks", state="cached") == 4
    assert script.telemetry.cost([b]).cached_tokens == 16


def test_what_a_preempted_request_finds_again_is_a_hit_but_not_in_usage() -> None:
    script = Scripted()
    a = script.receive("a")
    script.step(piece("a", length=32), admitted=(a,))
    script.step(preempted=(a,))
    script.step(piece("a", start=16, length=17, recomputed=16, cached=16), admitted=(a,))
    scrape = script.scrape()
    assert scrape("floorline_prefix_tokens_total", result="hit") == 16
    assert scrape("floorline_prefix_tokens_total", result="miss") == 32 + 17
    assert scrape("floorline_tokens_total", kind="cached") == 0


def test_a_request_whose_grammar_is_being_compiled_waits_for_that() -> None:
    script = Scripted()
    script.receive("a")
    script.receive("b")
    script.step(piece("a", length=8), pool=PoolState(8, 0, 2, 1, {Obstacle.GRAMMAR: 1}))
    scrape = script.scrape()
    assert scrape("floorline_requests_waiting", reason="grammar") == 1
    assert_request_law(script)


def test_debug_views_tell_which_steps_ran_a_request_and_beside_whom() -> None:
    script = Scripted()
    a, b = script.receive("a"), script.receive("b")
    blocked = PoolState(0, 0, 64, 1, {Obstacle.KV: 1})
    script.step(piece("a", length=32), admitted=(a,), pool=blocked)
    script.step(piece("a", start=32), piece("b", length=32), admitted=(b,), ended={"a": STOP})
    timeline = script.telemetry.request_timeline(b, DEFAULT_TENANT)
    assert timeline is not None
    assert timeline.waited_steps == {"kv": 1, "slots": 0, "budget": 0, "grammar": 0}
    assert [(step.index, step.beside) for step in timeline.steps] == [(2, ["a"])]
    (own,), (whole,) = timeline.steps, script.telemetry.recent_steps(1)
    assert own.floor_ms == whole.floor_ms
    assert own.lost_ms == whole.lost_ms
    assert own.useful_floor_ms == whole.useful_floor_ms > 0
    assert own.useful_floor_ms + sum(own.lost_ms.values()) == pytest.approx(own.duration_ms)
    assert [step.kind for step in script.telemetry.recent_steps(5)] == ["prefill", "mixed"]
    assert script.telemetry.recent_steps(2)[0].pool == PoolView(0, 0, 64, 1, 1, 0, 0, 0)
    assert len(script.telemetry.recent_steps(1)) == 1
    script.telemetry.forget([a])
    assert script.telemetry.request_timeline(a, DEFAULT_TENANT) is not None, (
        "the ring still knows it"
    )
    assert script.telemetry.request_timeline(RequestId("nobody"), DEFAULT_TENANT) is None


def test_the_last_steps_are_kept_however_they_were_booked() -> None:
    script = Scripted()
    key = script.receive("a")
    script.step(piece("a", length=32), admitted=(key,))
    for n in range(STEPS_KEPT + 40):
        script.step(piece("a", start=32 + n), ms=1)
        if n % 7 == 0:
            script.telemetry.cost([key])
    indices = [step.index for step in script.telemetry.recent_steps(STEPS_KEPT + 40)]
    assert indices == list(range(42, STEPS_KEPT + 42))
    timeline = script.telemetry.request_timeline(key, DEFAULT_TENANT)
    assert timeline is not None
    assert len(timeline.steps) == STEPS_KEPT
    assert script.scrape()("floorline_step_duration_seconds_count") == STEPS_KEPT + 41


def test_a_view_of_the_pool_has_each_obstacle() -> None:
    names = [field.name for field in fields(PoolView)]
    assert names[-len(Obstacle) :] == [f"waiting_{obstacle}" for obstacle in Obstacle]


def test_what_is_kept_of_past_requests_is_bounded() -> None:
    script = Scripted()
    for n in range(600):
        key = script.receive(f"r{n}")
        script.telemetry.forget([key])  # its client left before the engine let go
        script.idle(1, ended={f"r{n}": FinishReason.ABORTED})
    assert script.telemetry.request_timeline(RequestId("r0"), DEFAULT_TENANT) is None
    assert script.telemetry.request_timeline(RequestId("r599"), DEFAULT_TENANT) is not None


def test_responses_are_counted_by_known_route_and_code() -> None:
    script = Scripted()
    for route, code in (("/health", 200), ("/health", 200), ("/etc/passwd", 404), ("/ready", 418)):
        script.telemetry.on_http_response(route, code)
    scrape, name = script.scrape(), "floorline_http_responses_total"
    assert scrape(name, route="/health", code="200") == 2
    assert scrape(name, route="other", code="404") == 1
    assert scrape(name, route="/ready", code="other") == 1


def test_telemetry_counts_its_own_time() -> None:
    script = Scripted()
    one_request(script)
    assert script.scrape()("floorline_telemetry_seconds_total") > 0


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("price_per_hour", -1.0),
        ("price_per_hour", float("nan")),
        ("price_per_hour", float("inf")),
        ("slo", "ttft"),
        ("slo", "ttft=fast"),
        ("slo", "tpot=5ms"),
        ("slo", "ttft=0ms"),
        ("slo", "ttft=1s,ttft=2s"),
        ("slo", ""),
        ("metric_aliases", "sglang"),
        ("metric_buckets", "tokens_total=1,2"),
        ("metric_buckets", "step_batch_requests"),
        ("metric_buckets", "step_batch_requests=2,1"),
        ("metric_buckets", "step_batch_requests=1,inf"),
        ("metric_buckets", "step_batch_requests=" + ",".join(map(str, range(60)))),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_its_flag(flag: str, value: object) -> None:
    with pytest.raises(SettingsError, match="--" + flag.replace("_", "-")):
        Telemetry("tiny", TelemetrySettings(**{flag: value}))  # type: ignore[arg-type]


def test_buckets_are_what_the_operator_says() -> None:
    spec = "step_batch_requests=1,3;step_duration_seconds=0.5"
    scrape = Scripted(TelemetrySettings(metric_buckets=spec)).scrape()
    bounds = {
        s.labels["le"] for s in scrape.samples if s.name == "floorline_step_batch_requests_bucket"
    }
    assert bounds == {"1.0", "3.0", "+Inf"}
    assert scrape("floorline_step_duration_seconds_bucket", kind="decode", le="0.5") == 0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_say() -> None:
    script = Scripted(PRICED)
    one_request(script)
    script.telemetry.on_http_response("/health", 200)
    result = subprocess.run(
        ["promtool", "check", "metrics"],
        input=script.telemetry.render(),
        capture_output=True,
        check=False,
    )
    assert (result.returncode, result.stdout + result.stderr) == (0, b"")


def test_a_prompt_with_several_choices_is_counted_once_as_usage_does() -> None:
    script = Scripted()
    for id, shares in (("a", False), ("b", True)):
        script.telemetry.on_received(RequestId(id), 32, shares_prompt=shares)
    script.step(piece("a", length=32, blocks=2), piece("b", length=32, blocks=2))
    scrape = script.scrape()
    assert scrape("floorline_tokens_total", kind="prompt") == 32
    assert scrape("floorline_tokens_total", kind="generated") == 2


def test_a_prompt_that_is_only_scored_is_counted_at_its_end() -> None:
    script = Scripted()
    script.receive("a")
    script.step(piece("a", length=32, rows=0, blocks=2), ended={"a": LENGTH})
    scrape = script.scrape()
    assert scrape("floorline_tokens_total", kind="prompt") == 32
    assert scrape("floorline_tokens_total", kind="generated") == 0


def test_cached_tokens_are_those_of_the_first_choice_at_its_first_admission() -> None:
    script = Scripted()
    for id, shares in (("a", False), ("b", True)):
        script.telemetry.on_received(RequestId(id), 48, shares_prompt=shares)
    both = RequestId("a"), RequestId("b")
    script.step(
        piece("a", start=32, length=16, blocks=3, cached=32),
        piece("b", start=32, length=16, blocks=3, cached=32),
        admitted=both,
    )
    script.step(piece("a", start=48, blocks=4), preempted=(RequestId("b"),))
    script.step(
        piece("a", start=49, blocks=4),
        piece("b", start=48, length=1, blocks=4, cached=48),
        admitted=(RequestId("b"),),
        ended={"a": LENGTH, "b": LENGTH},
    )
    assert script.telemetry.cost(both).cached_tokens == 32
    assert script.scrape()("floorline_tokens_total", kind="cached") == 32


def test_a_step_of_a_request_that_nobody_received_costs_the_steps_around_it_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Scripted()
    key = script.receive("a")
    script.step(piece("a", length=32), admitted=(key,))
    script.step(piece("a", start=32), piece("stranger"))
    script.step(piece("a", start=33), ended={"a": LENGTH})
    assert script.telemetry.cost([key]).steps == 2
    assert script.scrape()("floorline_step_duration_seconds_count") == 2
    assert "telemetry failed on step 2" in caplog.text
    script.step(piece("stranger"))
    assert script.scrape()("floorline_step_duration_seconds_count") == 2
    assert_time_law(script)
