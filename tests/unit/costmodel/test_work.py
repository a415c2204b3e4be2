"""Bytes and FLOPs of a step, against sums written out by hand or by brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.formats import KVFormat, MatrixFormat, Storage
from core.wire import SharedRun
from costmodel.sums import ModelSums, attended_pairs
from tests.unit.costmodel.models import TINYGPT, model, piece

TINY = ModelSums.of(TINYGPT, Storage(MatrixFormat.FP32), KVFormat.FP32)
LAYER_PARAMETERS = 2 * 256 * 256 + 2 * 64 * 256 + 3 * 1024 * 256


def test_a_decode_step_moves_layers_head_one_row_and_its_context() -> None:
    work = TINY.work((piece(start=96),), (), distinct_token_ids=1)
    assert work.weights_bytes == 4 * (6 * (LAYER_PARAMETERS + 2 * 256) + 256)
    assert work.lm_head_bytes == 4 * 260 * 256
    assert work.embedding_bytes == 4 * 256
    assert work.kv_read_bytes == 96 * 3072
    assert work.kv_write_bytes == 3072
    assert work.bytes_total == work.bytes_read + 3072


def test_flops_count_matrices_by_token_the_head_by_row_and_attention_by_pair() -> None:
    work = TINY.work((piece(length=5, rows=1), piece("b", start=9)), (), distinct_token_ids=6)
    assert work.linear_flops == 2 * 6 * LAYER_PARAMETERS * 6
    assert work.lm_head_flops == 2 * 260 * 256 * 2
    assert work.attention_flops == 6 * 4 * 4 * 64 * (1 + 2 + 3 + 4 + 5 + 10)
    assert work.flops == work.linear_flops + work.lm_head_flops + work.attention_flops


def test_a_step_without_logits_does_not_read_the_head() -> None:
    work = TINY.work((piece(length=16, rows=0),), (), distinct_token_ids=9)
    assert work.lm_head_bytes == work.lm_head_flops == 0


def test_a_step_without_slices_moves_nothing() -> None:
    work = TINY.work((), (), distinct_token_ids=0)
    assert work.bytes_total == work.flops == 0


def test_a_tied_embedding_is_the_head() -> None:
    tied = ModelSums.of(model(tied_embeddings=True), Storage(MatrixFormat.FP32), KVFormat.FP32)
    work = tied.work((piece(start=96),), (), distinct_token_ids=1)
    assert work == TINY.work((piece(start=96),), (), distinct_token_ids=1)
    assert tied.stored_bytes == TINY.stored_bytes - 4 * 260 * 256


def test_a_window_bounds_reads_and_attention_in_its_layers_only() -> None:
    config = model(sliding_window=(None, 8, None, 8, None, 8))
    windowed = ModelSums.of(config, Storage(MatrixFormat.FP32), KVFormat.FP32)
    work = windowed.work((piece(start=96),), (), distinct_token_ids=1)
    assert work.kv_read_bytes == (3 * 96 + 3 * 7) * 512
    assert work.attention_flops == (3 * 97 + 3 * 8) * 4 * 4 * 64
    assert work.kv_write_bytes == 3072


@given(st.integers(0, 40), st.integers(1, 40), st.one_of(st.none(), st.integers(1, 50)))
def test_attended_pairs_equal_the_sum_written_out(
    start: int, length: int, window: int | None
) -> None:
    limit = start + length if window is None else window
    assert attended_pairs(start, length, window) == sum(
        min(start + j, limit) for j in range(1, length + 1)
    )


def test_a_shared_run_is_read_once_and_split_evenly() -> None:
    slices = (piece("a", start=40), piece("b", start=50), piece("c", start=10))
    shared = (SharedRun((0, 1), 32),)
    work = TINY.work(slices, shared, distinct_token_ids=1)
    assert work.kv_read_bytes_by_slice.tolist() == [24 * 3072, 34 * 3072, 10 * 3072]
    assert work.kv_read_bytes == (40 + 50 + 10 - 32) * 3072


@given(
    windows=st.lists(st.one_of(st.none(), st.integers(1, 24)), min_size=6, max_size=6),
    trunk=st.integers(1, 12),
    branch=st.integers(1, 12),
    tails=st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
)
def test_shared_context_costs_what_the_union_of_positions_costs(
    windows: list[int | None], trunk: int, branch: int, tails: tuple[int, int, int]
) -> None:
    """Three requests share a trunk, two of them a branch on it; windows hide some of it."""
    starts = (trunk + branch + tails[0], trunk + branch + tails[1], trunk + tails[2])
    slices = tuple(piece(name, start=s) for name, s in zip("abc", starts, strict=True))
    shared = (SharedRun((0, 1, 2), trunk), SharedRun((0, 1), branch))
    sums = ModelSums.of(
        model(sliding_window=tuple(windows)), Storage(MatrixFormat.FP32), KVFormat.FP32
    )
    union, exact = 0, [0.0, 0.0, 0.0]
    for window in windows:
        readers: dict[tuple[str, int], set[int]] = {}
        for index, start in enumerate(starts):
            first = 0 if window is None else max(0, start - (window - 1))
            for position in range(first, start):
                owner = "trunk" if position < trunk else "branch"
                if position >= trunk and (index == 2 or position >= trunk + branch):
                    owner = f"own {index}"
                readers.setdefault((owner, position), set()).add(index)
        union += len(readers)
        for group in readers.values():
            for index in group:
                exact[index] += 512 / len(group)
    work = sums.work(slices, shared, distinct_token_ids=1)
    assert work.kv_read_bytes == union * 512
    assert list(work.kv_read_bytes_by_slice) == pytest.approx(exact, abs=36)
