"""The scheduler's small world: the real pool and scheduler, a fake model, and what must hold.

The model side is kept apart from what it checks: what each request would say undisturbed, which
positions ran, and what every slot of the KV store holds are written down here, by other means.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from core.request import BlockId, FinishReason, Obstacle, Phase, Request, RequestId, SamplingParams
from core.settings import Batching, SchedulerSettings
from core.step import Slice, StepPlan, StepResult
from core.wire import Ended
from kvcache.pool import BlockPool
from scheduler.record import slice_records
from scheduler.scheduler import Scheduler
from tests.invariants.admission_order import AdmissionOrder
from tests.invariants.fake_model import (
    History,
    PagedRunner,
    ScriptedPace,
    Sizes,
    solo_output,
)


@dataclass(frozen=True)
class Arrival:
    prompt: tuple[int, ...]
    max_tokens: int
    stop: frozenset[int]
    scores_prompt: bool
    tenant: str
    salt: str
    priority: int


class World:
    """Drives the scheduler; every move checks what it did, `check` what must hold between moves."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.pool = BlockPool(sizes.blocks, sizes.block_size, sizes.keeps_kv)
        self.pace = ScriptedPace()
        pace: Any = self.pace if sizes.paced else None
        self.scheduler = Scheduler(self.pool, limits_of(sizes), pace)
        self.order = AdmissionOrder(sizes)
        self.runner = PagedRunner(sizes)
        self.requests: dict[RequestId, Request] = {}  # all that ever were, in order of arrival
        self.ends: dict[RequestId, Ended] = {}
        self._solo: dict[RequestId, list[int]] = {}
        self._ranks = count()
        self._had_positions: dict[RequestId, set[int]] = {}
        self._admissions: dict[RequestId, tuple[int, int]] = {}  # the latest's rank, and outputs
        self._ran_tokens = 0
        self._discarded_tokens = 0  # had valid KV, then lost
        self.steps = 0
        self._probes: dict[History, Request] = {}  # they remember the hashes of their blocks

    # ── moves ─────────────────────────────────────────────────────────────────────────────────

    def add(self, arrival: Arrival) -> None:
        id = RequestId(f"r{len(self.requests)}")
        request = Request(
            id=id,
            prompt_ids=arrival.prompt,
            max_tokens=arrival.max_tokens,
            stop_token_ids=arrival.stop,
            sampling=SamplingParams(prompt_logprobs=0 if arrival.scores_prompt else None),
            tenant=arrival.tenant,
            cache_salt=arrival.salt,
            priority=arrival.priority,
        )
        last_needs_no_slot = len(arrival.prompt) + max(arrival.max_tokens - 1, 0)
        fits = last_needs_no_slot <= self.sizes.blocks * self.sizes.block_size
        assert self.scheduler.fits(request) == fits  # S3
        if fits:
            self.scheduler.add(request)
            self.requests[id] = request
            self._solo[id] = solo_output(request, self.sizes.vocab_size)
            self._had_positions[id] = set()

    def plan(self) -> StepPlan:
        self.steps += 1
        live = self.live()
        running = [r for r in live if r.phase is not Phase.QUEUED]
        queued = [r for r in live if r.phase is Phase.QUEUED]
        tables = {r.id: len(r.block_table) for r in running}
        computed = {r.id: r.computed_tokens for r in running}
        plan = self.scheduler.plan()
        self._check_running(plan, running)
        self.order.check(plan, running, queued, self.requests)
        assert not (plan.preempted and plan.admitted)
        assert self.sizes.keeps_kv or not plan.preempted
        self._check_sizes(plan)
        self._check_preemption(plan, tables)
        self._check_records(plan)
        self._check_sharing(plan)
        self._check_obstacle(plan)
        for id in plan.admitted:
            self._admissions[id] = next(self._ranks), len(self.requests[id].output_ids)
        self._discarded_tokens += sum(computed[id] for id in plan.preempted)
        return plan

    def commit(self, plan: StepPlan, failed: frozenset[RequestId] = frozenset()) -> None:
        tokens = dict(self.runner.execute(plan).tokens)
        failing = {id: "NaN" for id in failed if tokens.pop(id, None) is not None}
        ended_before = set(self.ends)
        expected = {id: FinishReason.FAILED for id in failing if id not in ended_before}
        for piece in plan.slices:
            self._ran_tokens += piece.length
            self._had_positions[piece.request.id] |= set(range(piece.start + piece.length))
        ends = self.scheduler.commit(plan, StepResult(tokens, failing))
        self.note(*ends)
        if not self.sizes.keeps_kv:
            go_on = [p for p in plan.slices if p.samples and p.request.id not in self.ends]
            self._discarded_tokens += sum(piece.start + piece.length for piece in go_on)
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
        tokens = [request.worst_case_tokens + 1 for request in self.live()]
        steps = sum(tokens if self.sizes.keeps_kv else [each**2 for each in tokens])
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

    def _check_running(self, plan: StepPlan, running: list[Request]) -> None:
        """S20: by precedence; who has no slice lacks budget or blocks. S2: somebody has one."""
        ranked = sorted(running, key=lambda r: (r.priority, self._admissions[r.id][0]))
        kept = [request for request in ranked if request.id not in plan.preempted]
        admitted = [self.requests[id] for id in plan.admitted]
        sliced = [piece.request for piece in plan.slices]
        assert sliced == [r for r in kept + admitted if r in sliced], "overtaken"
        assert sliced or not self.live(), "nobody runs"
        for request in kept:
            paced = self.sizes.paced and request.pending_tokens > 1
            if request not in sliced and tokens_of(plan) < self.sizes.budget and not paced:
                assert not admitted, "admitted while a running request was short"
                assert self.pool.blocks_for(request.known_tokens) > len(request.block_table)
                gained = [r for r in kept[kept.index(request) + 1 :] if self._gained(r)]
                assert not gained, "short beside those who could yield"

    def _gained(self, request: Request) -> bool:
        return len(request.output_ids) > self._admissions[request.id][1]

    def _check_sizes(self, plan: StepPlan) -> None:
        """S4 and B4: a block that is written has one owner."""
        assert tokens_of(plan) <= self.sizes.budget
        owners = Counter(block for request in self.live() for block in request.block_table)
        for piece in plan.slices:
            request = piece.request
            assert 1 <= piece.length <= request.pending_tokens
            assert piece.start == request.computed_tokens
            whole = piece.length == request.pending_tokens
            assert piece.samples == (whole and request.max_tokens > 0)
            slots = len(request.block_table) * self.sizes.block_size
            assert slots >= piece.start + piece.length, "no slot to write to"
            for position in positions(piece):
                assert owners[request.block_table[position // self.sizes.block_size]] == 1

    def _check_preemption(self, plan: StepPlan, tables: dict[RequestId, int]) -> None:
        """S5: it frees blocks that were needed, of requests that gained since their admission."""
        for id in plan.preempted:
            assert tables[id] > 0
            assert self._gained(self.requests[id]), "preempted before it gained a token"
        if plan.preempted:
            assert self.unreferenced_blocks < tables[plan.preempted[-1]], "preempted for nothing"

    def _check_records(self, plan: StepPlan) -> None:
        for piece, record in zip(plan.slices, slice_records(plan), strict=True):
            request = piece.request
            again = positions(piece) & self._had_positions[request.id]
            assert record.recomputed == len(again)
            assert record.blocks == len(request.block_table)
            assert record.cached == (piece.start if request.id in plan.admitted else 0)
            if request.sampling.prompt_logprobs is not None:
                assert record.cached == 0, "a row of its prompt was not computed"

    def _check_sharing(self, plan: StepPlan) -> None:
        """The runs, recounted block by block."""
        contexts = [
            piece.request.block_table[: piece.start // self.sizes.block_size]
            for piece in plan.slices
        ]
        read_by: dict[tuple[int, ...], int] = Counter()
        for block in {block for context in contexts for block in context}:
            readers = tuple(i for i, context in enumerate(contexts) if block in context)
            if len(readers) > 1:
                read_by[readers] += self.sizes.block_size
        runs = self.scheduler.record(plan).shared
        assert Counter({run.readers: run.tokens for run in runs}) == read_by
        assert len(runs) == len(read_by)
        widths = [len(run.readers) for run in runs]
        for reader in range(len(contexts)):
            mine = [w for w, run in zip(widths, runs, strict=True) if reader in run.readers]
            assert mine == sorted(mine, reverse=True), "not in the order of the context"

    def _check_obstacle(self, plan: StepPlan) -> None:
        """The reason to wait is the true one: slots and budget only where they are used up."""
        state = self.scheduler.pool_state(waiting_grammar=0)
        budget_left = tokens_of(plan) < self.sizes.budget
        short_of_blocks = plan.preempted or (budget_left and state.running > len(plan.slices))
        if Obstacle.SLOTS in state.waiting and self.sizes.batching is Batching.CONTINUOUS:
            assert state.running == self.sizes.seqs
            assert not short_of_blocks or self.sizes.paced
        if Obstacle.BUDGET in state.waiting and not self.sizes.paced:
            assert tokens_of(plan) == self.sizes.budget or self._somebody_shares_soon(plan)
        if Obstacle.KV in state.waiting:
            assert state.running, "nothing runs and nobody is let in"
            assert short_of_blocks or state.running < self.sizes.seqs

    def _somebody_shares_soon(self, plan: StepPlan) -> bool:
        """Whether one who waits begins, by a block or more, as a prompt does that ends now."""
        return any(
            waits.tenant == leads.tenant
            and waits.cache_salt == leads.cache_salt
            and common_tokens(waits, leads) >= self.sizes.block_size
            for waits in self.live()
            if waits.phase is Phase.QUEUED
            for leads in (piece.request for piece in plan.slices if piece.samples)
            if leads.phase is Phase.PREFILL
        )

    # ── what must hold between moves ──────────────────────────────────────────────────────────

    def check(self) -> None:
        self._check_blocks()
        self._check_index()
        self._check_gauges()
        for request in self.requests.values():
            self._check_request(request)
        kept = sum(r.computed_tokens - r.cached_tokens for r in self.requests.values())
        assert self._ran_tokens == kept + self._discarded_tokens  # the conservation law of tokens

    def _check_blocks(self) -> None:
        """B1, B2, B3, B10: recounted from the tables, and by asking for all that is free."""
        tables = Counter(block for request in self.live() for block in request.block_table)
        assert self.pool.referenced_blocks == len(tables)
        assert self.pool.shared_blocks == sum(1 for count in tables.values() if count > 1)
        free = self.pool.free_blocks
        assert free + self.pool.cached_blocks + self.pool.referenced_blocks == self.sizes.blocks
        probe = Request(id=RequestId("probe"), prompt_ids=(0,), max_tokens=1)
        assert not self.pool.grow(probe, self.unreferenced_blocks * self.sizes.block_size + 1)
        assert (self.pool.free_blocks, probe.block_table) == (free, [])
        assert self.pool.grow(probe, free * self.sizes.block_size)
        others = tables.keys() | self.pool._index._keys.keys()
        assert set(probe.block_table) == set(range(self.sizes.blocks)) - others
        self.pool.release(probe)
        assert self.pool.free_blocks == free

    def _check_index(self) -> None:
        """B6, B7, B9: each entry is found by its content, after its parents, in its namespace."""
        for block in self.pool._index._keys:
            tenant, salt, tokens = self.runner.content_of(block)
            chain = self._find(tenant, salt, (*tokens, 0))
            assert len(chain) * self.sizes.block_size == len(tokens), "its parents are gone"
            assert chain[-1] == block
            assert block not in self._find(f"{tenant}x", salt, (*tokens, 0))
            assert block not in self._find(tenant, f"{salt}x", (*tokens, 0))
            assert block not in self._find(tenant, salt, tokens), "nothing is left to compute"
        for request in self.live():
            kept = request.indexed_blocks
            tokens = (*request.prompt_ids, *request.output_ids, 0)
            chain = self._find(request.tenant, request.cache_salt, tokens)
            assert chain[:kept] == request.block_table[:kept]

    def _find(self, tenant: str, salt: str, tokens: tuple[int, ...]) -> list[BlockId]:
        history = tenant, salt, tokens
        if history not in self._probes:
            self._probes[history] = Request(
                id=RequestId("probe"),
                prompt_ids=tokens,
                max_tokens=1,
                tenant=tenant,
                cache_salt=salt,
            )
        return self.pool.find(self._probes[history])

    def fill_the_pool(self) -> None:
        """Hand out all that nobody references: every cached block goes, and no output changes.

        B13 and B14: this is what there is for a `clear`, which no caller needs.
        """
        probe = Request(id=RequestId("probe"), prompt_ids=(0,), max_tokens=1)
        assert self.pool.grow(probe, self.unreferenced_blocks * self.sizes.block_size)
        assert (self.pool.free_blocks, self.pool.cached_blocks) == (0, 0)
        self.pool.release(probe)
        assert self.pool.cached_blocks == 0, "they are indexed still"

    @property
    def unreferenced_blocks(self) -> int:
        return self.pool.free_blocks + self.pool.cached_blocks

    def _check_gauges(self) -> None:
        """S1, S13, S16: a recount by walking the requests."""
        phases = Counter(request.phase for request in self.live())
        state = self.scheduler.pool_state(waiting_grammar=0)
        assert sum(state.waiting.values()) == phases[Phase.QUEUED]
        assert sum(1 for count in state.waiting.values() if count) <= 1, "two reasons for one wait"
        assert state.running == phases[Phase.PREFILL] + phases[Phase.DECODE]
        assert state.running <= self.sizes.seqs
        assert self.scheduler.has_work == bool(self.live())
        blocks = (state.free_blocks, state.cached_blocks, state.referenced_blocks)
        pool = self.pool
        assert blocks == (pool.free_blocks, pool.cached_blocks, pool.referenced_blocks)

    def _check_request(self, request: Request) -> None:
        end, solo = self.ends.get(request.id), self._solo[request.id]
        assert (end is None) == (request.phase is not Phase.FINISHED)
        assert request.output_ids == solo[: len(request.output_ids)]  # S6, S14, S17
        if end and end.reason is FinishReason.LENGTH:
            assert len(request.output_ids) == request.max_tokens
            assert not request.stop_token_ids.intersection(request.output_ids[-1:])
        ran = self._had_positions[request.id]
        assert request.highest_computed_tokens == (max(ran) + 1 if ran else 0)
        if request.block_table:  # S5: whoever is preempted frees one
            last = request.block_table[-1]
            assert not any(last in r.block_table for r in self.live() if r is not request)
        if request.phase in (Phase.QUEUED, Phase.FINISHED):
            assert request.block_table == []
        if request.phase is Phase.QUEUED:
            assert request.computed_tokens == 0
        if request.phase is Phase.PREFILL:
            assert not self._gained(request)
        if request.phase is Phase.DECODE:
            assert request.pending_tokens == 1 or not self.sizes.keeps_kv


def tokens_of(plan: StepPlan) -> int:
    return sum(piece.length for piece in plan.slices)


def common_tokens(one: Request, other: Request) -> int:
    pairs = zip(known(one), known(other), strict=False)
    equal = [a == b for a, b in pairs]
    return (*equal, False).index(False)


def known(request: Request) -> tuple[int, ...]:
    return (*request.prompt_ids, *request.output_ids)


def limits_of(sizes: Sizes) -> SchedulerSettings:
    return SchedulerSettings(
        priority_across_tenants=True,
        max_num_seqs=sizes.seqs,
        max_num_batched_tokens=sizes.budget,
        ageing_tokens=sizes.ageing_tokens,
        batching=sizes.batching,
        kv_cache=sizes.kv_cache,
    )


def positions(piece: Slice) -> set[int]:
    return set(range(piece.start, piece.start + piece.length))
