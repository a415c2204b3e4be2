"""What a step proves raises a peak at once; what no machine could do is a violation."""

from __future__ import annotations

import pytest

from core.machine import Peak, Peaks, PeakSource
from tests.unit.costmodel.models import piece
from tests.unit.telemetry.scripted import Scripted
from tests.unit.telemetry.test_telemetry import assert_time_law

MIB = 2**20
STEP_BYTES = 23.3e6  # of tinygpt; `Scripted` spends 8/10 of a step in its forward pass


def curve(memory: float, *rates: float, flops: float = 100e9) -> Peaks:
    """Rates of sets of 1, 2, 4 … MiB, all of them in the cache."""
    measured = PeakSource.MEASURED
    points = tuple((MIB << place, rate) for place, rate in enumerate(rates))
    return Peaks(
        dram=Peak(memory, measured),
        cache=Peak(rates[-1], measured),
        cache_bytes=MIB << len(rates),
        flops=Peak(flops, measured),
        arithmetic="fp32",
        cache_curve=points,
    )


LOW = curve(1e9, 3e9, 2e9)  # up to 4 MiB: the step's set is read from memory


def run(script: Scripted, id: str, *forward_ms: float) -> None:
    key = script.receive(id, 4)
    for step, ms in enumerate(forward_ms):
        script.step(
            piece(id, length=4 if step == 0 else 1, start=0 if step == 0 else 3 + step),
            ms=round(ms / 0.8),
            admitted=(key,) if step == 0 else (),
        )


def test_a_step_faster_than_the_peak_raises_it_and_is_no_violation() -> None:
    script = Scripted(peaks=LOW)
    run(script, "a", 8, 8, 8)
    scrape = script.scrape()
    assert scrape("floorline_floor_violations_total") == 0
    assert scrape("floorline_peak_raises_total", peak="memory") >= 1
    (proof,) = script.telemetry.proofs()
    assert proof.forward_ns == 8e6
    assert proof.amount == pytest.approx(STEP_BYTES, rel=0.01)
    assert proof.per_s == pytest.approx(STEP_BYTES / 8e-3, rel=0.01)
    assert_time_law(script)


def test_no_step_is_under_its_floor_twice_for_the_same_reason() -> None:
    """Each step reads a token's KV more than the one before."""
    script = Scripted(peaks=LOW)
    run(script, "a", *[8] * 3)
    script.scrape()
    raises = script.scrape()("floorline_peak_raises_total", peak="memory")
    run(script, "b", *[8] * 100)
    scrape = script.scrape()
    assert scrape("floorline_floor_violations_total") == 0
    assert scrape("floorline_peak_raises_total", peak="memory") <= raises + 100
    views = script.telemetry.recent_steps(100)
    assert all(view.floor_ms is not None and view.floor_ms <= 8.0 + 1e-6 for view in views)
    assert_time_law(script)


def test_arithmetic_is_proven_as_memory_is() -> None:
    script = Scripted(peaks=curve(100e9, 300e9, flops=1e9))
    run(script, "a", 8)
    scrape = script.scrape()
    assert scrape("floorline_floor_violations_total") == 0
    assert scrape("floorline_peak_flops_per_second", source="proven") > 1e9
    assert scrape("floorline_peak_raises_total", peak="memory") == 0


def test_what_is_faster_by_far_than_anything_measured_is_a_violation() -> None:
    low = curve(1e8, 1e8)
    script = Scripted(peaks=low)
    run(script, "a", 8)
    scrape = script.scrape()
    assert scrape("floorline_floor_violations_total") == 1
    assert scrape("floorline_peak_raises_total", peak="memory") == 0
    assert script.telemetry.proofs() == []
    assert script.telemetry.wants_peaks()
    assert_time_law(script)


def test_a_set_that_is_in_the_cache_after_all_moves_its_end_and_leaves_memory_as_it_was() -> None:
    script = Scripted(peaks=LOW)
    run(script, "a", 8)
    scrape = script.scrape()
    assert scrape("floorline_peak_bytes_per_second", level="dram") == 1e9
    size = str(16 * MIB)
    proven = scrape("floorline_peak_read_bytes_per_second", working_set_bytes=size)
    assert proven == pytest.approx(STEP_BYTES / 8e-3, rel=0.01)
    smaller = scrape("floorline_peak_read_bytes_per_second", working_set_bytes=str(2 * MIB))
    assert smaller == proven
    assert scrape("floorline_peak_read_bytes_per_second", working_set_bytes=str(MIB)) == 3e9


def test_a_little_more_than_memory_gives_is_memory() -> None:
    script = Scripted(peaks=curve(2.8e9, 9e9))
    run(script, "a", 8)
    scrape = script.scrape()
    memory = scrape("floorline_peak_bytes_per_second", level="dram", source="proven")
    assert memory == pytest.approx(STEP_BYTES / 8e-3, rel=0.01)


def test_a_later_measurement_and_a_restart_keep_what_was_proven() -> None:
    script = Scripted(peaks=LOW)
    run(script, "a", 8)
    size = str(16 * MIB)
    proven = script.scrape()("floorline_peak_read_bytes_per_second", working_set_bytes=size)
    script.telemetry.on_peaks(LOW)
    again = script.scrape()("floorline_peak_read_bytes_per_second", working_set_bytes=size)
    script.telemetry.on_engine_down()
    script.start(peaks=LOW)
    restarted = script.scrape()("floorline_peak_read_bytes_per_second", working_set_bytes=size)
    assert proven == again == restarted
