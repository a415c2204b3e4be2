"""The gauges of what a step reads: of the checkpoint's own bytes, and of those that are held."""

from __future__ import annotations

import math

import pytest

from core.formats import CheckpointBytes, Expansion, MatrixFormat, Storage
from core.request import FinishReason, RequestId
from costmodel.storage import weight_bytes
from tests.unit.costmodel.models import TINYGPT, peaks, piece
from tests.unit.telemetry.scripted import Scripted

FP32 = Storage(MatrixFormat.FP32)
HELD = sum(size for role, size in weight_bytes(TINYGPT, FP32).items() if role != "embedding")
LARGER = (Expansion("Q4_K", MatrixFormat.FP32, 1, 5),)
A, B = RequestId("a"), RequestId("b")


def test_the_checkpoint_s_bytes_stand_beside_those_that_are_served() -> None:
    scrape = Scripted(checkpoint=CheckpointBytes(HELD // 5)).scrape()
    assert scrape("floorline_step_weight_bytes", copy="served") == HELD
    assert scrape("floorline_step_weight_bytes", copy="checkpoint") == HELD // 5


def test_a_checkpoint_that_nobody_counted_has_no_number() -> None:
    assert math.isnan(Scripted().scrape()("floorline_step_weight_bytes", copy="checkpoint"))


def two_steps(script: Scripted) -> tuple[float, float, list[float]]:
    """Run two requests; give the floor, the checkpoint's, and the latter as the bills say."""
    script.receive("a", 16)
    script.receive("b", 16)
    script.step(piece("a", 0, 16, 1), piece("b", 0, 16, 1), ms=90, admitted=(A, B))
    ended = {"a": FinishReason.LENGTH, "b": FinishReason.LENGTH}
    script.step(piece("a", 16, 1, 1), piece("b", 16, 1, 1), ms=90, ended=ended)
    bills = [script.telemetry.cost([id]).checkpoint_floor_ms or 0.0 for id in (A, B)]
    scrape = script.scrape()
    floor_s = scrape("floorline_floor_seconds_total")
    return floor_s, scrape("floorline_checkpoint_floor_seconds_total"), bills


def test_a_larger_copy_has_two_floors_and_the_bills_sum_to_either() -> None:
    """Both steps are bound by bytes; of a step, the weights are all but a little KV."""
    slow = peaks(bytes_per_s=1e9, flops_per_s=1e15)
    script = Scripted(checkpoint=CheckpointBytes(HELD // 5, LARGER), peaks=slow)
    floor_s, own_s, bills = two_steps(script)
    saved_s = 2 * (HELD - HELD / 5) / 1e9
    assert floor_s - own_s == pytest.approx(saved_s, rel=1e-5)
    assert sum(bills) / 1e3 == pytest.approx(own_s, abs=1e-9)


@pytest.mark.parametrize("expansions", [(), LARGER])
def test_a_copy_that_is_no_larger_has_one_floor(expansions: tuple[Expansion, ...]) -> None:
    floor_s, own_s, bills = two_steps(Scripted(checkpoint=CheckpointBytes(HELD, expansions)))
    assert floor_s == own_s > 0
    assert sum(bills) / 1e3 == pytest.approx(own_s, abs=1e-9)
