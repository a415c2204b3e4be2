"""What a plan says of itself."""

from __future__ import annotations

from core.request import Request, RequestId
from core.step import Slice, StepPlan
from core.wire import SliceRecord
from scheduler.record import distinct_token_ids, slice_records


def request(name: str, prompt: tuple[int, ...] = (1, 2, 3, 4)) -> Request:
    return Request(id=RequestId(name), prompt_ids=prompt, max_tokens=4)


def test_a_slice_tells_its_context_length_rows_and_blocks() -> None:
    some = request("r")
    some.block_table = [5, 6]
    plan = StepPlan((Slice(some, start=1, length=3, samples=True),))
    assert slice_records(plan) == (
        SliceRecord(id=some.id, start=1, length=3, rows=1, cached=0, recomputed=0, blocks=2),
    )


def test_positions_below_the_highest_ever_computed_are_recomputed_ones() -> None:
    some = request("r")
    some.highest_computed_tokens = 3

    def recomputed(start: int, length: int) -> int:
        (record,) = slice_records(StepPlan((Slice(some, start, length, samples=False),)))
        return record.recomputed

    assert recomputed(0, 2) == 2
    assert recomputed(2, 2) == 1
    assert recomputed(3, 1) == 0


def test_a_chunk_needs_no_logits() -> None:
    (record,) = slice_records(StepPlan((Slice(request("r"), 0, 2, samples=False),)))
    assert record.rows == 0


def test_a_token_that_several_slices_read_is_one_embedding_row() -> None:
    some, other = request("r", (9, 9, 5)), request("other", (5, 6))
    other.output_ids.append(4)
    plan = StepPlan((Slice(some, 0, 3, samples=True), Slice(other, 1, 2, samples=True)))
    assert distinct_token_ids(plan) == 4
