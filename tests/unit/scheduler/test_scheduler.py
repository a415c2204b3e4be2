"""The scheduler's decisions, one sentence each."""

from __future__ import annotations

import pytest

from core.request import FinishReason, Obstacle, Phase, Request, RequestId
from core.step import StepPlan, StepResult
from core.wire import Ended, SharedRun
from scheduler.record import slice_records
from tests.fakes import ScriptedRunner
from tests.unit.scheduler.world import World


def request(name: str, prompt: int = 4, max_tokens: int = 4, stop: int | None = None) -> Request:
    """A request whose prompt is nobody else's."""
    own = int.from_bytes(name.encode()) * 100
    return Request(
        id=RequestId(name),
        prompt_ids=tuple(range(own, own + prompt)),
        max_tokens=max_tokens,
        stop_token_ids=frozenset() if stop is None else frozenset({stop}),
    )


def shape(plan: StepPlan) -> list[tuple[str, int, int, bool]]:
    return [(p.request.id, p.start, p.length, p.samples) for p in plan.slices]


# ── plan ──────────────────────────────────────────────────────────────────────────────────────


def test_a_prompt_runs_in_chunks_of_the_budget_and_only_the_last_one_samples() -> None:
    world, long = World(max_num_batched_tokens=4), request("long", prompt=10)
    world.add(long)
    shapes = [shape(world.step()) for _ in range(4)]
    assert shapes == [
        [("long", 0, 4, False)],
        [("long", 4, 4, False)],
        [("long", 8, 2, True)],
        [("long", 10, 1, True)],
    ]


def test_decode_and_prefill_share_a_step_and_those_who_run_go_first() -> None:
    world = World(max_num_batched_tokens=8)
    world.add(request("old"))
    world.step()
    world.add(request("new", prompt=12))
    plan = world.step()
    assert shape(plan) == [("old", 4, 1, True), ("new", 0, 7, False)]
    assert plan.admitted == ("new",)


def test_requests_are_admitted_in_the_order_they_came() -> None:
    world = World(max_num_seqs=2)
    world.add(request("a"), request("b"), request("c"))
    assert world.step().admitted == ("a", "b")


def test_a_large_head_is_not_overtaken_by_a_small_request_behind_it() -> None:
    world = World(blocks=4)
    world.add(request("runs", prompt=8), request("large", prompt=12), request("small", prompt=1))
    assert world.step().admitted == ("runs",)


def test_admission_takes_blocks_for_the_whole_prompt() -> None:
    world, long = (
        World(blocks=4, max_num_batched_tokens=4),
        request("long", prompt=12, max_tokens=2),
    )
    world.add(long)
    world.step()
    assert len(long.block_table) == 3


def test_the_newest_request_yields_when_an_older_one_needs_its_blocks() -> None:
    world = World(blocks=2)
    old, new = request("old"), request("new")
    world.add(old, new)
    world.step()
    plan = world.step()
    assert shape(plan) == [("old", 4, 1, True)]
    assert plan.preempted == ("new",)
    assert (new.phase, new.block_table) == (Phase.QUEUED, [])
    assert new.computed_tokens == 0
    assert (world.discarded, world.preemptions) == ({"new": 4}, {"new": 1})
    assert new.highest_computed_tokens == 4


def test_nobody_is_admitted_in_a_step_that_preempted() -> None:
    world = World(blocks=4)
    world.add(request("old"), request("new", prompt=12))
    world.step()
    world.add(request("tiny", prompt=1))
    plan = world.step()
    assert plan.preempted == ("new",)
    assert world.unreferenced_blocks == 2
    assert plan.admitted == ()


def test_the_newest_keeps_its_blocks_when_only_itself_is_short() -> None:
    world = World(blocks=3, block_size=4)
    old, new = request("old", prompt=5, max_tokens=3), request("new")
    world.add(old, new)
    world.step()
    plan = world.step()
    assert shape(plan) == [("old", 5, 1, True)]
    assert plan.preempted == ()
    assert (new.phase, len(new.block_table), new.computed_tokens) == (Phase.DECODE, 1, 4)


