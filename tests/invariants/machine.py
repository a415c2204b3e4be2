"""Any order of moves on the scheduler and the pool of a small world, everything checked after each.

It says what may happen; how often, and from which seeds, is for those who run it.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.request import BlockId, Request, RequestId
from core.settings import Batching, Switch
from tests.invariants.fake_model import Sizes
from tests.invariants.world import Arrival, World

sizes = st.builds(
    Sizes,
    blocks=st.integers(3, 24),
    block_size=st.sampled_from((1, 1, 2, 4)),
    seqs=st.integers(1, 8),
    budget=st.integers(1, 16),
    vocab_size=st.integers(2, 3),
    ageing_tokens=st.sampled_from((1, 20, 10**9)),
    batching=st.sampled_from((Batching.CONTINUOUS,) * 6 + (Batching.STATIC, Batching.NONE)),
    kv_cache=st.sampled_from((Switch.ON,) * 7 + (Switch.OFF,)),
    paced=st.sampled_from((False, False, True)),
)
anybody = st.integers(0, 99)  # who of those that ever were, newest first
somebodies = st.lists(anybody, max_size=3)
arrivals = st.builds(
    Arrival,
    prompt=st.lists(st.integers(0, 1), min_size=1, max_size=8).map(tuple),
    max_tokens=st.integers(0, 16),
    stop=st.sampled_from((frozenset(), frozenset(), frozenset(), frozenset({1, 2}))),
    scores_prompt=st.sampled_from((False, False, False, True)),
    tenant=st.sampled_from(("a", "b")),
    salt=st.sampled_from(("", "", "", "s")),
    priority=st.sampled_from((0, 0, 0, 1)),
)


class SchedulerMachine(RuleBasedStateMachine):
    world: World
    executed = -1  # rules; the check that follows `begin` counts none

    @initialize(sizes=sizes)
    def begin(self, sizes: Sizes) -> None:
        self.world = World(sizes)

    @rule(crowd=st.lists(arrivals, min_size=1, max_size=6))
    def add(self, crowd: list[Arrival]) -> None:
        for arrival in crowd:
            self.world.add(arrival)

    @rule(arrival=arrivals, n=st.integers(2, 6))
    def add_children(self, arrival: Arrival, n: int) -> None:
        for _ in range(n):
            self.world.add(arrival)

    @rule(room=st.integers(0, 16))
    def change_the_pace(self, room: int) -> None:
        self.world.pace.room = room

    @rule()
    def fill_the_pool(self) -> None:
        self.world.fill_the_pool()

    @rule(times=st.integers(1, 12))
    def step(self, times: int) -> None:
        for _ in range(times):
            self.world.commit(self.world.plan())
            self.world.check()

    @rule(who=somebodies)
    def step_with_failed_rows(self, who: list[int]) -> None:
        plan = self.world.plan()
        ids = [piece.request.id for piece in plan.slices if piece.samples]
        self.world.commit(plan, frozenset(ids[each % len(ids)] for each in who if ids))

    @rule(loses_a_row=st.booleans())
    def step_that_fails(self, loses_a_row: bool) -> None:
        plan = self.world.plan()
        if loses_a_row:
            self.world.lose_a_row(plan)
        else:
            self.world.fault(plan)

    @precondition(lambda self: self.world.requests)
    @rule(
        crowd=st.lists(arrivals, max_size=2),
        aborts=somebodies,
        finishes=somebodies,
        n_tokens=st.integers(0, 4),
        raises=st.booleans(),
    )
    def step_that_is_interrupted(
        self,
        crowd: list[Arrival],
        aborts: list[int],
        finishes: list[int],
        n_tokens: int,
        raises: bool,
    ) -> None:
        plan = self.world.plan()
        for arrival in crowd:
            self.world.add(arrival)
        for who in finishes:
            self.world.finish(self._id(who), n_tokens)
        for who in aborts:
            self.world.abort(self._id(who))
        if raises:
            self.world.fault(plan)
        else:
            self.world.commit(plan)

    @precondition(lambda self: self.world.requests)
    @rule(who=anybody)
    def abort_twice(self, who: int) -> None:
        self.world.abort(self._id(who))
        self.world.abort(self._id(who))

    @rule(id=st.sampled_from(("", "r", "r00", "probe")))
    def abort_an_unknown_id(self, id: str) -> None:
        self.world.abort(RequestId(id))

    @precondition(lambda self: self.world.requests)
    @rule(who=anybody, n_tokens=st.integers(0, 9))
    def finish(self, who: int, n_tokens: int) -> None:
        self.world.finish(self._id(who), n_tokens)

    @rule(block=st.integers(-2, 25))
    def release_a_block_that_is_not_held(self, block: int) -> None:
        pool = self.world.pool
        held = {each for request in self.world.live() for each in request.block_table}
        if block not in held:
            thief = Request(id=RequestId("thief"), prompt_ids=(0,), max_tokens=1)
            thief.block_table.append(BlockId(block))
            with pytest.raises(AssertionError):  # B5
                pool.release(thief)
            assert thief.block_table == [block]

    @invariant()
    def everything_holds(self) -> None:
        self.executed += 1
        self.world.check()

    def teardown(self) -> None:
        self.world.drain()

    def _id(self, who: int) -> RequestId:
        ids = list(self.world.requests)
        return ids[-1 - who % len(ids)]
