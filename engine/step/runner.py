"""Runs a step plan on the model: lay out, forward, sample. Knows no queues, owns no blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import torch

from core.request import Request, RequestId
from core.step import StepPlan, StepResult
from engine.forward.batch import build_batch
from engine.forward.network import Forward, Network
from engine.step.logits import adjust
from engine.step.logprobs import Ask, logprobs
from engine.step.sampler import sample
from grammar.compile import Matcher

NOT_FINITE: Final = "the model gave a number that is not finite"
NOTHING_ALLOWED: Final = "what the request masks leaves no token"


class ModelRunner:
    """Implements `Runner`."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def execute(self, plan: StepPlan) -> StepResult:
        """See `Runner.execute`. A row with NaN fails alone: no slice reads another's slots."""
        prepared = self._network.prepare(build_batch(plan, self._network.block_size))
        prepared_ns = time.monotonic_ns()
        forward = self._network.forward(prepared)
        return outcome_of(plan, forward, time.monotonic_ns() - prepared_ns)


def outcome_of(plan: StepPlan, forward: Forward, forward_ns: int) -> StepResult:
    """Draw for the rows that sample, and score the prompt rows that ask for it.

    Shapes: the rows are in the order of `StepBatch.logit_rows`. They are not changed.
    Returns: a row with NaN fails its own request only; `sample_ns` is what this took.
    """
    start_ns = time.monotonic_ns()
    pieces = [piece for piece in plan.slices if piece.samples]
    requests = [piece.request for piece in pieces]
    logits = forward.logits
    adjusted = adjust(logits, requests)
    greatest = forward.greatest if adjusted is logits else None
    params = [request.sampling for request in requests]
    drawn = sample(adjusted, params, [piece.start + piece.length for piece in pieces], greatest)
    tokens: dict[RequestId, int] = {}
    scores = list(_scores(plan))
    failed = {ask.id: NOT_FINITE for ask in scores if not _is_finite(logits[ask.row])}
    for row, (request, token) in enumerate(zip(requests, drawn, strict=True)):
        if token < 0:
            failed[request.id] = _why(request, adjusted[row])
        elif request.id not in failed:
            tokens[request.id] = token
    return StepResult(
        tokens,
        failed,
        logprobs=logprobs(logits, list(_asks(requests, tokens))),
        prompt_logprobs=logprobs(logits, [ask for ask in scores if ask.id not in failed]),
        forward_ns=forward_ns,
        sample_ns=time.monotonic_ns() - start_ns,
    )


def _is_finite(row: torch.Tensor) -> bool:
    return bool(torch.isfinite(row.amax()))


def _why(request: Request, adjusted: torch.Tensor) -> str:
    if not torch.isneginf(adjusted.amax()):
        return NOT_FINITE
    error = request.matcher.error if isinstance(request.matcher, Matcher) else ""
    return error or NOTHING_ALLOWED


def _asks(requests: list[Request], tokens: dict[RequestId, int]) -> Iterator[Ask]:
    for row, request in enumerate(requests):
        top = request.sampling.logprobs
        if top is not None and request.id in tokens:
            yield Ask(row, request.id, request.known_tokens, tokens[request.id], top)


def _scores(plan: StepPlan) -> Iterator[Ask]:
    """Give one ask per scored row, in the order of the rows."""
    row = sum(piece.samples for piece in plan.slices)
    for piece in plan.slices:
        request, top = piece.request, piece.request.sampling.prompt_logprobs
        for position in piece.scored:
            assert top is not None, f"{request.id}: scored unasked"
            token = request.token_at(position + 1)
            yield Ask(row, request.id, position + 1, token, top)
            row += 1