def test_a_preempted_request_goes_before_everybody_who_waits() -> None:
    world = World(blocks=2, max_num_seqs=2)
    world.add(request("old"), request("new"), request("later"))
    world.step()
    world.step()
    order = [end.id for end in world.run()]
    assert order == ["old", "new", "later"]


def test_a_preempted_request_says_what_it_would_have_said() -> None:
    def outputs(blocks: int) -> tuple[list[list[int]], int]:
        world = World(blocks=blocks)
        world.runner = ScriptedRunner()
        requests = [request(name, prompt=5, max_tokens=9) for name in "abc"]
        world.add(*requests)
        world.run()
        return [r.output_ids for r in requests], world.preemptions.total()

    roomy, none = outputs(64)
    tight, some = outputs(5)
    assert roomy == tight
    assert none == 0
    assert some > 0


def test_a_prompt_is_not_admitted_when_growth_would_preempt_it_half_way() -> None:
    """Old may take a block in each of the steps that the long prompt needs."""
    world = World(blocks=6, block_size=1, max_num_batched_tokens=3)
    old, long = request("old", prompt=1, max_tokens=6), request("long", prompt=4, max_tokens=1)
    world.add(old)
    world.step()
    world.add(long)
    world.step()
    assert (long.phase, world.unreferenced_blocks) == (Phase.QUEUED, 4)
    world.run()
    assert not world.preemptions


def test_each_who_runs_has_a_slice_in_every_step_when_blocks_abound() -> None:
    world = World(max_num_batched_tokens=4, max_num_seqs=8)
    world.add(*(request(name, prompt=1, max_tokens=9) for name in "abcdef"))
    world.step()
    assert [p[0] for p in shape(world.step())] == list("abcd")


# ── commit ────────────────────────────────────────────────────────────────────────────────────


def test_a_request_ends_at_its_length_and_gives_its_blocks_back() -> None:
    world, some = World(), request("r", max_tokens=2)
    world.add(some)
    assert world.run() == [Ended(some.id, FinishReason.LENGTH)]
    assert some.output_ids == [7, 7]
    assert world.pool.referenced_blocks == 0
    assert some.phase is Phase.FINISHED


def test_a_stop_token_ends_a_request_and_stays_in_its_output() -> None:
    world, some = World(), request("r", stop=7)
    world.add(some)
    assert world.run() == [Ended(some.id, FinishReason.STOP)]
    assert some.output_ids == [7]


def test_a_stop_token_in_the_last_place_is_a_stop() -> None:
    world, some = World(), request("r", max_tokens=1, stop=7)
    world.add(some)
    assert world.run() == [Ended(some.id, FinishReason.STOP)]


def test_max_tokens_zero_computes_the_prompt_and_samples_nothing() -> None:
    world, some = World(max_num_batched_tokens=3), request("r", max_tokens=0)
    world.add(some)
    assert shape(world.step()) == [("r", 0, 3, False)]
    assert shape(world.step()) == [("r", 3, 1, False)]
    assert world.ends == [Ended(some.id, FinishReason.LENGTH)]
    assert some.output_ids == []


def test_a_failed_row_ends_its_request_alone() -> None:
    world, good, bad = World(), request("good"), request("bad")
    world.add(good, bad)
    plan = world.scheduler.plan()
    result = StepResult({good.id: 7}, failed={bad.id: "NaN in its logits"})
    ends = world.scheduler.commit(plan, result)
    assert ends == (Ended(bad.id, FinishReason.FAILED, "NaN in its logits"),)
    assert (good.output_ids, good.phase) == ([7], Phase.DECODE)
    assert world.pool.referenced_blocks == len(good.block_table)


def test_a_result_without_one_of_its_rows_changes_nothing() -> None:
    world, good, lost = World(), request("good"), request("lost")
    world.add(good, lost)
    plan = world.scheduler.plan()
    with pytest.raises(AssertionError, match="lost"):
        world.scheduler.commit(plan, StepResult({good.id: 7}))
    assert (good.output_ids, good.computed_tokens) == ([], 0)


