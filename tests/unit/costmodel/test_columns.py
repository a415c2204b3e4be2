"""Many steps at once are accounted for as each would be alone, and as the plain sums say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.machine import MemoryLevel
from core.wire import StepReport
from costmodel.account import account_steps
from costmodel.charges import WasteCause
from costmodel.floor import REGIMES, Floor, floor_of
from costmodel.slices import ints, slices_of
from costmodel.split import split_exactly
from costmodel.sums import ModelSums, StepTotals
from tests.unit.costmodel import plain
from tests.unit.costmodel.models import account_step, peaks, report, row_of, shares_of
from tests.unit.costmodel.test_charges import PEAKS, TINY, WINDOWED, steps

Step = tuple[StepReport, dict[int, WasteCause]]

MANY = st.lists(st.one_of(steps(), st.just((report(), {}))), min_size=1, max_size=6)
TOTALS = st.one_of(st.integers(0, 40), st.integers(0, 2**50 - 1))
WEIGHTS = st.one_of(st.integers(1, 3), st.integers(0, 2**57))
GROUPS = st.lists(st.tuples(TOTALS, st.lists(WEIGHTS, max_size=12)), min_size=1, max_size=8)


@given(GROUPS)
def test_totals_that_are_split_together_are_split_as_each_alone(
    groups: list[tuple[int, list[int]]],
) -> None:
    groups = [(total if any(weights) else 0, weights) for total, weights in groups]
    group = [index for index, (_, weights) in enumerate(groups) for _ in weights]
    shares = split_exactly(
        ints([total for total, _ in groups]),
        ints([weight for _, weights in groups for weight in weights]),
        ints(group),
    )
    assert shares.tolist() == [
        share for total, weights in groups for share in plain.split(total, weights)
    ]


@pytest.mark.parametrize(
    ("total", "weights", "shares"),
    [
        (2, [1, 1, 1], [1, 1, 0]),  # ties go to the first
        (4, [5, 1, 4], [2, 0, 2]),  # 2.0, 0.4, 1.6
        (7, [3, 1, 1, 2], [3, 1, 1, 2]),
        (10, [7, 6, 6], [4, 3, 3]),  # 3.68, 3.16, 3.16: the one that is left to the largest rest
        (2**50 - 1, [2**60, 2**60 - 1], [2**49, 2**49 - 1]),
    ],
)
def test_what_is_left_goes_to_the_largest_remainder(
    total: int, weights: list[int], shares: list[int]
) -> None:
    assert split_exactly(ints([total]), ints(weights), ints([0] * len(weights))).tolist() == shares


def test_a_group_without_rows_leaves_its_neighbours_alone() -> None:
    assert split_exactly(ints([0, 5]), ints([1, 2]), ints([1, 1])).tolist() == [2, 3]


@pytest.mark.parametrize(("total", "weight"), [(2**50, 1), (1, 2**61)])
def test_a_split_past_what_is_exact_is_our_bug(total: int, weight: int) -> None:
    with pytest.raises(AssertionError):
        split_exactly(ints([total]), ints([weight, 1]), ints([0, 0]))


@given(MANY, PEAKS, st.sampled_from((TINY, WINDOWED)), st.booleans())
def test_steps_together_have_the_accounts_that_each_has_alone(
    many: list[Step], device: object, model: ModelSums, known: bool
) -> None:
    device = device if known else replace(device, flops=None)  # type: ignore[type-var]
    reports, wasted = [record for record, _ in many], [causes for _, causes in many]
    accounts = account_steps(model, device, reports, slices_of(reports), wasted)  # type: ignore[arg-type]
    for index, (record, causes) in enumerate(many):
        alone = account_step(model, device, record, causes)  # type: ignore[arg-type]
        assert row_of(accounts, index) == row_of(alone, 0)
        place = accounts.regimes[index]
        regime = plain.regime(alone, device, record)  # type: ignore[arg-type]
        assert (REGIMES[place] if place < len(REGIMES) else None) is regime
    lost_ns = sum(sum(ns.tolist()) for ns in accounts.lost_ns.values())
    assert lost_ns == sum(sum(accounts.lost_of(i).values()) for i in range(len(many)))


@given(steps(), PEAKS, st.sampled_from((TINY, WINDOWED)), st.booleans())
def test_charges_are_those_written_out_one_at_a_time(
    step: Step, device: object, model: ModelSums, known: bool
) -> None:
    record, wasted = step
    device = device if known else replace(device, flops=None)  # type: ignore[type-var]
    account = account_step(model, device, record, wasted)  # type: ignore[arg-type]
    charged = [(c.slice, c.tokens, *c[5:10]) for c in shares_of(account)]
    assert charged == plain.shares(model, record, wasted, account)


def test_a_step_that_fits_into_the_cache_stands_beside_one_that_does_not() -> None:
    small, large = (report(distinct_token_ids=count) for count in (1, 2))
    device = peaks(1e9, 1e15, 5e9, cache_bytes=TINY.embedding_row_bytes)
    floors = account_steps(TINY, device, [small, large], slices_of([small, large]), [{}, {}]).floors
    assert np.allclose(floors.memory_s * [5e9, 1e9], TINY.embedding_row_bytes * np.array([1, 2]))


def test_a_step_in_the_cache_is_held_against_the_rate_of_its_own_working_set() -> None:
    row = TINY.embedding_row_bytes
    curve = ((row, 8e9), (3 * row, 5e9))
    device = replace(peaks(1e9, 1e15, 5e9, cache_bytes=6 * row), cache_curve=curve)
    many = [report(distinct_token_ids=count) for count in (1, 2, 3, 5, 6, 7)]
    floors = account_steps(TINY, device, many, slices_of(many), [{}] * len(many)).floors
    rates = np.array([8e9, 8e9, 5e9, 5e9, 5e9, 1e9])
    assert np.allclose(floors.memory_s * rates, row * np.array([1, 2, 3, 5, 6, 7]))
    for k, count in enumerate((1, 2, 3, 5, 6, 7)):
        step = StepTotals(weight_bytes=count * row, kv_bytes=0, flops=0)
        assert floor_of(step, device) == Floor(
            floors.memory_s[k], 0.0, MemoryLevel.CACHE if k < 5 else MemoryLevel.DRAM
        )


def test_a_set_smaller_than_any_that_was_read_is_held_against_the_smallest() -> None:
    row = TINY.embedding_row_bytes
    device = replace(peaks(1e9, 1e15, 5e9, cache_bytes=8 * row), cache_curve=((4 * row, 9e9),))
    steps = [report(distinct_token_ids=1)]
    floors = account_steps(TINY, device, steps, slices_of(steps), [{}]).floors
    assert floors.memory_s[0] == pytest.approx(row / 9e9)
    step = StepTotals(weight_bytes=row, kv_bytes=0, flops=0)
    assert floor_of(step, device) == Floor(floors.memory_s[0], 0.0, MemoryLevel.CACHE)
