"""Runs of shared context, and waiting for a prompt that is being computed."""

from __future__ import annotations

from core.request import BlockId, Request, RequestId
from core.step import Slice, StepPlan
from core.wire import SharedRun
from scheduler.sharing import shared_runs


def plan_over(*tables: list[int]) -> StepPlan:
    slices = []
    for number, table in enumerate(tables):
        id = RequestId(str(number))
        blocks = [BlockId(block) for block in table]
        some = Request(id=id, prompt_ids=(0,), max_tokens=1, block_table=blocks)
        slices.append(Slice(some, len(table) * 4, 1, samples=True))
    return StepPlan(tuple(slices))


def test_tables_without_a_common_beginning_share_nothing() -> None:
    assert shared_runs(plan_over([0, 1], [2, 3], []), 4) == ()


def test_a_common_beginning_is_one_run() -> None:
    runs = shared_runs(plan_over([0, 1, 2, 3], [7, 8], [0, 1, 2, 4]), 4)
    assert runs == (SharedRun((0, 2), 12),)


def test_a_table_may_be_another_ones_beginning() -> None:
    assert shared_runs(plan_over([0, 1], [0, 1, 2]), 4) == (SharedRun((0, 1), 8),)


def test_branches_follow_the_run_that_they_part_from() -> None:
    tables = [0, 1, 2], [0, 1, 3, 4], [0, 1, 3, 5], [0, 1, 2, 6], [9]
    assert shared_runs(plan_over(*tables), 1) == (
        SharedRun((0, 1, 2, 3), 2),
        SharedRun((0, 3), 1),
        SharedRun((1, 2), 1),
    )
