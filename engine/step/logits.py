"""Applies what requests ask of their logits, before a token is drawn: penalties, bias, masks.

A row is a pure function of its own logits and its request's tokens, so preemption cannot change
it. Rows that ask for nothing are not touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import torch

from core.request import Request, SamplingParams
from grammar.compile import Matcher


def adjust(logits: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
    """Prepare the logits of the tokens that come next in R `requests`: the first R rows.

    In this order: repetition, presence and frequency penalties, bias; then masks, which give
    -inf: stop tokens before `min_tokens`, ids not allowed, bad words, the grammar. A row that
    holds NaN keeps one, whatever is masked.

    Cost: where a row asks, a copy of all; for those that do, a pass over their known tokens.
    Returns: [R, V]; where no row asks `logits` itself, which may have more rows.
    """
    asking = [row for row, request in enumerate(requests) if _asks(request)]
    if not asking:
        return logits
    chosen, rows = [requests[row] for row in asking], logits[asking]  # rows: [A, V], a copy
    broken = ~torch.isfinite(rows.amax(dim=-1))  # [A]
    _penalise(rows, chosen)
    _bias(rows, [request.sampling for request in chosen])
    _mask(rows, chosen)
    rows[broken] = torch.nan
    return logits[: len(requests)].index_copy(0, torch.tensor(asking), rows)


def _asks(request: Request) -> bool:
    p = request.sampling
    return bool(
        p.frequency_penalty
        or p.presence_penalty
        or p.repetition_penalty != 1
        or p.logit_bias
        or len(request.output_ids) < p.min_tokens
        or p.allowed_token_ids
        or p.bad_words
        or request.matcher is not None
    )


# ── penalties and bias ────────────────────────────────────────────────────────────────────────


def _penalise(rows: torch.Tensor, requests: Sequence[Request]) -> None:
    flat, vocab_size = rows.view(-1), rows.shape[1]
    known = [
        chain(r.prompt_ids, r.output_ids) if r.sampling.repetition_penalty != 1 else ()
        for r in requests
    ]
    cells, _ = _count(known, vocab_size)
    penalty = _of_row(cells, [r.sampling.repetition_penalty for r in requests], vocab_size)
    seen = flat[cells]
    flat[cells] = torch.where(seen > 0, seen / penalty, seen * penalty)

    cells, counts = _count([_output(r) for r in requests], vocab_size)
    presence = _of_row(cells, [r.sampling.presence_penalty for r in requests], vocab_size)
    frequency = _of_row(cells, [r.sampling.frequency_penalty for r in requests], vocab_size)
    flat[cells] -= presence + frequency * counts


def _output(request: Request) -> Sequence[int]:
    p = request.sampling
    return request.output_ids if p.presence_penalty or p.frequency_penalty else ()


def _count(tokens: Sequence[Iterable[int]], vocab_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Count each row's tokens. Returns: flat indices of the cells that occur, and how often."""
    cells = [np.fromiter(ids, np.int64) + row * vocab_size for row, ids in enumerate(tokens)]
    unique, counts = np.unique(np.concatenate(cells), return_counts=True)
    return torch.from_numpy(unique), torch.from_numpy(counts)


def _of_row(cells: torch.Tensor, values: Sequence[float], vocab_size: int) -> torch.Tensor:
    """Give each cell its row's value."""
    return torch.tensor(values, dtype=torch.float32)[cells // vocab_size]


def _bias(rows: torch.Tensor, params: Sequence[SamplingParams]) -> None:
    cells = [(row, token) for row, p in enumerate(params) for token, _ in p.logit_bias]
    values = [value for p in params for _, value in p.logit_bias]
    if cells:
        index = torch.tensor(cells).unbind(1)
        rows.index_put_(index, torch.tensor(values, dtype=rows.dtype), accumulate=True)


# ── masks ─────────────────────────────────────────────────────────────────────────────────────


def _mask(rows: torch.Tensor, requests: Sequence[Request]) -> None:
    cells = [(row, token) for row, request in enumerate(requests) for token in _banned(request)]
    if cells:
        rows[torch.tensor(cells).unbind(1)] = -torch.inf
    for row, request in enumerate(requests):
        for allowed in _allowed(request, rows.shape[1]):
            rows[row].masked_fill_(torch.from_numpy(~allowed), -torch.inf)


def _banned(request: Request) -> Iterator[int]:
    """Give the tokens that may not come next: few, out of all."""
    if len(request.output_ids) < request.sampling.min_tokens:
        yield from request.stop_token_ids
    for *head, last in request.sampling.bad_words:
        if _ends_with(request, head):
            yield last


def _ends_with(request: Request, tail: Sequence[int]) -> bool:
    """Whether the known tokens, prompt included, end with `tail`."""
    start = request.known_tokens - len(tail)
    return start >= 0 and all(
        request.token_at(start + at) == token for at, token in enumerate(tail)
    )


def _allowed(request: Request, vocab_size: int) -> Iterator[np.ndarray]:
    """Give masks [V] of the only tokens that may come next."""
    if request.sampling.allowed_token_ids:
        allowed = np.zeros(vocab_size, dtype=bool)
        allowed[list(request.sampling.allowed_token_ids)] = True
        yield allowed
    if isinstance(request.matcher, Matcher):
        yield request.matcher.allowed(request.output_ids, request.stop_token_ids)
