"""Who runs in the next step, and with how many tokens. No tensors, clocks or sockets live here.

There is no prefill mode and no decode mode: a request's pending tokens decide its slice.
"""

from __future__ import annotations

from core.request import FinishReason, Obstacle, Phase, Request, RequestId
from core.settings import SchedulerSettings, Switch
from core.step import Slice, StepPlan, StepResult
from core.wire import Ended, PoolState
from kvcache.pool import BlockPool
from scheduler.admission import Admission
from scheduler.draft import Draft
from scheduler.pace import Pace, step_limit
from scheduler.record import PlanRecord, distinct_token_ids, slice_records
from scheduler.running import Running
from scheduler.shares import Shares
from scheduler.sharing import shared_runs
from scheduler.waiting import WaitingQueue


class Scheduler:
    """The one writer of requests, queues and blocks.

    Invariant: a request that was admitted gains a token, or ends, before it can be preempted. Who
        has gained none yet holds blocks for all it knows, so that it needs none; the first of those
        who run may take the blocks of all who have. So there is always progress.
    """

    def __init__(
        self, pool: BlockPool, limits: SchedulerSettings, pace: Pace | None = None
    ) -> None:
        assert limits.max_num_seqs > 0, "a step needs a request"
        self._pool, self._pace = pool, pace
        self._step_tokens = step_limit(limits)
        assert self._step_tokens > 0, "a step needs a token"
        self._keeps_kv = limits.kv_cache is Switch.ON
        across = limits.priority_across_tenants
        self._shares, self._running = Shares(), Running(across)
        self._waiting = WaitingQueue(self._shares, limits.ageing_tokens, across)
        self._admission = Admission(pool, limits, self._step_tokens, self._running, self._waiting)
        self._obstacle = Obstacle.BUDGET
        self._arrivals = 0

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._waiting)

    def has(self, id: RequestId) -> bool:
        """Whether it runs or waits."""
        return self._find(id) is not None

    def fits(self, request: Request) -> bool:
        """Whether it could run to its end alone in an empty pool."""
        return request.worst_case_tokens <= self._pool.capacity_tokens

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            AssertionError: it is live already, has no prompt or does not fit; callers ask first.
        """
        assert self._find(request.id) is None, f"{request.id} is live already"
        assert request.prompt_ids, f"{request.id} has nothing to compute"
        assert self.fits(request), f"{request.id} could not finish alone in the pool"
        request.arrival = self._arrivals = self._arrivals + 1
        self._shares.join(request.tenant, self._waiting.has(request.tenant))
        self._waiting.push(request)

    # ── plan ──────────────────────────────────────────────────────────────────────────────────

    def plan(self) -> StepPlan:
        """Choose the next step's work: those who run first, then newcomers if no block was short.

        Mutates: blocks, phases and queues; no counter but those of the preempted.
        Cost: O(running + admitted + blocks touched).
        """
        draft = Draft(self._step_tokens, self._shares, self._pace)
        self._continue_running(draft)
        self._obstacle = Obstacle.KV if draft.pressed else self._admission.admit(draft)
        return draft.plan()

    def _continue_running(self, draft: Draft) -> None:
        """Schedule the running, by precedence, until the budget is spent."""
        for request in tuple(self._running):
            if draft.budget == 0:
                return
            if request.phase is Phase.QUEUED:  # preempted just now
                continue
            length = draft.room(request.pending_tokens, request.computed_tokens)
            if length and self._make_room(request, length, draft):
                draft.schedule(request, length)

    def _make_room(self, request: Request, length: int, draft: Draft) -> bool:
        """Find blocks for the next slice, at the cost of those whom `request` precedes.

        Returns:
            False when none of them may lose its blocks. It sits this step out and keeps its own:
            nobody needs them yet, so to preempt it would only throw its work away.
        """
        while not self._pool.grow(request, length):
            draft.pressed = True
            victim = self._victim(request)
            if victim is None:
                return False
            self._preempt(victim)
            draft.preempted.append(victim.id)
        return True

    def _victim(self, request: Request) -> Request | None:
        """Choose the last of those whom it precedes and who gained since they were admitted.

        Its end frees a block: nobody is admitted before all who run have room for their next
        token, so that a request's last block is its own.
        """
        behind = self._running.behind(request)
        return next((r for r in behind if r.known_tokens > r.admitted_tokens), None)

    def _preempt(self, request: Request) -> None:
        """Give its blocks back and queue it again: it will compute what is not found of it."""
        self._pool.release(request)
        request.computed_tokens = 0
        self._running.remove(request)
        self._waiting.push_back(request)
        request.enter(Phase.QUEUED)

    def record(self, plan: StepPlan) -> PlanRecord:
        """Write down what `plan` reads; to be asked before its step runs."""
        shared = shared_runs(plan, self._pool.block_size) if self._pool.shared_blocks else ()
        return PlanRecord(slice_records(plan), shared, distinct_token_ids(plan))

    # ── commit ────────────────────────────────────────────────────────────────────────────────

    def commit(self, plan: StepPlan, result: StepResult) -> tuple[Ended, ...]:
        """Apply what the step computed; requests that ended while it ran stay as they ended.

        Returns:
            The end of each request that ended here, in plan order.
        Raises:
            AssertionError: a row is missing from the result; nothing changed, `fail` the plan.
        """
        outcomes = result.tokens.keys() | result.failed.keys()
        missing = [p.request.id for p in plan.slices if p.samples and p.request.id not in outcomes]
        assert not missing, f"rows without an outcome: {missing}"
        if self._pace is not None:
            self._pace.observe(plan, (result.forward_ns + result.sample_ns) / 1e9)
        ends = [self._apply(piece, result) for piece in plan.slices]
        return tuple(end for end in ends if end is not None)

    def _apply(self, piece: Slice, result: StepResult) -> Ended | None:
        """Count a slice's tokens, take what it sampled, and end or go on.

        What it computed is published with a token, not before: had a row in it not been finite,
        the token would have failed, and nobody else may find such blocks.
        """
        request = piece.request
        request.computed_tokens += piece.length
        request.highest_computed_tokens = max(
            request.highest_computed_tokens, request.computed_tokens
        )
        if request.phase is Phase.FINISHED:  # aborted or finished while the step was in flight
            return None
        if request.id in result.failed:
            return self._end(request, FinishReason.FAILED, result.failed[request.id])
        if piece.samples:
            request.output_ids.append(result.tokens[request.id])
            self._pool.publish(request)
        elif request.pending_tokens:  # a part of its prompt: the rest follows
            return None
        if reason := _finish_reason(request):
            return self._end(request, reason)
        if request.phase is Phase.PREFILL:
            request.enter(Phase.DECODE)
        if not self._keeps_kv:
            request.computed_tokens = 0
        return None

    def fail(self, plan: StepPlan, message: str) -> tuple[Ended, ...]:
        """End every request of a step that raised: what it left in their blocks is not known."""
        return tuple(
            self._end(piece.request, FinishReason.FAILED, message)
            for piece in plan.slices
            if piece.request.phase is not Phase.FINISHED
        )

    # ── the ends that others decide ───────────────────────────────────────────────────────────

    def abort(self, id: RequestId) -> Ended | None:
        """Drop a request that nobody wants any more; unknown and ended ids are ignored.

        Mutates: its blocks are free at once. A step in flight may still write to them; the next
            plan, which could hand them on, comes after it.
        """
        request = self._find(id)
        return self._end(request, FinishReason.ABORTED) if request else None

    def finish(self, id: RequestId, n_tokens: int, reason: FinishReason) -> Ended | None:
        """End a request whose end the server found: its first `n_tokens` output tokens stand."""
        request = self._find(id)
        if request is None:
            return None
        del request.output_ids[n_tokens:]
        return self._end(request, reason)

    def _find(self, id: RequestId) -> Request | None:
        return self._running.get(id) or self._waiting.get(id)

    def _end(self, request: Request, reason: FinishReason, message: str = "") -> Ended:
        if request.phase is Phase.QUEUED:
            self._waiting.remove(request)
        else:
            self._running.remove(request)
            self._pool.release(request)
        self._shares.leave(request.tenant)
        request.enter(Phase.FINISHED)
        return Ended(request.id, reason, message)

    # ── gauges ────────────────────────────────────────────────────────────────────────────────

    def pool_state(self, waiting_grammar: int) -> PoolState:
        """Read the gauges, with the obstacle that the last plan met.

        Requests that wait for a grammar are not here yet; the caller counts them.
        Cost: O(1): nothing is scanned.
        """
        waiting = {self._obstacle: len(self._waiting), Obstacle.GRAMMAR: waiting_grammar}
        return PoolState(
            free_blocks=self._pool.free_blocks,
            cached_blocks=self._pool.cached_blocks,
            referenced_blocks=self._pool.referenced_blocks,
            running=len(self._running),
            waiting={obstacle: count for obstacle, count in waiting.items() if count},
        )


def _finish_reason(request: Request) -> FinishReason | None:
    """Tell whether its latest token ended it; a stop token counts even as the last one allowed."""
    if request.output_ids and request.output_ids[-1] in request.stop_token_ids:
        return FinishReason.STOP
    if len(request.output_ids) >= request.max_tokens:
        return FinishReason.LENGTH
    return None
