"""The mutants: one deliberate bug each, as a textual change. A new bug in production adds one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    bug: str  # what it does wrong
    file: str
    old: str
    new: str


POOL, PREFIX, SCHEDULER = "kvcache/pool.py", "kvcache/prefix.py", "scheduler/scheduler.py"
DRAFT, WAITING, RECORD = "scheduler/draft.py", "scheduler/waiting.py", "scheduler/record.py"
ADMISSION, SHARES, PACE = "scheduler/admission.py", "scheduler/shares.py", "scheduler/pace.py"
RUNNING, SHARING = "scheduler/running.py", "scheduler/sharing.py"

MUTANTS = (
    Mutant("a block is released without losing its reference", POOL, "] -= 1", "] -= 0"),
    Mutant(
        "a block is handed out without a reference",
        POOL,
        "_references[block] += 1\n            request",
        "_references[block] += 0\n            request",
    ),
    Mutant(
        "a block stays in the free list when it is handed out",
        POOL,
        "return self._free.pop()",
        "return self._free[-1]",
    ),
    Mutant("one block over", POOL, "if missing >", "if missing - 1 >"),
    Mutant("spare blocks are ignored", POOL, "idle + spare_blocks >", "idle >"),
    Mutant(
        "growing takes what there is and then fails",
        POOL,
        "            return False\n        for _ in",
        "            self._take()\n            return False\n        for _ in",
    ),
    Mutant("a partly filled block is forgotten", POOL, "-(-tokens //", "(tokens //"),
    Mutant("a table outlives its blocks", POOL, "        table.clear()\n", ""),
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
        RUNNING,
        "in reversed(self._in_order())",
        "in tuple(self._in_order())",
    ),
    Mutant(
        "a request preempts itself",
        RUNNING,
        "if other is request:",
        "if other is not other:",
    ),
    Mutant(
        "a preempted request goes to the back", SCHEDULER, "push_back(request)", "push(request)"
    ),
    Mutant(
        "preemption keeps the blocks",
        SCHEDULER,
        "        self._pool.release(request)\n        request.computed_tokens = 0",
        "        request.computed_tokens = 0",
    ),
    Mutant(
        "preemption keeps the computed tokens",
        SCHEDULER,
        "request.computed_tokens = 0\n        self._running.remove",
        "self._running.remove",
    ),
    Mutant(
        "without a KV cache the computed tokens are kept",
        SCHEDULER,
        "if not self._keeps_kv:\n            request.computed_tokens = 0",
        "if not self._keeps_kv:\n            pass",
    ),
    Mutant(
        "a chunked prompt is admitted though growth would stop others",
        ADMISSION,
        "return others * self",
        "return 0 * self",
    ),
    Mutant(
        "admission takes blocks for the first chunk only",
        ADMISSION,
        "found, pending, self",
        "found, room, self",
    ),
    Mutant(
        "one request too many runs",
        ADMISSION,
        "== self._slots",
        "> self._slots",
    ),
    Mutant(
        "admission follows preemption", SCHEDULER, "Obstacle.KV if draft.pressed else self", "self"
    ),
    Mutant(
        "requests wait for the wrong thing",
        ADMISSION,
        "self._slots:\n                return Obstacle.SLOTS",
        "self._slots:\n                return Obstacle.KV",
    ),
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
            self._running.remove(request)
            self._pool.release(request)""",
        """        else:
            self._running.remove(request)""",
    ),
    Mutant(
        "an end keeps its slot",
        SCHEDULER,
        """        else:
            self._running.remove(request)
""",
        """        else:
""",
    ),
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
    Mutant(
        "who has gained nothing is preempted",
        SCHEDULER,
        "if r.known_tokens > r.admitted_tokens",
        "if r.known_tokens >= r.admitted_tokens",
    ),
    Mutant("a key is without its parent", PREFIX, "sha256(parent + array", "sha256(array"),
    Mutant("a key is without its namespace", PREFIX, "else _namespace(request)", 'else b""'),
    Mutant("a key is without its tenant", PREFIX, '"big") + tenant', '"big")'),
    Mutant(
        "a tenant runs into its salt",
        PREFIX,
        'len(tenant).to_bytes(8, "big") + tenant',
        "tenant",
    ),
    Mutant("a key is without its salt", PREFIX, "tenant + salt", "tenant"),
    Mutant("a second block takes a key over", PREFIX, "if key in self._blocks:", "if False:"),
    Mutant("an evicted block stays indexed", POOL, "self._index.drop(block)", "pass"),
    Mutant("the latest cached block is evicted first", POOL, "popitem(last=False)", "popitem()"),
    Mutant(
        "parents are evicted before leaves",
        POOL,
        "for block in reversed(table):",
        "for block in table:",
    ),
    Mutant(
        "all of a prompt is found, and nothing left to compute",
        POOL,
        "(request.known_tokens - 1) //",
        "request.known_tokens //",
    ),
    Mutant(
        "a prompt whose logprobs are asked for is found",
        POOL,
        " or request.sampling.prompt_logprobs is not None",
        "",
    ),
    Mutant(
        "a cached block that is taken counts as room",
        POOL,
        "if missing + idle + spare",
        "if missing + spare",
    ),
    Mutant(
        "a found block stays evictable",
        POOL,
        "            del self._cached[block]\n",
        "            pass\n",
    ),
    Mutant(
        "a found block has no reference more",
        POOL,
        "references[block] += 1\n        self",
        "references[block] += 0\n        self",
    ),
    Mutant("shared blocks are miscounted", POOL, "self._references[block] == 2", "True"),
    Mutant(
        "shared blocks never part",
        POOL,
        "self.shared_blocks -= self",
        "self.shared_blocks -= 0 * self",
    ),
    Mutant(
        "a partly filled block is shared",
        POOL,
        "full = request.computed_tokens // self.block_size",
        "full = self.blocks_for(request.computed_tokens)",
    ),
    Mutant(
        "a twin's children are indexed", POOL, "                return\n", "                pass\n"
    ),
    Mutant("a table's mark outlives it", POOL, "        request.indexed_blocks = 0\n", ""),
    Mutant(
        "a found block is indexed again",
        POOL,
        "request.indexed_blocks = len(found)",
        "request.indexed_blocks = 0",
    ),
    Mutant(
        "cached tokens are not counted",
        POOL,
        "cached_tokens += request",
        "cached_tokens += 0 * request",
    ),
    Mutant("blocks are released, not cached", POOL, "if block in self._index:", "if False:"),
    Mutant("nothing is published", SCHEDULER, "self._pool.publish(request)", "pass"),
    Mutant(
        "equal prompts do not wait",
        ADMISSION,
        " or draft.promises(request, len(found)):",
        ":",
    ),
    Mutant(
        "a chunk promises its prompt", DRAFT, "if samples and request.phase", "if request.phase"
    ),
    Mutant(
        "cached tokens are told in every step",
        RECORD,
        "piece.start if admitted",
        "piece.start if True",
    ),
    Mutant("a run ends one block early", SHARING, "return low", "return low - 1"),
    Mutant("branches share nothing", SHARING, "yield from _runs(tables, branch, common)", "pass"),
    Mutant("a run is told from its beginning", SHARING, "common - depth", "common"),
    Mutant("the pace is ignored", DRAFT, "if self.pace is None or pending == 1:", "if True:"),
    Mutant("a decode waits for the pace", DRAFT, " or pending == 1:", ":"),
    Mutant("the load is not counted", DRAFT, "if self.pace is not None:", "if False:"),
    Mutant("steps teach nothing", SCHEDULER, "if self._pace is not None:", "if False:"),
    Mutant("the correction is forgotten", PACE, "self._goal_s / self.correction", "self._goal_s"),
    Mutant("a prompt may get nothing for ever", PACE, "else LEAST_TOKENS", "else 0"),
    Mutant("attention is left out of the pace", PACE, "sums.seen_tokens(start)", "0"),
    Mutant("the lesson of one step is all", PACE, "_WEIGHT_OF_NEWS * (news", "1.0 * (news"),
    Mutant("decodes teach the pace", PACE, "if load.prompt_tokens and", "if"),
    Mutant("nobody is charged", DRAFT, "self.shares.charge(request.tenant, length)", "pass"),
    Mutant("a charge is another's", SHARES, "self._served[tenant] += tokens", "pass"),
    Mutant(
        "who was away has saved up a right",
        SHARES,
        "served = max(served, least)",
        "pass",
    ),
    Mutant(
        "who comes alone owes the others",
        SHARES,
        "max(self._served.values(), default=0)",
        "0",
    ),
    Mutant("who comes back owes nothing", SHARES, "max(served, least)", "least"),
    Mutant(
        "tenants are remembered for ever",
        SHARES,
        "            self._served.clear()\n",
        "            pass\n",
    ),
    Mutant(
        "an end leaves its tenant live", SCHEDULER, "self._shares.leave(request.tenant)", "pass"
    ),
    Mutant("classes are ignored", WAITING, "priority = head.priority if", "priority = 0 if"),
    Mutant("shares are ignored", WAITING, "self._shares.served(head.tenant), head", "0, head"),
    Mutant("nobody ages", WAITING, ">= self._ageing_tokens", "< 0"),
    Mutant("a head ages from its birth", WAITING, "line.since_total = self._shares.total", "pass"),
    Mutant(
        "the last preempted comes back first",
        WAITING,
        "key=lambda other: other.arrival",
        "key=lambda other: -other.arrival",
    ),
    Mutant(
        "an empty line stays", WAITING, "            del self._lines[key]\n", "            pass\n"
    ),
    Mutant("a lower class runs first", RUNNING, "other: other.priority", "other: 0"),
    Mutant(
        "a higher class yields first",
        RUNNING,
        "other: other.priority",
        "other: -other.priority",
    ),
    Mutant("static batches are joined", ADMISSION, "if self._static and", "if False and"),
    Mutant(
        "a batch is never full",
        ADMISSION,
        "self._batch_is_full = obstacle",
        "self._batch_is_full = False and obstacle",
    ),
    Mutant(
        "several run without batching", ADMISSION, "1 if limits.batching is Batching.NONE else ", ""
    ),
    Mutant("without a KV cache KV is kept", SCHEDULER, "if not self._keeps_kv:", "if False:"),
    Mutant(
        "without a KV cache blocks run out",
        ADMISSION,
        "request, (), request.worst_case_tokens",
        "request, (), request.known_tokens",
    ),
    Mutant("the budget is not spent", DRAFT, "self.budget -= length", "self.budget -= 0"),
    Mutant(
        "a slice is longer than the budget",
        DRAFT,
        "min(pending, self.budget)",
        "pending",
    ),
    Mutant("a chunk samples", DRAFT, "samples = whole and", "samples ="),
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