def test_a_step_that_raised_ends_its_requests_and_leaves_the_others() -> None:
    world = World(max_num_seqs=1)
    ran, waits = request("ran"), request("waits")
    world.add(ran, waits)
    plan = world.scheduler.plan()
    assert world.scheduler.fail(plan, "boom") == (Ended(ran.id, FinishReason.FAILED, "boom"),)
    assert world.pool.referenced_blocks == 0
    assert world.run() == [Ended(waits.id, FinishReason.LENGTH)]


# ── the prefix index ──────────────────────────────────────────────────────────────────────────


def twins(*names: str, prompt: int = 9) -> list[Request]:
    tokens = tuple(range(prompt))
    return [Request(id=RequestId(name), prompt_ids=tokens, max_tokens=3) for name in names]


def test_equal_prompts_wait_for_the_first_one_and_share_it_in_the_next_step() -> None:
    world = World()
    world.add(*twins("a", "b", "c"))
    assert shape(world.step()) == [("a", 0, 9, True)]
    assert waiting(world) == (0, 0, 2)
    plan = world.scheduler.plan()
    assert shape(plan) == [("a", 9, 1, True), ("b", 8, 1, True), ("c", 8, 1, True)]
    assert [record.cached for record in slice_records(plan)] == [0, 8, 8]
    assert world.scheduler.record(plan).shared == (SharedRun((0, 1, 2), 8),)


def test_they_wait_no_longer_when_the_first_one_is_aborted() -> None:
    world = World(max_num_batched_tokens=4)
    leader, follower = twins("a", "b")
    world.add(leader, follower)
    world.step()
    world.scheduler.abort(leader.id)
    assert shape(world.step()) == [("b", 0, 4, False)]


def test_a_row_that_failed_leaves_nothing_for_others_to_find() -> None:
    world = World()
    leader, follower = twins("a", "b")
    world.add(leader, follower)
    world.scheduler.commit(world.scheduler.plan(), StepResult({}, failed={leader.id: "NaN"}))
    assert world.pool.cached_blocks == 0
    assert shape(world.step()) == [("b", 0, 9, True)]


def test_a_preempted_request_finds_what_is_left_of_its_own() -> None:
    world = World(blocks=4)
    old, new = request("old", max_tokens=2), request("new", prompt=9, max_tokens=2)
    world.add(old, new)
    world.step()
    plan = world.step()
    assert plan.preempted == ("new",)
    plan = world.step()
    assert shape(plan) == [("new", 8, 2, True)]
    assert (new.cached_tokens, world.discarded["new"], new.computed_tokens) == (8, 9, 10)


# ── abort and finish ──────────────────────────────────────────────────────────────────────────


def test_an_abort_ends_a_request_once_wherever_it_is() -> None:
    world = World(max_num_seqs=2, max_num_batched_tokens=6)
    decode, prefill, queued = request("decode"), request("prefill", prompt=12), request("queued")
    world.add(decode, prefill, queued)
    world.step()
    phases = [each.phase for each in (decode, prefill, queued)]
    assert phases == [Phase.DECODE, Phase.PREFILL, Phase.QUEUED]
    for each in (decode, prefill, queued):
        assert world.scheduler.abort(each.id) == Ended(each.id, FinishReason.ABORTED)
        assert world.scheduler.abort(each.id) is None
    assert not world.scheduler.has_work
    assert world.pool.referenced_blocks == 0


def test_an_abort_of_an_unknown_id_touches_nobody() -> None:
    world, some = World(), request("r1")
    world.add(some)
    assert world.scheduler.abort(RequestId("r")) is None
    assert world.run() == [Ended(some.id, FinishReason.LENGTH)]


