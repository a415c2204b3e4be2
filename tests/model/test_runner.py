"""The runner: one row's fault stays its own, and what a block held before is never seen."""

from __future__ import annotations

import torch

from core.formats import KVFormat
from core.step import StepPlan
from engine.forward.attention import group_attention, step_tensors
from engine.forward.batch import build_batch
from engine.step.runner import NOT_FINITE
from tests.model.oracle import Oracle
from tests.model.running import BLOCK_SIZE, sliced

LONG, SHORT = tuple(range(1, 100)), tuple(range(50, 70))


def test_nan_left_in_every_free_slot_reaches_nobody(tinygpt: Oracle) -> None:
    clean, dirty = tinygpt.ours.kv(16), tinygpt.ours.kv(16)
    for layer in dirty.layers:
        layer.keys.fill_(torch.nan)
        layer.values.fill_(torch.nan)
    plan = StepPlan((sliced(LONG, 0, 0, len(LONG)), sliced(SHORT, 8, 0, len(SHORT))))
    assert torch.equal(tinygpt.ours.logits(plan, clean), tinygpt.ours.logits(plan, dirty))


def test_a_request_whose_keys_are_nan_fails_alone(tinygpt: Oracle) -> None:
    kv = tinygpt.ours.kv(16)
    runner = tinygpt.ours.runner(kv)
    alone = runner.execute(StepPlan((sliced(SHORT, 8, 0, len(SHORT)),)))
    runner.execute(StepPlan((sliced(LONG, 0, 0, 90, samples=False),)))
    kv.layers[3].keys[0].fill_(torch.nan)
    broken, healthy = sliced(LONG, 0, 90, 9), sliced(SHORT, 8, 0, len(SHORT))
    result = runner.execute(StepPlan((broken, healthy)))
    assert result.failed == {broken.request.id: NOT_FINITE}
    assert result.tokens == alone.tokens


def test_slices_that_do_not_sample_have_no_row(tinygpt: Oracle) -> None:
    runner = tinygpt.ours.runner(tinygpt.ours.kv(16))
    silent = sliced(LONG, 0, 0, 64, samples=False)
    result = runner.execute(StepPlan((silent,)))
    assert (result.tokens, result.failed) == ({}, {})
    loud = sliced(SHORT, 8, 0, len(SHORT))
    result = runner.execute(StepPlan((sliced(LONG, 0, 64, 10, samples=False), loud)))
    assert set(result.tokens) == {loud.request.id}


def test_a_kv_store_in_fp16_changes_logits_by_little(tinygpt: Oracle) -> None:
    plan = StepPlan((sliced(LONG, 0, 0, len(LONG)),))
    exact = tinygpt.ours.logits(plan, tinygpt.ours.kv(8))
    halved = tinygpt.ours.logits(plan, tinygpt.ours.kv(8, KVFormat.FP16))
    assert 0 < (exact - halved).abs().max() < 2e-3 * exact.abs().max()


def test_decode_rows_are_not_padded_to_the_width_of_prefill() -> None:
    """16 requests in decode beside a prefill of 112: two groups, and no padded query at all."""
    decode = [sliced(tuple(range(40)), 4 * i, 39, 1) for i in range(16)]
    prefill = sliced(tuple(range(112)), 64, 0, 112)
    batch = step_tensors(build_batch(StepPlan((*decode, prefill)), BLOCK_SIZE))
    rows, prompt = group_attention(batch, BLOCK_SIZE, frozenset({None}), 1)
    assert (rows.queries.shape, prompt.queries.shape) == ((16, 1), (1, 112))
    assert rows.keys.numel() == 16 * 40


def test_one_long_context_does_not_widen_the_gather_of_short_ones() -> None:
    short = [sliced(tuple(range(100)), 8 * i, 99, 1) for i in range(63)]
    long = sliced(tuple(range(8000)), 600, 7999, 1)
    batch = step_tensors(build_batch(StepPlan((*short, long)), BLOCK_SIZE))
    groups = group_attention(batch, BLOCK_SIZE, frozenset({None}), 1)
    assert sum(group.keys.numel() for group in groups) == 63 * 100 + 8000


def test_a_group_of_long_contexts_is_split_before_its_copy_grows_large() -> None:
    slices = tuple(sliced(tuple(range(8000)), 500 * i, 7999, 1) for i in range(20))
    batch = step_tensors(build_batch(StepPlan(slices), BLOCK_SIZE))
    groups = group_attention(batch, BLOCK_SIZE, frozenset({None}), 1)
    assert [group.queries.shape[0] for group in groups] == [8, 8, 4]
