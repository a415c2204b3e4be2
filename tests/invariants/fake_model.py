"""The model side of a small world: what it wrote where, and what anybody would say alone."""

from __future__ import annotations

from dataclasses import dataclass

from core.request import BlockId, Phase, Request
from core.settings import Batching, Switch
from core.step import Slice, StepPlan, StepResult
from scheduler.pace import Load
from tests.fakes import ScriptedRunner, next_token


@dataclass(frozen=True)
class Sizes:
    blocks: int
    block_size: int
    seqs: int
    budget: int
    vocab_size: int
    ageing_tokens: int
    batching: Batching
    kv_cache: Switch
    paced: bool

    @property
    def keeps_kv(self) -> bool:
        return self.kv_cache is Switch.ON


class ScriptedPace:
    """A pace that a test sets; like the real one it always lets the first prompt go on."""

    def __init__(self) -> None:
        self.room = 1

    def load(self) -> Load:
        return Load()

    def prompt_tokens(self, load: Load, start: int) -> int:
        return max(self.room - load.prompt_tokens, 0 if load.prompt_tokens else 1)

    def observe(self, plan: StepPlan, measured_s: float) -> None:
        assert measured_s == 0, "nothing here takes time"


History = tuple[str, str, tuple[int, ...]]  # tenant, cache salt, tokens


class PagedRunner(ScriptedRunner):
    """A fake model with a KV store: each slot holds the history that was written to it.

    Invariant: a slice reads, at every position before it, exactly its own request's history.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes.vocab_size)
        self._block_size = sizes.block_size
        self._slots: dict[tuple[BlockId, int], History] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        live = [piece for piece in plan.slices if piece.request.phase is not Phase.FINISHED]
        for piece in live:
            self._run(piece)
        result = super().execute(plan)
        self.plans.clear()
        return result

    def _run(self, piece: Slice) -> None:
        request, end = piece.request, piece.start + piece.length
        tokens = (*request.prompt_ids, *request.output_ids)
        for position in range(end):
            block = request.block_table[position // self._block_size]
            slot = (block, position % self._block_size)
            history = (request.tenant, request.cache_salt, tokens[: position + 1])
            if position >= piece.start:
                self._slots[slot] = history
            assert self._slots.get(slot) == history, "another's KV was read"  # B7, B8

    def content_of(self, block: BlockId) -> History:
        """Tell what a full block holds, from the first token on."""
        return self._slots[block, self._block_size - 1]


def solo_output(request: Request, vocab_size: int) -> list[int]:
    """What it says when nobody disturbs it, by the plain loop."""
    output: list[int] = []
    while len(output) < request.max_tokens:
        output.append(next_token((*request.prompt_ids, *output), vocab_size))
        if output[-1] in request.stop_token_ids:
            break
    return output