def test_an_abort_in_the_middle_of_a_step_beats_the_length_it_would_have_reached() -> None:
    world, some, other = World(), request("r", max_tokens=1), request("other")
    world.add(some, other)
    plan = world.scheduler.plan()
    assert world.scheduler.abort(some.id) == Ended(some.id, FinishReason.ABORTED)
    assert world.scheduler.commit(plan, world.runner.execute(plan)) == ()
    assert (some.phase, some.output_ids) == (Phase.FINISHED, [])
    assert some.computed_tokens == 4
    assert other.output_ids == [7]


def test_an_abort_in_the_middle_of_a_step_that_raises_stays_an_abort() -> None:
    world, some = World(), request("r")
    world.add(some)
    plan = world.scheduler.plan()
    assert world.scheduler.abort(some.id) == Ended(some.id, FinishReason.ABORTED)
    assert world.scheduler.fail(plan, "boom") == ()
    assert some.phase is Phase.FINISHED


def test_a_finish_keeps_the_tokens_before_the_stop_string() -> None:
    world, some = World(), request("r", max_tokens=9)
    world.add(some)
    for _ in range(3):
        world.step()
    assert world.scheduler.finish(some.id, 2, FinishReason.STOP) == Ended(
        some.id, FinishReason.STOP
    )
    assert some.output_ids == [7, 7]
    assert world.pool.referenced_blocks == 0
    assert world.scheduler.finish(some.id, 1, FinishReason.STOP) is None
    assert some.output_ids == [7, 7]


def test_an_ended_id_may_be_used_again() -> None:
    world = World()
    world.add(request("r"))
    world.run()
    world.add(request("r"))
    assert world.run() == [Ended(RequestId("r"), FinishReason.LENGTH)]


# ── add ───────────────────────────────────────────────────────────────────────────────────────


def test_a_request_fits_when_its_last_token_needs_no_slot() -> None:
    world = World(blocks=2)
    assert world.scheduler.fits(request("r", prompt=5, max_tokens=4))
    assert not world.scheduler.fits(request("r", prompt=5, max_tokens=5))


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (request("new", prompt=9), "could not finish alone"),
        (request("new", prompt=0), "nothing to compute"),
        (request("live"), "is live already"),
    ],
)
def test_what_callers_must_not_add_is_refused(bad: Request, complaint: str) -> None:
    world = World(blocks=2)
    world.add(request("live"))
    with pytest.raises(AssertionError, match=complaint):
        world.add(bad)


# ── gauges ────────────────────────────────────────────────────────────────────────────────────


def waiting(world: World) -> tuple[int, ...]:
    counts = world.scheduler.pool_state(waiting_grammar=0).waiting
    assert Obstacle.GRAMMAR not in counts
    return tuple(counts.get(why, 0) for why in (Obstacle.KV, Obstacle.SLOTS, Obstacle.BUDGET))


def test_all_who_wait_do_so_for_the_reason_of_the_head() -> None:
    slots, budget, kv = World(max_num_seqs=1), World(max_num_batched_tokens=4), World(blocks=2)
    for world in (slots, budget, kv):
        world.add(request("a"), request("b", prompt=5), request("c"))
        world.step()
    assert waiting(slots) == (0, 2, 0)
    assert waiting(budget) == (0, 0, 2)
    assert waiting(kv) == (2, 0, 0)


def test_a_preempted_request_waits_for_blocks() -> None:
    world = World(blocks=2)
    world.add(request("old"), request("new"))
    world.step()
    world.step()
    assert waiting(world) == (1, 0, 0)


def test_everybody_waits_for_blocks_while_a_running_request_does() -> None:
    world = World(blocks=3, max_num_seqs=2)
    world.add(request("old", prompt=5, max_tokens=3), request("short"), request("waits"))
    world.step()
    assert waiting(world) == (0, 1, 0)
    world.step()
    assert waiting(world) == (1, 0, 0)


def test_gauges_are_zero_at_idle() -> None:
    world = World(blocks=64)
    world.add(request("r"))
    world.run()
    state = world.scheduler.pool_state(waiting_grammar=0)
    assert (state.free_blocks, state.cached_blocks, state.referenced_blocks) == (63, 1, 0)
    assert (state.running, *waiting(world)) == (0, 0, 0, 0)
