"""Who goes first: classes, tenants' shares, ageing, and the modes of batching."""

from __future__ import annotations

import pytest

from core.request import Obstacle, Request, RequestId
from core.settings import Batching, Switch
from scheduler.record import slice_records
from scheduler.shares import Shares
from scheduler.waiting import WaitingQueue
from tests.unit.scheduler.world import World


def request(name: str, tenant: str = "a", priority: int = 0, prompt: int = 4) -> Request:
    own = int.from_bytes(name.encode(), "big") % 10_000 * 100
    return Request(
        id=RequestId(name),
        prompt_ids=tuple(range(own, own + prompt)),
        max_tokens=4,
        tenant=tenant,
        priority=priority,
    )


# ── classes ───────────────────────────────────────────────────────────────────────────────────


def test_a_lower_number_is_served_first_and_within_it_who_came_first() -> None:
    world = World(max_num_seqs=1)
    world.add(request("x", priority=1), request("y"), request("z", priority=-1), request("w"))
    assert world.admissions() == ["z", "y", "w", "x"]


def test_the_lowest_class_yields_its_blocks_first() -> None:
    world = World(blocks=2)
    world.add(request("low", priority=1), request("high"))
    assert world.step().admitted == ("high", "low")
    plan = world.step()
    assert plan.preempted == ("low",)


def test_a_later_request_of_a_higher_class_precedes_those_who_run() -> None:
    world = World(max_num_batched_tokens=5)
    world.add(request("low", priority=1))
    world.step()
    world.add(request("high"))
    world.step()
    assert [piece.request.id for piece in world.step().slices] == ["high", "low"]


def test_a_tenant_that_calls_all_urgent_goes_before_its_own_requests_and_no_others() -> None:
    world = World(max_num_seqs=1)
    urgent = (request(f"a{i}", priority=-100) for i in range(3))
    world.add(request("a9"), *urgent, request("b0", "b"), request("b1", "b"))
    assert world.admissions() == ["a0", "b0", "a1", "b1", "a2", "a9"]


def test_where_the_operator_says_so_priority_goes_before_shares() -> None:
    world = World(max_num_seqs=1, priority_across_tenants=True)
    urgent = (request(f"a{i}", priority=-100) for i in range(3))
    world.add(*urgent, request("b0", "b"), request("b1", "b"))
    assert world.admissions() == ["a0", "a1", "a2", "b0", "b1"]


@pytest.mark.parametrize(("across", "yields"), [(False, ["c1"]), (True, ["b"])])
def test_who_yields_its_blocks_is_ordered_by_class_within_a_tenant(
    across: bool, yields: list[str]
) -> None:
    world = World(blocks=3, priority_across_tenants=across)
    world.add(request("a", priority=-1), request("b", "b", 5), request("c1", priority=1))
    assert world.step().admitted == (("a", "b", "c1") if not across else ("a", "c1", "b"))
    assert list(world.step().preempted[:1]) == yields


# ── tenants ───────────────────────────────────────────────────────────────────────────────────


def test_tenants_take_turns_however_many_one_of_them_sends() -> None:
    world = World(max_num_seqs=1)
    world.add(*(request(f"a{i}") for i in range(5)), request("b0", "b"), request("b1", "b"))
    assert world.admissions() == ["a0", "b0", "a1", "b1", "a2", "a3", "a4"]


def test_a_tenant_that_was_away_has_saved_nothing_up() -> None:
    world = World(max_num_seqs=1)
    world.add(request("b0", "b"), *(request(f"a{i}") for i in range(8)))
    for _ in range(18):
        world.step()
    world.add(*(request(f"b{i}", "b") for i in range(1, 4)))
    assert world.admissions()[:4] == ["b1", "a4", "b2", "a5"]


def test_a_tenant_that_comes_back_still_owes_what_it_was_served() -> None:
    shares = Shares()
    for tenant in "ab":
        shares.join(tenant, waits_already=False)
    shares.charge("a", 100)
    shares.charge("b", 10)
    shares.leave("a")
    shares.join("a", waits_already=False)
    assert (shares.served("a"), shares.served("b")) == (100, 10)


