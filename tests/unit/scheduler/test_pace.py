"""Sizing steps by their predicted time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.formats import KVFormat, MatrixFormat, Storage
from core.machine import Peak, Peaks, PeakSource
from core.model import ModelConfig
from core.request import Request, RequestId
from core.settings import SchedulerSettings
from core.step import Slice, StepPlan, StepResult
from costmodel.sums import ModelSums
from kvcache.pool import BlockPool
from scheduler.pace import LEAST_TOKENS, PACED_TOKENS, Load, Pace, pace_for, step_limit
from scheduler.scheduler import Scheduler
from tests.unit.costmodel.models import TINYGPT, model, piece

GIVEN = PeakSource.GIVEN
PEAKS = Peaks(
    dram=Peak(1e10, GIVEN), cache=None, cache_bytes=0, flops=Peak(1e11, GIVEN), arithmetic="fp32"
)
WINDOWED = model(sliding_window=(None, 32, 64) * 2)
SUMS = ModelSums.of(TINYGPT, Storage(MatrixFormat.FP32), KVFormat.FP32)


def pace(goal_s: float) -> Pace:
    made = Pace(SUMS, PEAKS, goal_s)
    made.correction = 1.0
    return made


def load(*slices: tuple[int, int]) -> Load:
    some = Load()
    for start, length in slices:
        some.add(start, length)
    return some


@pytest.mark.parametrize("decodes", [0, 8, 64])
@pytest.mark.parametrize("start", [0, 100, 5_000])
def test_the_chunk_is_the_longest_that_keeps_the_predicted_step_within_the_goal(
    decodes: int, start: int
) -> None:
    goal_s = 0.03
    beside = load(*[(200, 1)] * decodes)
    chunk = pace(goal_s).prompt_tokens(beside, start)
    assert chunk > LEAST_TOKENS
    within = load(*[(200, 1)] * decodes, (start, chunk))
    over = load(*[(200, 1)] * decodes, (start, chunk + 2))
    assert pace(goal_s).predicted_s(within) <= goal_s < pace(goal_s).predicted_s(over)


def test_a_step_that_takes_longer_than_the_goal_anyhow_carries_the_least() -> None:
    assert pace(1e-6).prompt_tokens(load((0, 1)), 0) == LEAST_TOKENS
    assert pace(1e-6).prompt_tokens(load((0, LEAST_TOKENS)), 0) == 0


def test_a_second_prompt_gets_what_the_first_left() -> None:
    first = pace(0.03).prompt_tokens(load(), 0)
    second = pace(0.03).prompt_tokens(load((0, first - 100)), 0)
    within, over = ((0, first - 100), (0, second)), ((0, first - 100), (0, second + 2))
    assert pace(0.03).predicted_s(load(*within)) <= 0.03 < pace(0.03).predicted_s(load(*over))


def test_the_prediction_is_the_cost_models_floor() -> None:
    some = load((300, 1), (0, 40))
    slices = [(300, 1), (0, 40)]
    pairs = sum(length * start + length * (length + 1) // 2 for start, length in slices)
    flops = 41 * SUMS.linear_flops_per_token + pairs * SUMS.attention_flops(0, 1)
    kv = (300 + 41) * SUMS.kv_token_bytes
    memory_s = (SUMS.layers_bytes + SUMS.lm_head_bytes + kv) / 1e10
    assert pace(1.0).predicted_s(some) == pytest.approx(max(memory_s, flops / 1e11))


@pytest.mark.parametrize("config", [TINYGPT, WINDOWED])
@pytest.mark.parametrize(
    "slices", [[(300, 1), (0, 40)], [(31, 1), (32, 1), (33, 9)], [(5_000, 70), (0, 500)]]
)
def test_the_paces_bytes_and_flops_are_those_of_the_step_record(
    config: ModelConfig, slices: list[tuple[int, int]]
) -> None:
    """But for the embedding rows: which tokens are alike is not known before the step."""
    sums = ModelSums.of(config, Storage(MatrixFormat.FP32), KVFormat.FP32)
    pieces = [piece(start=start, length=length) for start, length in slices]
    work = sums.work(pieces, (), distinct_token_ids=0)
    for bytes_per_s, flops_per_s, floor_s in (
        (1.0, 1e300, work.bytes_total),
        (1e300, 1.0, work.flops - work.lm_head_flops),
    ):
        peaks = replace(PEAKS, dram=Peak(bytes_per_s, GIVEN), flops=Peak(flops_per_s, GIVEN))
        some = Pace(sums, peaks, goal_s=1.0)
        assert some.predicted_s(some.load(plan_of(*slices))) == floor_s


@pytest.mark.parametrize("start", [0, 100, 5_000])
def test_a_chunk_under_windows_is_longer_and_still_keeps_the_goal(start: int) -> None:
    sums = ModelSums.of(WINDOWED, Storage(MatrixFormat.FP32), KVFormat.FP32)
    windowed, goal_s = Pace(sums, PEAKS, 0.03), 0.03
    windowed.correction = 1.0
    chunk = windowed.prompt_tokens(windowed.load(), start)
    full = pace(goal_s).prompt_tokens(load(), start)
    assert chunk > full if start else chunk == full
    assert windowed.predicted_s(windowed.load(plan_of((start, chunk)))) <= goal_s


def plan_of(*slices: tuple[int, int]) -> StepPlan:
    some = Request(id=RequestId("r"), prompt_ids=(1,), max_tokens=1)
    return StepPlan(tuple(Slice(some, start, length, samples=False) for start, length in slices))


def test_what_steps_took_corrects_the_prediction() -> None:
    slow = pace(0.03)
    before, plan = slow.prompt_tokens(load(), 0), plan_of((0, 64))
    slow.observe(plan, 3 * slow.predicted_s(slow.load(plan)))
    assert 1.1 < slow.correction < 2, "one step is one voice among several"
    for _ in range(50):
        slow.observe(plan, 3 * slow.predicted_s(slow.load(plan)))
    assert slow.correction == pytest.approx(3, rel=0.01)
    assert slow.prompt_tokens(load(), 0) == pytest.approx(before / 3, rel=0.15)


def test_steps_without_a_prompt_and_clocks_that_stand_still_teach_nothing() -> None:
    some = pace(0.03)
    some.observe(plan_of((10, 1)), 9.0)
    some.observe(plan_of((0, 64)), 0.0)
    assert some.correction == 1.0


def test_the_scheduler_tells_the_pace_what_each_step_took() -> None:
    paced = pace(0.03)
    scheduler = Scheduler(BlockPool(100, 16), SchedulerSettings(itl_goal=0.03), paced)
    some = Request(id=RequestId("r"), prompt_ids=tuple(range(64)), max_tokens=2)
    scheduler.add(some)
    result = StepResult({some.id: 7}, forward_ns=40_000_000, sample_ns=2_000_000)
    plan = scheduler.plan()
    scheduler.commit(plan, result)
    twin = pace(0.03)
    twin.observe(plan, 0.042)
    assert paced.correction == twin.correction != 1.0


def test_auto_is_paced_where_there_is_a_goal_and_peaks() -> None:
    auto, goal = SchedulerSettings(), SchedulerSettings(itl_goal=0.05)
    fixed = SchedulerSettings(max_num_batched_tokens=7, itl_goal=0.05)
    assert [step_limit(each) for each in (auto, goal, fixed)] == [128, PACED_TOKENS, 7]
    assert pace_for(goal, SUMS, PEAKS) is not None
    unknown = Peaks(dram=None, cache=None, cache_bytes=0, flops=None, arithmetic="fp32")
    for limits, peaks in ((auto, PEAKS), (fixed, PEAKS), (goal, unknown)):
        assert pace_for(limits, SUMS, peaks) is None


def test_a_long_prompt_beside_streams_is_cut_to_the_pace_and_ends() -> None:
    limits = SchedulerSettings(itl_goal=0.03)
    scheduler = Scheduler(BlockPool(1_000, 16), limits, pace(0.03))
    scheduler.add(Request(id=RequestId("s"), prompt_ids=(1,), max_tokens=99))
    scheduler.add(Request(id=RequestId("long"), prompt_ids=tuple(range(2_000)), max_tokens=1))
    lengths = []
    while "long" in scheduler._running._requests or not lengths:
        plan = scheduler.plan()
        lengths += [p.length for p in plan.slices if p.request.id == "long"]
        assert plan.slices[0].request.id == "s"
        tokens = {p.request.id: 7 for p in plan.slices if p.samples}
        scheduler.commit(plan, StepResult(tokens))
    assert sum(lengths) == 2_000
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-2] > LEAST_TOKENS


class OneTokenAStep:
    """The slowest pace that there can be."""

    def load(self) -> Load:
        return Load()

    def prompt_tokens(self, load: Load, start: int) -> int:
        return 0 if load.prompt_tokens else 1

    def observe(self, plan: StepPlan, measured_s: float) -> None:
        assert plan.slices


def test_who_is_paced_through_its_prompt_is_not_preempted_before_it_gained() -> None:
    """The older one runs out of blocks meanwhile: it sits out, and takes them afterwards."""
    limits = SchedulerSettings(max_num_batched_tokens=16)
    scheduler = Scheduler(BlockPool(6, 2), limits, OneTokenAStep())  # type: ignore[arg-type]
    old = Request(id=RequestId("old"), prompt_ids=(1,), max_tokens=9)
    slow = Request(id=RequestId("slow"), prompt_ids=tuple(range(2, 10)), max_tokens=3)
    seen, preempted = [], []
    for each in (old, slow):
        scheduler.add(each)
    while scheduler.has_work:
        plan = scheduler.plan()
        seen.append(({piece.request.id for piece in plan.slices}, len(slow.output_ids)))
        preempted += plan.preempted
        assert slow.output_ids or "slow" not in preempted, "preempted before it gained"
        scheduler.commit(plan, StepResult({p.request.id: 7 for p in plan.slices if p.samples}))
    assert ({"slow"}, 0) in seen
    assert preempted.count(slow.id) == 1
