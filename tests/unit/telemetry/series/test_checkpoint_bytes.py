"""The gauges of what a step reads: of the checkpoint's own bytes, and of those that are held."""

from __future__ import annotations

import math

from core.formats import CheckpointBytes, MatrixFormat, Storage
from costmodel.storage import weight_bytes
from tests.unit.costmodel.models import TINYGPT
from tests.unit.telemetry.scripted import Scripted

FP32 = Storage(MatrixFormat.FP32)


def test_the_checkpoint_s_bytes_stand_beside_those_that_are_served() -> None:
    held = sum(size for role, size in weight_bytes(TINYGPT, FP32).items() if role != "embedding")
    scrape = Scripted(checkpoint=CheckpointBytes(held // 5)).scrape()
    assert scrape("floorline_step_weight_bytes", copy="served") == held
    assert scrape("floorline_step_weight_bytes", copy="checkpoint") == held // 5


def test_a_checkpoint_that_nobody_counted_has_no_number() -> None:
    assert math.isnan(Scripted().scrape()("floorline_step_weight_bytes", copy="checkpoint"))