def test_who_only_ran_while_others_waited_has_saved_nothing_up() -> None:
    shares = Shares()
    for tenant in "ab":
        shares.join(tenant, waits_already=False)
    shares.charge("b", 100)
    shares.join("b", waits_already=True)
    shares.join("a", waits_already=False)
    assert (shares.served("a"), shares.served("b")) == (100, 100)


def test_nobody_owes_who_came_when_nobody_else_was_there() -> None:
    shares = Shares()
    for tenant in "abc":
        shares.join(tenant, waits_already=False)
    shares.charge("a", 100)
    shares.leave("a")
    shares.leave("b")
    shares.join("c", waits_already=False)
    assert shares.served("c") == 100


def test_two_tenants_with_a_backlog_are_served_the_same() -> None:
    """Jain's index over what was served: 1 is equal. One sends long requests, the other short."""
    world = World(max_num_seqs=8, max_num_batched_tokens=64)
    for number in range(400):
        world.add(request(f"a{number}", "a", prompt=40), request(f"b{number}", "b", prompt=4))
    for _ in range(200):
        world.step()
    assert {r.tenant for r in world.scheduler._waiting._requests.values()} == {"a", "b"}
    a, b = world.served["a"], world.served["b"]
    assert (a + b) ** 2 / (2 * (a * a + b * b)) >= 0.95


def test_a_flooded_neighbour_waits_at_most_twice_its_solo_time_and_a_step() -> None:
    def latency(flood: int, at: int) -> int:
        world = World(max_num_seqs=4, max_num_batched_tokens=64)
        world.add(*(request(f"a{number}", "a") for number in range(flood)))
        for _ in range(at):
            world.step()
        began = world.steps
        world.add(request("me", "b"))
        while "me" not in world.ended_at:
            world.step()
        return world.ended_at["me"] - began

    solo = latency(0, 0)
    assert solo == 4
    for at in range(12):
        assert latency(1_000, at) <= 2 * solo + 1


def test_who_holds_every_slot_is_served_more_than_a_request_before_anybody_else() -> None:
    """Why shares are close to within a batch, not a request: for them nobody is preempted."""
    world = World(max_num_seqs=8, max_num_batched_tokens=8)
    crowd = [request(f"a{number}", "a") for number in range(9)]
    for each in crowd:
        each.max_tokens = 40
    world.add(*crowd)
    while len(world.step().slices) < 8:
        pass
    world.add(request("b", "b"))
    before = world.served["a"]
    while not world.served["b"]:
        world.step()
    gain, cost = world.served["a"] - before, crowd[0].worst_case_tokens
    assert 2 * max(cost, 8) < gain <= 8 * cost


def test_prefixes_found_are_not_charged() -> None:
    world = World()
    twins = [Request(id=RequestId(n), prompt_ids=(1, 2, 3, 4, 5), max_tokens=9) for n in "xy"]
    world.add(twins[0])
    world.step()
    world.add(twins[1])
    world.step()
    assert world.scheduler._shares.total == 5 + 1 + 1


# ── ageing ────────────────────────────────────────────────────────────────────────────────────


def test_an_endless_flood_of_a_higher_class_does_not_starve_a_lower_one() -> None:
    world = World(max_num_seqs=1, ageing_tokens=50)
    world.add(request("low", priority=9))
    for number in range(100):
        world.add(request(f"high{number}"))
        world.step()
        if "low" in world.ended_at:
            break
    assert 50 <= world.served["a"] <= 50 + 7 + 7


def test_an_endless_stream_of_cache_hits_starves_nobody() -> None:
    world = World(max_num_seqs=1, ageing_tokens=10**9)
    prompt = tuple(range(40))
    world.add(request("other", "b", prompt=40), request("other2", "b", prompt=40))
    for number in range(200):
        world.add(Request(id=RequestId(str(number)), prompt_ids=prompt, max_tokens=1, tenant="a"))
        world.step()
        if "other2" in world.ended_at:
            return
    pytest.fail("starved")


