"""What a request asks for at most, against the operator's limits, before anything is queued."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import InvalidValue
from core.settings import HttpSettings
from server.contract.validation import ChatCall, GenerationCall
from server.text.prompts import Prompted


def check_size(call: GenerationCall, prompts: Sequence[Prompted], limits: HttpSettings) -> None:
    """Check generations, tokens and logprobs over the whole request.

    Raises:
        InvalidValue: names the field that takes it over a limit, the limit, and what it came to.
    """
    generations = len(prompts) * call.n
    tokens = call.n * sum(one.max_tokens for one in prompts)
    many, length = "n" if call.n > 1 else "prompt", call.max_tokens_field or "max_tokens"
    _check(many, "prompts times n", generations, min(limits.max_generations, limits.max_queue))
    _check(length, f"generations times {length}", tokens, limits.max_request_tokens)
    values = 0
    if call.logprobs is not None:
        values += tokens * (call.logprobs + 1)
    if call.sampling.prompt_logprobs is not None:
        prompt_tokens = call.n * sum(len(one.ids) for one in prompts)
        values += prompt_tokens * (call.sampling.prompt_logprobs + 1)
    _check(_scorer(call), "logprobs over all tokens", values, limits.max_request_logprobs)


def _scorer(call: GenerationCall) -> str:
    """Name the field that asks for logprobs."""
    if call.logprobs is None:
        return "prompt_logprobs"
    return "top_logprobs" if call.logprobs and isinstance(call, ChatCall) else "logprobs"


def _check(param: str, words: str, asked: int, limit: int) -> None:
    if asked > limit:
        raise InvalidValue(f"{words} is {asked}; the limit is {limit}", param)
