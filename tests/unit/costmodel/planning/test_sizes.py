"""The sums of plans agree with those that the server counts by, and with themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.errors import SettingsError
from core.formats import KVFormat, MatrixFormat, Storage
from core.wire import SharedRun
from costmodel.planning.datasheet import device
from costmodel.planning.scenario import Binding, Scenario, curve
from costmodel.planning.sizes import Size, Width, sums_of
from costmodel.sums import ModelSums
from tests.unit.costmodel.models import TINYGPT, model, piece

FP16 = Width.parse("fp16")
WINDOWED = model(sliding_window=(None, 32) * 3, tied_embeddings=True)


@pytest.mark.parametrize("config", [TINYGPT, WINDOWED])
@pytest.mark.parametrize(("context", "tokens"), [(0, 64), (96, 1), (1000, 5)])
def test_a_step_s_totals_are_those_of_the_step_record(config, context: int, tokens: int) -> None:
    totals = sums_of(config, FP16, FP16).uniform_step(3, context, tokens)
    sums = ModelSums.of(config, Storage(MatrixFormat.FP16), KVFormat.FP16)
    slices = [piece(id=name, start=context, length=tokens) for name in "abc"]
    work = sums.work(slices, (), distinct_token_ids=1)
    assert totals.bytes == work.bytes_total
    assert totals.kv_bytes == work.kv_read_bytes + work.kv_write_bytes
    assert totals.flops == work.flops


@pytest.mark.parametrize("config", [TINYGPT, WINDOWED])
def test_a_shared_prefix_is_read_once(config) -> None:
    totals = sums_of(config, FP16, FP16).uniform_step(3, context=96, tokens=1, shared=64)
    sums = ModelSums.of(config, Storage(MatrixFormat.FP16), KVFormat.FP16)
    slices = [piece(id=name, start=96) for name in "abc"]
    work = sums.work(slices, (SharedRun((0, 1, 2), 64),), distinct_token_ids=1)
    assert totals.bytes == work.bytes_total


def test_all_stored_weights_are_counted() -> None:
    sums = sums_of(TINYGPT, Width.parse("fp32"), FP16)
    assert sums.parameters == 5_838_080
    assert sums.stored_bytes == 4 * sums.parameters


def test_a_width_is_a_name_or_bits() -> None:
    assert Width.parse("bf16").bytes(3) == 6
    assert Width.parse("4.5").bytes(16) == 9
    assert Width.parse("int4").bytes(3) == 2, "half a byte is not stored"
    for text in ("wide", "0", "-1", "nan", "65"):
        with pytest.raises(SettingsError, match="neither a width"):
            Width.parse(text)


def scenario(**changes: object) -> Scenario:
    size = Size(parameters=7_000_000_000, layers=32, heads=32, kv_heads=32, head_dim=128)
    base = Scenario(model=size, weights=FP16, kv=FP16, device=device("a100"), context=1024)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_the_largest_batch_is_the_last_that_meets_the_goal() -> None:
    for goal_s in (0.008, 0.02, 0.035):
        limit = scenario().largest_batch(goal_s)
        assert limit.binding is Binding.BANDWIDTH
        assert scenario().decode(limit.batch).itl_s <= goal_s
        assert scenario().decode(limit.batch + 1).itl_s > goal_s


def test_a_shared_prefix_lets_more_requests_fit() -> None:
    alone, shared = scenario(), scenario(shared=512)
    assert alone.requests_that_fit == 122
    assert shared.requests_that_fit == 244


def test_the_curve_ends_with_what_fits() -> None:
    batches = [point.batch for point in curve(scenario(), through=5)]
    assert batches == [1, 2, 4, 5, 8, 16, 32, 64, 122]


def test_a_prompt_that_is_all_shared_still_runs_its_last_token() -> None:
    whole = scenario(shared=1024).prefill()
    assert 0 < whole.compute_s < scenario(shared=512).prefill().compute_s
