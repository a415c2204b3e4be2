"""A window sums what ended in its seconds, and says what made it slow."""

from __future__ import annotations

from core.request import FinishReason, Obstacle, RequestId
from core.settings import TelemetrySettings
from core.wire import PoolState
from tests.unit.costmodel.models import piece
from tests.unit.telemetry.scripted import MS, Scripted

LENGTH = FinishReason.LENGTH
SLOTS = PoolState(8, 0, 0, 1, {Obstacle.SLOTS: 1})


def run_one(script: Scripted, id: str, wait_ms: int) -> None:
    """Let a request wait behind a step of another, and then run it."""
    script.receive(f"{id}-first", 16)
    first = (RequestId(f"{id}-first"),)
    script.step(piece(f"{id}-first", 0, 16, 1), ms=5, admitted=first)
    script.receive(id, 16)
    script.step(piece(f"{id}-first", 16, 1, 1), ms=5, pool=SLOTS)
    script.step(
        piece(f"{id}-first", 17, 1, 1), ms=wait_ms, pool=SLOTS, ended={f"{id}-first": LENGTH}
    )
    script.step(piece(id, 0, 16, 1), ms=5, admitted=(RequestId(id),), ended={id: LENGTH})


def test_nothing_ran() -> None:
    script = Scripted()
    script.idle(1000)
    view = script.telemetry.why(60)
    assert (view.sentence, view.ended, view.slow) == ("Nothing ran in the last 60 s.", 0, {})


def test_slow_requests_are_counted_by_what_made_them_slow() -> None:
    script = Scripted(TelemetrySettings(slo="ttft=100ms"))
    run_one(script, "a", wait_ms=400)
    run_one(script, "b", wait_ms=20)
    view = script.telemetry.why(60)
    assert view.ended == 4
    assert view.slow == {"wait_slots": 1}
    assert view.worst is not None
    assert view.worst.id == "a"
    assert view.sentence.startswith("1 of 4 requests were slow in 60 s, 1 by wait_slots; ")
    assert sum(view.spent_ms.values()) == view.mean_ms * 4  # type: ignore[operator]
    scrape = script.scrape()
    assert scrape("floorline_slow_requests_total", part="ttft", code="wait_slots") == 1
    assert scrape("floorline_slow_requests_total") == 1
    spent_s = scrape("floorline_request_time_seconds_total")
    assert abs(spent_s - scrape("floorline_request_duration_seconds_sum")) < 1e-9


def test_old_seconds_are_left_out() -> None:
    script = Scripted(TelemetrySettings(slo="ttft=100ms"))
    run_one(script, "a", wait_ms=400)
    script.idle(30_000)
    assert script.telemetry.why(60).ended == 2
    assert script.telemetry.why(10).ended == 0
    run_one(script, "b", wait_ms=20)
    view = script.telemetry.why(10)
    assert (view.ended, view.slow) == (2, {})
    assert view.sentence.startswith("Not slow: 2 requests in 10 s, ")


def test_what_a_window_lost_is_the_engines_time() -> None:
    script = Scripted()
    run_one(script, "a", wait_ms=100)
    view = script.telemetry.why(1)
    lost_ms = sum(view.lost_ms.values())
    assert view.efficiency is not None
    assert abs(lost_ms / (1 - view.efficiency) - 115) < 1e-6
    assert view.busy == 0.115 + 0 * MS
