"""What a request asks for at most, against the operator's limits, before anything is queued."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import InvalidValue
from core.settings import HttpSettings
from server.prompts import Prompted
from server.validation import GenerationCall


def check_size(call: GenerationCall, prompts: Sequence[Prompted], limits: HttpSettings) -> None:
    """Check generations, tokens and logprobs over the whole request.

    Raises:
        InvalidValue: names the field that takes it over a limit, the limit, and what it came to.
    """
    generations = len(prompts) * call.n
    tokens = call.n * sum(one.max_tokens for one in prompts)
    _check("n", "prompts times n", generations, limits.max_generations)
    _check("max_tokens", "generations times max_tokens", tokens, limits.max_request_tokens)
    values = 0
    if call.logprobs is not None:
        values += tokens * (call.logprobs + 1)
    if call.sampling.prompt_logprobs is not None:
        prompt_tokens = call.n * sum(len(one.ids) for one in prompts)
        values += prompt_tokens * (call.sampling.prompt_logprobs + 1)
    param = "prompt_logprobs" if call.logprobs is None else "logprobs"
    _check(param, "logprobs over all tokens", values, limits.max_request_logprobs)


def _check(param: str, words: str, asked: int, limit: int) -> None:
    if asked > limit:
        raise InvalidValue(f"{words} is {asked}; the limit is {limit}", param)
