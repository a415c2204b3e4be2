"""What the prefix index bought, held against the same step written without it."""

from __future__ import annotations

from core.formats import KVFormat, MatrixFormat, Storage
from core.machine import Peaks
from core.wire import SharedRun, StepReport
from costmodel.account import account_steps
from costmodel.saving import Saving, saving_of
from costmodel.slices import slices_of
from costmodel.sums import ModelSums
from tests.unit.costmodel.models import TINYGPT, account_step, peaks, piece, report

ARITHMETIC = ModelSums.of(TINYGPT, Storage(MatrixFormat.FP32), KVFormat.FP32)
SLOW_SUMS = peaks(flops_per_s=10e9)  # so that FLOPs make the floor of a prompt of any length


def saving(record: StepReport) -> Saving:
    return saving_of(
        ARITHMETIC,
        SLOW_SUMS,
        account_steps(ARITHMETIC, SLOW_SUMS, [record], slices_of([record]), [{}]),
    )


def floor_ns(record: StepReport) -> int:
    return account_step(ARITHMETIC, SLOW_SUMS, record, {}).floors.ns.item()


def test_a_cached_prefix_saves_the_floor_of_computing_it() -> None:
    found = report(piece("a", start=64, length=8, cached=64))
    computed = report(piece("a", start=0, length=72))
    assert saving(found) == Saving(0, floor_ns(computed) - floor_ns(found))
    assert saving(found).floor_ns > 0


def test_a_shared_run_saves_the_bytes_of_reading_it_again() -> None:
    slices = piece("a", start=100), piece("b", start=100), piece("c", start=100)
    shared = report(*slices, shared=(SharedRun((0, 1, 2), 64),))
    assert saving(shared).bytes == 2 * 64 * ARITHMETIC.kv_token_bytes


def test_a_step_that_found_nothing_saves_nothing() -> None:
    assert saving(report(piece("a", length=32), piece("b", start=5))) == Saving(0, 0)


def test_without_a_peak_bytes_are_saved_and_no_seconds() -> None:
    record = report(piece("a", start=40), piece("b", start=40), shared=(SharedRun((0, 1), 16),))
    unknown = Peaks(dram=None, cache=None, cache_bytes=0, flops=None, arithmetic="fp32")
    saved = saving_of(
        ARITHMETIC, unknown, account_steps(ARITHMETIC, unknown, [record], slices_of([record]), [{}])
    )
    assert saved == Saving(16 * ARITHMETIC.kv_token_bytes, 0)
