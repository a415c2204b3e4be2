"""Who joins those who run: the door between the queue and the blocks. It preempts nobody."""

from __future__ import annotations

from collections.abc import Sequence

from core.request import BlockId, Obstacle, Phase, Request
from core.settings import Batching, SchedulerSettings, Switch
from kvcache.pool import BlockPool
from scheduler.draft import Draft
from scheduler.running import Running
from scheduler.waiting import WaitingQueue


class Admission:
    """Lets in from the head of the queue, in order, as batching, slots, budget and blocks allow."""

    def __init__(
        self,
        pool: BlockPool,
        limits: SchedulerSettings,
        step_tokens: int,
        running: Running,
        waiting: WaitingQueue,
    ) -> None:
        self._pool, self._running, self._waiting = pool, running, waiting
        self._static = limits.batching is Batching.STATIC
        self._slots = 1 if limits.batching is Batching.NONE else limits.max_num_seqs
        self._keeps_kv = limits.kv_cache is Switch.ON
        self._step_tokens = step_tokens
        self._batch_is_full = False  # in static batching: nobody joins those who run

    def admit(self, draft: Draft) -> Obstacle:
        """Admit whom the batching allows; a static batch is full once something else was short.

        Mutates: queues, phases, blocks, the draft.
        """
        if self._static and self._batch_is_full and self._running:
            return Obstacle.SLOTS
        obstacle = self._in_order(draft)
        self._batch_is_full = obstacle is not Obstacle.BUDGET or not self._waiting
        return obstacle

    def _in_order(self, draft: Draft) -> Obstacle:
        """Admit until something stands in the way.

        A head whose prompt is being computed in this very step waits for it, and shares it in the
        next. That costs nobody a thing but what is left of this step: a prompt of many steps
        takes all of each but the last, and nobody was admitted beside it anyhow.
        """
        while self._waiting:
            if len(self._running) == self._slots:
                return Obstacle.SLOTS
            request = self._waiting.head
            found = self._pool.find(request)
            start = len(found) * self._pool.block_size
            room = draft.room(request.known_tokens - start, start)
            if room == 0 or draft.promises(request, len(found)):
                return Obstacle.BUDGET
            if not self._take_blocks(request, found, room):
                return Obstacle.KV
            self._waiting.remove(request)
            self._running.add(request)
            request.admitted_tokens = request.known_tokens
            request.enter(Phase.PREFILL)
            draft.admitted.append(request.id)
            draft.schedule(request, room)
        return Obstacle.BUDGET

    def _take_blocks(self, request: Request, found: Sequence[BlockId], room: int) -> bool:
        """Give it blocks for all that it knows; or nothing changes.

        Without a KV cache it takes all that it can ever need: it is never done with its prompt.
        """
        if not self._keeps_kv:
            return self._pool.admit(request, (), request.worst_case_tokens)
        pending = request.known_tokens - len(found) * self._pool.block_size
        return self._pool.admit(request, found, pending, self._spare(pending - room))

    def _spare(self, after_this_step: int) -> int:
        """Count the blocks that those who run may still take before a newcomer has its next token.

        With these left free nobody has to sit out, or to be preempted, for its sake. Everybody
        before it is in decode when there is budget left for it, so each takes one token a step, and
        the rest of each step's budget is its own. An estimate where steps are paced.
        """
        others = len(self._running)
        steps = -(-after_this_step // max(self._step_tokens - others, 1))
        return others * self._pool.blocks_for(steps)
