"""Which logits a draft asks for, what it promises, and whom the pace holds up."""

from __future__ import annotations

from typing import Any

import pytest

from core.request import Phase, Request, RequestId, SamplingParams
from core.step import Slice
from kvcache.prefix import chain_keys
from scheduler.draft import Draft
from scheduler.pace import Load
from scheduler.shares import Shares

PROMPT = (1, 2, 3, 4, 5)


def slices(prompt_logprobs: int | None, computed: int = 0, highest: int = 0) -> list[Slice]:
    """Schedule two tokens at a time until all known tokens are computed."""
    request = Request(
        id=RequestId("r"),
        prompt_ids=PROMPT,
        max_tokens=4,
        sampling=SamplingParams(prompt_logprobs=prompt_logprobs),
        computed_tokens=computed,
        highest_computed_tokens=highest,
    )
    drafts, shares = [], Shares()
    shares.join(request.tenant, waits_already=False)
    while request.pending_tokens:
        draft = Draft(2, shares)
        room = draft.room(request.pending_tokens, request.computed_tokens)
        draft.schedule(request, room)
        request.computed_tokens += draft.slices[0].length
        drafts += draft.slices
    return drafts


def test_a_request_that_asks_for_nothing_has_a_row_only_where_it_samples() -> None:
    assert [piece.rows for piece in slices(prompt_logprobs=None)] == [0, 0, 1]


def test_every_prompt_token_but_the_first_is_scored_once_across_chunks() -> None:
    pieces = slices(prompt_logprobs=0)
    assert [piece.scored for piece in pieces] == [range(2), range(2, 4), range(4, 4)]
    assert [piece.rows for piece in pieces] == [2, 2, 1]


def test_what_was_scored_before_a_preemption_is_not_scored_again() -> None:
    assert [list(piece.scored) for piece in slices(0, computed=0, highest=3)] == [[], [3], []]


@pytest.mark.parametrize(("length", "promises"), [(4, False), (5, True)])
def test_blocks_are_promised_by_the_step_that_ends_a_prompt(length: int, promises: bool) -> None:
    leader, twin = (Request(id=RequestId(n), prompt_ids=PROMPT, max_tokens=4) for n in "ab")
    leader.enter(Phase.PREFILL)
    for request in (leader, twin):
        chain_keys(request, 2, 2)
    shares = Shares()
    shares.join(leader.tenant, waits_already=False)
    draft = Draft(16, shares)
    draft.schedule(leader, length)
    assert draft.promises(twin, 0) is promises


class FixedPace:
    """Lets prompts have five tokens of a step between them."""

    def load(self) -> Load:
        return Load()

    def prompt_tokens(self, load: Load, start: int) -> int:
        return 5 - load.prompt_tokens


def test_prompts_share_what_the_pace_leaves_and_no_decode_waits_for_it() -> None:
    pace: Any = FixedPace()
    shares = Shares()
    draft = Draft(16, shares, pace)
    first = Request(id=RequestId("first"), prompt_ids=tuple(range(9)), max_tokens=4)
    shares.join(first.tenant, waits_already=False)
    assert draft.room(pending=9, start=0) == 5
    draft.schedule(first, 3)
    assert draft.room(pending=9, start=0) == 2
    draft.schedule(first, 2)
    assert draft.room(pending=9, start=0) == 0
    assert draft.room(pending=1, start=9) == 1
