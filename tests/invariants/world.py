"""The scheduler's small world: the real pool and scheduler, a fake model, and what must hold.

The model side is kept apart from what it checks: what each request would say undisturbed, which
positions ran, and what every slot of the KV store holds are written down here, by other means.
"""

from __future__ import annotations

from collections import Counter

import pytest

from core.request import FinishReason, Phase, Request, RequestId
from core.settings import SchedulerSettings
from core.step import Slice, StepPlan, StepResult
from core.wire import Ended
from kvcache.pool import BlockPool
from scheduler.record import slice_records
from scheduler.scheduler import Scheduler
from tests.invariants.fake_model import PagedRunner, Sizes, solo_output


class World:
    """Drives the scheduler; every move checks what it did, `check` what must hold between moves."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.pool = BlockPool(sizes.blocks, sizes.block_size)
        self.scheduler = Scheduler(self.pool, limits_of(sizes))
        self.runner = PagedRunner(sizes)
        self.requests: dict[RequestId, Request] = {}  # all that ever were, in order of arrival
        self.ends: dict[RequestId, Ended] = {}
        self._solo: dict[RequestId, list[int]] = {}
        self._ran_positions: dict[RequestId, set[int]] = {}
        self._outputs_at_admission: dict[RequestId, int] = {}
        self._ran_tokens = 0

    # ── moves ─────────────────────────────────────────────────────────────────────────────────

    def add(self, prompt: tuple[int, ...], max_tokens: int, stop: frozenset[int]) -> None:
        id = RequestId(f"r{len(self.requests)}")
        request = Request(id=id, prompt_ids=prompt, max_tokens=max_tokens, stop_token_ids=stop)
        last_needs_no_slot = len(prompt) + max(max_tokens - 1, 0)
        fits = last_needs_no_slot <= self.sizes.blocks * self.sizes.block_size
        assert self.scheduler.fits(request) == fits  # S3
        if fits:
            self.scheduler.add(request)
            self.requests[id] = request
            self._solo[id] = solo_output(request, self.sizes.vocab_size)
            self._ran_positions[id] = set()

    def plan(self) -> StepPlan:
        live, free = self.live(), self.pool.free_blocks
        running = [r for r in live if r.phase is not Phase.QUEUED]
        queued = [r for r in live if r.phase is Phase.QUEUED]
        tables = {r.id: len(r.block_table) for r in running}
        plan = self.scheduler.plan()
        self._check_order(plan, running, queued)
        self._check_sizes(plan)
        self._check_preemption(plan, tables, free)
        self._check_records(plan)
        self._check_obstacle(plan)
        for id in plan.admitted:
            self._outputs_at_admission[id] = len(self.requests[id].output_ids)
        return plan

    def commit(self, plan: StepPlan, failed: frozenset[RequestId] = frozenset()) -> None:
        tokens = dict(self.runner.execute(plan).tokens)
        failing = {id: "NaN" for id in failed if tokens.pop(id, None) is not None}
        ended_before = set(self.ends)
        expected = {id: FinishReason.FAILED for id in failing if id not in ended_before}
        for piece in plan.slices:
            self._ran_tokens += piece.length
            self._ran_positions[piece.request.id] |= positions(piece)
        ends = self.scheduler.commit(plan, StepResult(tokens, failing))
        self.note(*ends)
        for id, reason in expected.items():  # S14
            assert self.ends[id].reason is reason
        others = {end.id for end in ends} - expected.keys()
        assert all(
            self.ends[id].reason in (FinishReason.STOP, FinishReason.LENGTH) for id in others
        )

    def fault(self, plan: StepPlan) -> None:
        """The step raised: each of its requests fails, nobody else ends."""
        expected = [p.request.id for p in plan.slices if p.request.id not in self.ends]
        ends = self.scheduler.fail(plan, "boom")
        assert ends == tuple(Ended(id, FinishReason.FAILED, "boom") for id in expected)
        self.note(*ends)

    def lose_a_row(self, plan: StepPlan) -> None:
        """The result lacks a row: our bug, refused with nothing changed, then the step fails."""
        if any(piece.samples for piece in plan.slices):
            before = [(p.request.computed_tokens, p.request.phase) for p in plan.slices]
            with pytest.raises(AssertionError, match="without an outcome"):
                self.scheduler.commit(plan, StepResult({}))
            assert before == [(p.request.computed_tokens, p.request.phase) for p in plan.slices]
        self.fault(plan)

    def abort(self, id: RequestId) -> None:
        live = id in self.requests and id not in self.ends
        end = self.scheduler.abort(id)
        assert end == (Ended(id, FinishReason.ABORTED) if live else None)  # S10
        self.note(*([end] if end else []))

    def finish(self, id: RequestId, n_tokens: int) -> None:
        live, request = id not in self.ends, self.requests[id]
        kept = list(request.output_ids)[: n_tokens if live else None]
        end = self.scheduler.finish(id, n_tokens, FinishReason.STOP)
        assert end == (Ended(id, FinishReason.STOP) if live else None)
        assert request.output_ids == kept
        self.note(*([end] if end else []))

    def drain(self) -> None:
        """Run to quiescence; the oldest live request computes a token in every step (S2, S18)."""
        steps = sum(request.worst_case_tokens + 1 for request in self.live())
        while self.scheduler.has_work:
            assert steps > 0, "no progress"
            steps -= 1
            self.commit(self.plan())
            self.check()
        assert not self.live()
        assert self.pool.referenced_blocks == 0  # B14

    def note(self, *ends: Ended) -> None:
        for end in ends:
            assert end.id not in self.ends, "two terminal events"  # S11
            self.ends[end.id] = end

    def live(self) -> list[Request]:
        return [r for id, r in self.requests.items() if id not in self.ends]

    # ── what a plan must be ───────────────────────────────────────────────────────────────────

    def _check_order(self, plan: StepPlan, running: list[Request], queued: list[Request]) -> None:
        """S20: in order of arrival throughout; S2: the oldest live request has a slice."""
        preempted = [self.requests[id] for id in plan.preempted]
        assert preempted == running[len(running) - len(preempted) :][::-1], "not newest first"
        kept = running[: len(running) - len(preempted)]
        admitted = queued[: len(plan.admitted)]
        assert plan.admitted == tuple(request.id for request in admitted), "not in order"
        assert not (preempted and admitted)
        sliced = [piece.request for piece in plan.slices]
        assert sliced == (kept + admitted)[: len(sliced)], "overtaken"
        assert sliced or not self.live(), "nobody runs"
        if len(sliced) < len(kept + admitted):
            newest_is_short = not admitted and len(sliced) == len(kept) - 1
            assert plan.num_tokens == self.sizes.budget or newest_is_short

    def _check_sizes(self, plan: StepPlan) -> None:
        """S4 and B4."""
        assert plan.num_tokens <= self.sizes.budget
        for piece in plan.slices:
            request = piece.request
            assert 1 <= piece.length <= request.pending_tokens
            assert piece.start == request.computed_tokens
            whole = piece.length == request.pending_tokens
            assert piece.samples == (whole and request.max_tokens > 0)
            slots = len(request.block_table) * self.sizes.block_size
            assert slots >= piece.start + piece.length, "no slot to write to"

    def _check_preemption(self, plan: StepPlan, tables: dict[RequestId, int], free: int) -> None:
        """S5: it frees blocks that were needed, of a request that gained since it was admitted."""
        for id in plan.preempted:
            assert tables[id] > 0
            gained = len(self.requests[id].output_ids) - self._outputs_at_admission[id]
            assert gained > 0, "preempted before it gained a token"
        if plan.preempted:
            assert self.pool.free_blocks < tables[plan.preempted[-1]], "preempted for nothing"
            assert free < self.sizes.blocks

    def _check_records(self, plan: StepPlan) -> None:
        for piece, record in zip(plan.slices, slice_records(plan), strict=True):
            again = positions(piece) & self._ran_positions[piece.request.id]
            assert record.recomputed == len(again)
            assert record.blocks == len(piece.request.block_table)

    def _check_obstacle(self, plan: StepPlan) -> None:
        """The reason to wait is the true one: slots and budget only where they are used up."""
        state = self.scheduler.pool_state()
        short_of_blocks = plan.preempted or state.running > len(plan.slices)
        if state.waiting_slots:
            assert state.running == self.sizes.seqs
            assert not short_of_blocks
        if state.waiting_budget:
            assert plan.num_tokens == self.sizes.budget
        if state.waiting_kv:
            assert state.running, "nothing runs and nobody is let in"
            assert short_of_blocks or state.running < self.sizes.seqs

    # ── what must hold between moves ──────────────────────────────────────────────────────────

    def check(self) -> None:
        self._check_blocks()
        self._check_gauges()
        for request in self.requests.values():
            self._check_request(request)
        in_requests = sum(r.computed_tokens + r.discarded_tokens for r in self.requests.values())
        assert self._ran_tokens == in_requests  # the conservation law of tokens

    def _check_blocks(self) -> None:
        """B1, B2, B3, B10: recounted from the tables, and by asking for all that is free."""
        tables = Counter(block for request in self.live() for block in request.block_table)
        assert all(count == 1 for count in tables.values()), "a block with two owners"
        assert self.pool.referenced_blocks == len(tables)
        free = self.pool.free_blocks
        assert free + self.pool.cached_blocks + self.pool.referenced_blocks == self.sizes.blocks
        probe = Request(id=RequestId("probe"), prompt_ids=(0,), max_tokens=1)
        assert not self.pool.grow(probe, free * self.sizes.block_size + 1)
        assert (self.pool.free_blocks, probe.block_table) == (free, [])
        assert self.pool.grow(probe, free * self.sizes.block_size)
        assert set(probe.block_table) == set(range(self.sizes.blocks)) - tables.keys()
        self.pool.release(probe)
        assert self.pool.free_blocks == free

    def _check_gauges(self) -> None:
        """S1, S13, S16: a recount by walking the requests."""
        phases = Counter(request.phase for request in self.live())
        state = self.scheduler.pool_state()
        waiting = [state.waiting_kv, state.waiting_slots, state.waiting_budget]
        assert sum(waiting) == phases[Phase.QUEUED]
        assert sum(1 for count in waiting if count) <= 1, "two reasons for one wait"
        assert state.running == phases[Phase.PREFILL] + phases[Phase.DECODE]
        assert state.running <= self.sizes.seqs
        assert self.scheduler.has_work == bool(self.live())
        blocks = (state.free_blocks, state.cached_blocks, state.referenced_blocks)
        pool = self.pool
        assert blocks == (pool.free_blocks, pool.cached_blocks, pool.referenced_blocks)

    def _check_request(self, request: Request) -> None:
        end, solo = self.ends.get(request.id), self._solo[request.id]
        assert (end is None) == (request.phase is not Phase.FINISHED)
        assert request.finish_reason is (end.reason if end else None)  # S11
        assert request.output_ids == solo[: len(request.output_ids)]  # S6, S14, S17
        if end and end.reason is FinishReason.LENGTH:
            assert len(request.output_ids) == request.max_tokens
            assert not request.stop_token_ids.intersection(request.output_ids[-1:])
        ran = self._ran_positions[request.id]
        assert request.highest_computed_tokens == (max(ran) + 1 if ran else 0)
        if request.phase in (Phase.QUEUED, Phase.FINISHED):
            assert request.block_table == []
        if request.phase is Phase.QUEUED:
            assert request.computed_tokens == 0
        if request.phase is Phase.PREFILL:
            assert len(request.output_ids) == self._outputs_at_admission[request.id]
        if request.phase is Phase.DECODE:
            assert request.pending_tokens == 1


def limits_of(sizes: Sizes) -> SchedulerSettings:
    return SchedulerSettings(max_num_seqs=sizes.seqs, max_num_batched_tokens=sizes.budget)


def positions(piece: Slice) -> set[int]:
    return set(range(piece.start, piece.start + piece.length))
