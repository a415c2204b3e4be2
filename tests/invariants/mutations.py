"""The mutants: one deliberate bug each, as a textual change. A new bug in production adds one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    bug: str  # what it does wrong
    file: str
    old: str
    new: str


POOL, SCHEDULER = "kvcache/pool.py", "scheduler/scheduler.py"
DRAFT, WAITING, RECORD = "scheduler/draft.py", "scheduler/waiting.py", "scheduler/record.py"

MUTANTS = (
    Mutant("a block is released without losing its reference", POOL, "] -= 1", "] -= 0"),
    Mutant("a block is handed out without a reference", POOL, "] += 1", "] += 0"),
    Mutant(
        "a block stays in the free list when it is handed out",
        POOL,
        "block = self._free.pop()",
        "block = self._free[-1]",
    ),
    Mutant("one block over", POOL, "if missing + spare_blocks > len", "if missing - 1 > len"),
    Mutant("spare blocks are ignored", POOL, "if missing + spare_blocks > len", "if missing > len"),
    Mutant(
        "growing takes what there is and then fails",
        POOL,
        "            return False\n",
        "            request.block_table.extend(self._free)\n            return False\n",
    ),
    Mutant("a partly filled block is forgotten", POOL, "-(-tokens //", "(tokens //"),
    Mutant("a table outlives its blocks", POOL, "        table.clear()\n", ""),
    Mutant(
        "the count of referenced blocks drifts",
        POOL,
        "_referenced -= len(table)",
        "_referenced -= 1",
    ),
    Mutant(
        "a double free passes", POOL, "self._references[block] > 0", "self._references[block] >= 0"
    ),
    Mutant("an unknown block is freed", POOL, "0 <= block < self", "block < self"),
    Mutant(
        "a block twice in a table passes",
        POOL,
        "len(set(table)) == len(table)",
        "set(table) is not None",
    ),
    Mutant(
        "the oldest is preempted",
        SCHEDULER,
        "next(reversed(self._running))",
        "next(iter(self._running))",
    ),
    Mutant(
        "a request preempts itself",
        SCHEDULER,
        "if newest is request:",
        "if newest is not newest:",
    ),
    Mutant(
        "a preempted request goes to the back", SCHEDULER, "push_front(request)", "push(request)"
    ),
    Mutant(
        "preemption keeps the blocks",
        SCHEDULER,
        '''again."""
        self._pool.release(request)
''',
        '''again."""
''',
    ),
    Mutant(
        "preemption keeps the computed tokens", SCHEDULER, "request.computed_tokens = 0", "pass"
    ),
    Mutant(
        "discarded tokens are not counted",
        SCHEDULER,
        "discarded_tokens += request.computed_tokens",
        "discarded_tokens += 0",
    ),
    Mutant(
        "a chunked prompt is preempted before it gained",
        SCHEDULER,
        "return others * self",
        "return 0 * self",
    ),
    Mutant(
        "admission takes blocks for the first chunk only",
        SCHEDULER,
        "grow(request, request.pending_tokens, self",
        "grow(request, min(request.pending_tokens, draft.budget), self",
    ),
    Mutant(
        "one request too many runs",
        SCHEDULER,
        "== self._limits.max_num_seqs",
        "> self._limits.max_num_seqs",
    ),
    Mutant(
        "admission follows preemption", SCHEDULER, "Obstacle.KV if draft.pressed else self", "self"
    ),
    Mutant("requests wait for no reason", SCHEDULER, "return Obstacle.SLOTS", "return Obstacle.KV"),
    Mutant(
        "the pool is said to hold one token more",
        SCHEDULER,
        "tokens <= self._pool",
        "tokens - 1 <= self._pool",
    ),
    Mutant(
        "the last fitting request is refused",
        SCHEDULER,
        "tokens <= self._pool",
        "tokens < self._pool",
    ),
    Mutant(
        "a waiting request that was aborted stays queued",
        SCHEDULER,
        "            self._waiting.remove(request)\n        else",
        "            pass\n        else",
    ),
    Mutant(
        "an end keeps its blocks",
        SCHEDULER,
        """        else:
            del self._running[request.id]
            self._pool.release(request)""",
        """        else:
            del self._running[request.id]""",
    ),
    Mutant(
        "an end keeps its slot",
        SCHEDULER,
        """        else:
            del self._running[request.id]
""",
        """        else:
""",
    ),
    Mutant("an end has no reason", SCHEDULER, "request.finish_reason = reason", "pass"),
    Mutant(
        "an abort in the last step is ignored",
        SCHEDULER,
        "if request.phase is Phase.FINISHED:",
        "if False:",
    ),
    Mutant(
        "a step that raises ends a request twice",
        SCHEDULER,
        "if piece.request.phase is not Phase.FINISHED",
        "if True",
    ),
    Mutant("a failed row goes on", SCHEDULER, "if request.id in result.failed:", "if False:"),
    Mutant(
        "a failed row fails the batch",
        SCHEDULER,
        "if request.id in result.failed:",
        "if result.failed:",
    ),
    Mutant("a missing row passes", SCHEDULER, "assert not missing,", "assert True,"),
    Mutant(
        "a terminal event is dropped",
        SCHEDULER,
        "for end in ends if end is not None)",
        "for end in ends[:-1] if end is not None)",
    ),
    Mutant(
        "a finish keeps the overrun",
        SCHEDULER,
        "del request.output_ids[n_tokens:]",
        "del request.output_ids[n_tokens + 1 :]",
    ),
    Mutant(
        "length beats stop",
        SCHEDULER,
        "in request.stop_token_ids:",
        "in request.stop_token_ids and len(request.output_ids) < request.max_tokens:",
    ),
    Mutant("one token too many", SCHEDULER, ">= request.max_tokens", "> request.max_tokens"),
    Mutant(
        "a stop token is looked for everywhere", SCHEDULER, "output_ids[-1] in", "output_ids[0] in"
    ),
    Mutant(
        "a prefilled request stays in prefill",
        SCHEDULER,
        "            request.enter(Phase.DECODE)",
        "            pass",
    ),
    Mutant(
        "the highest computed position falls back",
        SCHEDULER,
        """max(
            request.highest_computed_tokens, request.computed_tokens
        )""",
        "request.computed_tokens",
    ),
    Mutant("the budget is not spent", DRAFT, "self.budget -= length", "self.budget -= 0"),
    Mutant(
        "a slice is longer than the budget",
        DRAFT,
        "min(request.pending_tokens, self.budget)",
        "request.pending_tokens",
    ),
    Mutant("a chunk samples", DRAFT, "length == request.pending_tokens and request", "request"),
    Mutant("a request without output samples", DRAFT, " and request.max_tokens > 0", ""),
    Mutant(
        "a slice starts at the beginning again",
        DRAFT,
        "request.computed_tokens, length",
        "0, length",
    ),
    Mutant("admissions are not told", DRAFT, "tuple(self.admitted)", "()"),
    Mutant("the last come is served first", WAITING, "next(iter(self", "next(reversed(self"),
    Mutant(
        "first computed tokens count as recomputed",
        RECORD,
        "highest_computed_tokens - piece.start, 0",
        "highest_computed_tokens - piece.start, 1",
    ),
    Mutant(
        "recomputed tokens are not bounded by the slice",
        RECORD,
        ", 0), piece.length)",
        ", 0), 10**9)",
    ),
)