def test_a_head_ages_from_when_it_became_the_head() -> None:
    shares = Shares()
    queue = WaitingQueue(shares, ageing_tokens=10)
    first, second, other = request("x"), request("y"), request("z", "b")
    for number, each in enumerate((first, second, other)):
        each.arrival = number
        shares.join(each.tenant, waits_already=False)
        queue.push(each)
    shares.charge("b", 1)
    shares.charge("a", 8)
    queue.remove(first)  # second is a head since 9
    shares.charge("a", 1)
    assert queue.head is other  # a head since 0
    queue.remove(other)
    queue.push(other)
    shares.charge("a", 9)
    assert queue.head is second


# ── a returned request ────────────────────────────────────────────────────────────────────────


def test_preempted_requests_keep_their_order_however_they_come_back() -> None:
    shares = Shares()
    queue = WaitingQueue(shares, ageing_tokens=10**9)
    requests = [request(name) for name in "wxyz"]
    for number, each in enumerate(requests):
        each.arrival = number
        shares.join(each.tenant, waits_already=False)
    queue.push(requests[3])
    for each in (requests[1], requests[0], requests[2]):
        queue.push_back(each)
    order = []
    while queue:
        order.append(queue.head)
        queue.remove(queue.head)
    assert order == requests


def test_nothing_is_remembered_of_tenants_at_idle() -> None:
    world = World()
    world.add(request("x"), request("y", "b"))
    world.admissions()
    assert world.scheduler._shares._served == {}
    assert world.scheduler._waiting._lines == {}


# ── modes ─────────────────────────────────────────────────────────────────────────────────────


def test_without_batching_one_runs_at_a_time() -> None:
    world = World(batching=Batching.NONE)
    world.add(request("x"), request("y"))
    batches = [len(world.step().slices) for _ in range(8)]
    assert batches == [1] * 8
    assert not world.scheduler.has_work


def test_nobody_joins_a_static_batch_until_all_of_it_has_ended() -> None:
    world = World(batching=Batching.STATIC, max_num_seqs=2)
    world.add(*(request(name) for name in "wxyz"))
    first = [world.step().admitted for _ in range(5)]
    assert first == [("w", "x"), (), (), (), ("y", "z")]


def test_a_slot_that_a_static_batch_frees_stays_empty() -> None:
    world = World(batching=Batching.STATIC, max_num_seqs=2)
    short = request("short")
    short.max_tokens = 1
    world.add(short, request("x"), request("y"))
    assert [world.step().admitted for _ in range(5)] == [("short", "x"), (), (), (), ("y",)]


def test_a_static_batch_is_filled_over_several_steps_when_the_budget_is_short() -> None:
    world = World(batching=Batching.STATIC, max_num_seqs=3, max_num_batched_tokens=4)
    world.add(*(request(name) for name in "wxyz"))
    admitted = [world.step().admitted for _ in range(3)]
    assert admitted == [("w",), ("x",), ("y",)]


def test_who_comes_while_a_static_batch_runs_waits_for_a_slot() -> None:
    world = World(batching=Batching.STATIC)
    world.add(request("x"))
    world.step()
    world.add(request("y"))
    world.step()
    assert world.scheduler.pool_state(waiting_grammar=0).waiting == {Obstacle.SLOTS: 1}


def test_without_a_kv_cache_every_token_is_computed_again_and_said_to_be() -> None:
    world, some = World(kv_cache=Switch.OFF), request("x")
    world.add(some)
    shapes = []
    for _ in range(4):
        plan = world.scheduler.plan()
        (record,) = slice_records(plan)
        shapes.append((record.start, record.length, record.recomputed))
        world.scheduler.commit(plan, world.runner.execute(plan))
    assert shapes == [(0, 4, 0), (0, 5, 4), (0, 6, 5), (0, 7, 6)]
    assert not world.scheduler.has_work


def test_without_a_kv_cache_nobody_is_preempted() -> None:
    world = World(kv_cache=Switch.OFF, blocks=3)
    world.add(request("x"), request("y"))
    plans = [world.step() for _ in range(8)]
    assert not any(plan.preempted for plan in plans)
    assert [len(plan.slices) for plan in plans] == [1] * 8
