"""Every step is paid for exactly: charges and waste sum to the step, the time law to the wall."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.formats import KVFormat, MatrixFormat, Storage
from core.machine import MemoryLevel
from core.wire import SharedRun, SliceRecord, StepReport
from costmodel.account import LostCause, StepAccounts
from costmodel.charges import WasteCause
from costmodel.floor import REGIMES, Regime, floor_of, floors_of
from costmodel.slices import ints
from costmodel.split import split_exactly
from costmodel.sums import ModelSums
from tests.unit.costmodel.models import (
    TINYGPT,
    account_step,
    model,
    peaks,
    piece,
    report,
    shares_of,
)

TINY = ModelSums.of(TINYGPT, Storage(MatrixFormat.FP32), KVFormat.FP32)
WINDOWED = ModelSums.of(
    model(sliding_window=(None, 8) * 3, tied_embeddings=True),
    Storage(MatrixFormat.FP16),
    KVFormat.FP16,
)


@st.composite
def slices(draw: st.DrawFn) -> tuple[SliceRecord, ...]:
    """Prefill, decode, mixed and resumed slices."""
    records = []
    for index in range(draw(st.integers(1, 9))):
        start, length = draw(st.integers(16, 300)), draw(st.sampled_from((1, 1, 1, 7, 40)))
        records.append(
            piece(
                f"r{index}",
                start=start,
                length=length,
                rows=draw(st.integers(0, 1)),
                recomputed=draw(st.sampled_from((0, 0, 1, length))),
            )
        )
    return tuple(records)


@st.composite
def steps(draw: st.DrawFn) -> tuple[StepReport, dict[int, WasteCause]]:
    pieces = draw(slices())
    count = len(pieces)
    readers = draw(st.lists(st.integers(0, count - 1), unique=True))
    shared = (SharedRun(tuple(readers), draw(st.integers(1, 16))),) if len(readers) > 1 else ()
    forward_ns, sample_ns, host_ns = (draw(st.integers(0, 9_999_999)) for _ in range(3))
    wasted = draw(
        st.dictionaries(
            st.integers(0, count - 1), st.sampled_from((WasteCause.OVERRUN, WasteCause.FAILED))
        )
    )
    step = report(
        *pieces,
        start_ns=5,
        end_ns=5 + forward_ns + sample_ns + host_ns,
        forward_ns=forward_ns,
        sample_ns=sample_ns,
        shared=shared,
        distinct_token_ids=draw(st.integers(1, 260)),
    )
    return step, wasted


def split_one(total: int, weights: list[int]) -> list[int]:
    """Share one total out."""
    return split_exactly(ints([total]), ints(weights), ints([0] * len(weights))).tolist()


PEAKS = st.builds(peaks, st.floats(1e8, 1e13), st.floats(1e8, 1e13))


@given(steps(), PEAKS, st.sampled_from((TINY, WINDOWED)), st.booleans())
def test_charges_and_waste_sum_to_the_step_to_the_unit(
    step: tuple[StepReport, dict[int, WasteCause]], device: object, model_: ModelSums, known: bool
) -> None:
    record, wasted = step
    device = device if known else replace(device, flops=None)  # type: ignore[type-var]
    account = account_step(model_, device, record, wasted)  # type: ignore[arg-type]
    charges, work, lost_ns = shares_of(account), account.work, account.lost_of(0)
    assert sum(c.bytes_read for c in charges) == work.bytes_read
    assert sum(c.bytes_written for c in charges) == work.kv_write_bytes
    assert sum(c.flops for c in charges) == work.flops
    assert sum(c.time_ns for c in charges) == account.wall_ns == record.end_ns - record.start_ns
    useful = sum(c.floor_ns for c in charges if c.waste is None)
    assert useful == account.useful_floor_ns
    assert account.useful_floor_ns + sum(lost_ns.values()) == account.wall_ns
    assert all(ns >= 0 for ns in lost_ns.values())
    assert sum(c.tokens for c in charges) == sum(s.length for s in record.slices)


@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**9), min_size=1).filter(any))
def test_a_split_loses_nothing_and_is_within_one_of_exact(total: int, weights: list[int]) -> None:
    shares, whole = split_one(total, weights), sum(weights)
    assert sum(shares) == total
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share * whole - total * weight) < whole


def test_a_split_among_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="share"):
        split_one(5, [0, 0])


def run(*pieces: SliceRecord, wasted: dict[int, WasteCause] | None = None) -> StepAccounts:
    return account_step(TINY, peaks(), report(*pieces), wasted or {})


def test_weights_are_split_by_tokens_and_the_head_by_rows() -> None:
    step = run(piece("a", length=30, rows=0), piece("b", start=30, rows=1))
    prefill, decode = shares_of(step)
    shared = TINY.layers_bytes + TINY.embedding_row_bytes
    assert prefill.bytes_read == round(shared * 30 / 31)
    assert decode.bytes_read == round(shared / 31) + TINY.lm_head_bytes + 30 * 3072
    assert (prefill.bytes_written, decode.bytes_written) == (30 * 3072, 3072)


def test_recomputed_tokens_are_charged_to_waste_and_the_rest_to_the_request() -> None:
    waste, own = shares_of(run(piece(length=40, recomputed=30)))
    assert (waste.waste, waste.tokens, waste.rows) == (WasteCause.RECOMPUTE, 30, 0)
    assert (own.waste, own.start, own.tokens, own.rows) == (None, 30, 10, 1)
    assert waste.bytes_written == 30 * 3072
    assert own.flops > waste.flops / 3  # a third of the tokens, later positions, and the head


def test_an_overrun_slice_is_lost_time_not_a_charge() -> None:
    account = run(piece("a", start=9), piece("b", start=9), wasted={1: WasteCause.OVERRUN})
    own, overrun = shares_of(account)
    assert (own.waste, overrun.waste) == (None, WasteCause.OVERRUN)
    assert account.lost_of(0)[LostCause.OVERRUN] == overrun.floor_ns > 0
    assert account.useful_floor_ns == own.floor_ns


def test_a_step_is_compared_with_its_slower_roof() -> None:
    work = TINY.work((piece(start=96),), (), distinct_token_ids=1)
    memory, compute = floors_of(work, peaks(1e9, 1e15)), floors_of(work, peaks(1e15, 1e9))
    assert memory.known
    assert compute.known
    assert memory.s == work.bytes_total / 1e9
    assert compute.s == work.flops / 1e9
    assert REGIMES[memory.regimes(ints([0])).item()] is Regime.MEMORY
    assert REGIMES[compute.regimes(ints([0])).item()] is Regime.COMPUTE
    assert REGIMES[memory.regimes(memory.ns + 1).item()] is Regime.OVERHEAD


def test_a_step_that_fits_into_the_cache_is_compared_with_the_cache() -> None:
    step = TINY.uniform_step(1, context=96, tokens=1)
    small = floor_of(step, peaks(1e9, 1e15, 5e9, cache_bytes=step.bytes))
    large = floor_of(step, peaks(1e9, 1e15, 5e9, cache_bytes=step.bytes - 1))
    assert small is not None
    assert large is not None
    assert (small.level, large.level) == (MemoryLevel.CACHE, MemoryLevel.DRAM)
    assert small.memory_s * 5 == pytest.approx(large.memory_s)


def test_an_unknown_peak_makes_no_floor_and_is_named_as_the_cause() -> None:
    account = account_step(TINY, replace(peaks(), flops=None), report(piece()), {})
    assert not account.floors.known
    assert account.regimes == len(REGIMES)
    assert account.useful_floor_ns == 0
    assert account.lost_of(0)[LostCause.UNKNOWN_PEAK] == 8_000_000


def test_a_forward_under_its_floor_is_a_violation_and_loses_no_time() -> None:
    account = account_step(TINY, peaks(bytes_per_s=1e6), report(piece()), {})
    assert account.violation
    assert account.useful_floor_ns == 8_000_000
    assert account.lost_of(0)[LostCause.MEMORY_SHORTFALL] == 0


def test_a_step_without_slices_is_all_host_and_forward() -> None:
    account = account_step(TINY, peaks(), report(), {})
    assert shares_of(account) == []
    assert account.useful_floor_ns == 0
    assert sum(account.lost_of(0).values()) == account.wall_ns


@pytest.mark.parametrize("cause", WasteCause)
def test_the_floor_of_wasted_tokens_is_lost_to_the_cause_of_that_name(cause: WasteCause) -> None:
    step = report(piece("a", length=8), piece("b", length=8))
    lost_ns = account_step(TINY, peaks(), step, {1: cause}).lost_of(0)
    assert lost_ns[LostCause[cause.name]] > 0
