"""A scripted model that says what its prompt tells it to, tells logprobs and follows grammars."""

from __future__ import annotations

import hashlib
from typing import Final

from core.request import Request, RequestId
from core.step import Slice, StepPlan, StepResult
from core.wire import TokenLogprobs
from grammar.compile import Matcher
from tests.fakes_engine import EOS, RecitingRunner, recite

SAY: Final = b"say:"  # what follows, up to the next special token, is the answer
DICE: Final = b"dice:"  # letters that depend on seed and position alone
PREFERRED: Final = b'"}],1a'  # under a grammar, so that it ends soon


def logprob_of(token: int, position: int) -> float:
    """A made-up value, which a test can make up again."""
    return -float((token * 7 + position) % 50) / 8


def scored(id: RequestId, position: int, token: int, top: int) -> TokenLogprobs:
    best = sorted(range(256), key=lambda one: (-logprob_of(one, position), one))[:top]
    value = logprob_of(token, position)
    tops = tuple((one, logprob_of(one, position)) for one in best)
    return TokenLogprobs(id, position, token, value, tops)


def speak(request: Request) -> int:
    spoken, prompt = len(request.output_ids), bytes(min(id, 255) for id in request.prompt_ids)
    if SAY in prompt:
        text = prompt[prompt.rindex(SAY) + len(SAY) :].partition(b"\xff")[0]
        return text[spoken] if spoken < len(text) else EOS
    if DICE in prompt:
        drawn = hashlib.blake2b(f"{request.sampling.seed},{spoken}".encode()).digest()[0]
        return ord("a") + drawn % 26
    return recite(request)


def within_grammar(request: Request, wanted: int) -> int:
    """Take what ends soonest of what the grammar allows, else what is wanted."""
    assert isinstance(request.matcher, Matcher)
    allowed = request.matcher.allowed(request.output_ids, request.stop_token_ids)
    order = (EOS, *PREFERRED, wanted, *range(256))
    return next(token for token in order if allowed[token])


class SpeakingRunner(RecitingRunner):
    def _token(self, request: Request) -> int:
        wanted = speak(request)
        return wanted if request.matcher is None else within_grammar(request, wanted)

    def execute(self, plan: StepPlan) -> StepResult:
        result = super().execute(plan)
        sampled = [
            scored(id, piece.request.known_tokens, result.tokens[id], top)
            for piece in plan.slices
            if (id := piece.request.id) in result.tokens
            and (top := piece.request.sampling.logprobs) is not None
        ]
        prompts = [one for piece in plan.slices for one in prompt_scores(piece)]
        return StepResult(
            result.tokens,
            forward_ns=result.forward_ns,
            logprobs=tuple(sampled),
            prompt_logprobs=tuple(prompts),
        )


def prompt_scores(piece: Slice) -> list[TokenLogprobs]:
    request = piece.request
    return [
        scored(
            request.id, at + 1, request.prompt_ids[at + 1], request.sampling.prompt_logprobs or 0
        )
        for at in piece.scored
    ]
