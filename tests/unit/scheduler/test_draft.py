"""Which logits a draft asks for."""

from __future__ import annotations

from core.request import Request, RequestId, SamplingParams
from core.step import Slice
from scheduler.draft import Draft
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
