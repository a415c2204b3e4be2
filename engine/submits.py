"""Checks a request before any step runs it: a fault in a step would end all its requests.

The server checks the same at the boundary, with better messages; this catches what slips through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from math import isfinite

from core.request import SamplingParams
from core.wire import Submit


def no_fault(submit: Submit) -> str:
    """Accept every request: stands in where no model is known."""
    return ""


def fault_in(submit: Submit, vocab_size: int, max_model_len: int) -> str:
    """Say what the model cannot run in a request; empty if it can run all of it.

    Cost: a pass over its ids.
    """
    return next(_faults(submit, vocab_size, max_model_len), "")


def _faults(submit: Submit, vocab_size: int, max_model_len: int) -> Iterator[str]:
    if not submit.prompt_ids:
        yield "the prompt has no tokens"
    if submit.max_tokens < 0:
        yield f"max_tokens is {submit.max_tokens}"
    tokens = len(submit.prompt_ids) + submit.max_tokens
    if tokens > max_model_len:
        yield f"prompt and output have {tokens} tokens; the limit is {max_model_len}"
    for name, ids in _id_fields(submit):
        wrong = _outside(ids, vocab_size)
        if wrong is not None:
            yield f"{name} holds token id {wrong}; the vocabulary has {vocab_size} ids"
    yield from _sampling_faults(submit.sampling)


def _id_fields(submit: Submit) -> Iterator[tuple[str, Iterable[int]]]:
    sampling = submit.sampling
    yield "the prompt", submit.prompt_ids
    yield "stop_token_ids", submit.stop_token_ids
    yield "allowed_token_ids", sampling.allowed_token_ids
    yield "logit_bias", [token for token, _ in sampling.logit_bias]
    yield "bad_words", chain.from_iterable(sampling.bad_words)


def _outside(ids: Iterable[int], vocab_size: int) -> int | None:
    known = tuple(ids)
    greatest, least = max(known, default=0), min(known, default=0)
    if greatest >= vocab_size:
        return greatest
    return least if least < 0 else None


def _sampling_faults(sampling: SamplingParams) -> Iterator[str]:
    """Name numbers that the sampler's arithmetic does not allow."""
    if not all(sampling.bad_words):
        yield "bad_words holds a word of no tokens"
    biases = [value for _, value in sampling.logit_bias]
    penalties = (sampling.frequency_penalty, sampling.presence_penalty)
    ranges = (
        ("temperature", isfinite(sampling.temperature) and sampling.temperature >= 0),
        ("top_p", 0 <= sampling.top_p <= 1),
        ("top_k", sampling.top_k >= 0),
        ("min_p", 0 <= sampling.min_p <= 1),
        ("repetition_penalty", isfinite(sampling.repetition_penalty)),
        ("frequency_penalty or presence_penalty", all(map(isfinite, penalties))),
        ("logit_bias", all(map(isfinite, biases))),
        ("logprobs", (sampling.logprobs or 0) >= 0),
        ("prompt_logprobs", (sampling.prompt_logprobs or 0) >= 0),
    )
    for name, fits in ranges:
        if not fits:
            yield f"{name} is out of range"
