"""What a request asks for at most, against the operator's limits, before anything is queued."""

from __future__ import annotations

from typing import Final

from core.errors import InvalidValue
from core.settings import HttpSettings
from server.contract.validation import ChatCall, GenerationCall
from server.text.prompts import Prompts

MAX_IDS_BESIDE: Final = 2**20  # each choice takes its ids to the engine: 40 ns and 3 bytes each


def check_size(call: GenerationCall, asked: Prompts, limits: HttpSettings) -> None:
    """Check generations, tokens, logprobs and lists of ids over the whole request.

    Raises:
        InvalidValue: names the field that takes it over a limit, the limit, and what it came to.
    """
    prompts = asked.list
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
    beside = {
        "allowed_token_ids": len(call.sampling.allowed_token_ids),
        "bad_words": sum(map(len, asked.bad_words)),
        "logit_bias": len(call.sampling.logit_bias),
        "stop_token_ids": len(call.stop_token_ids),
    }
    longest = max(beside, key=beside.__getitem__)
    ids = generations * sum(beside.values())
    _check(longest, "generations times token ids beside the prompt", ids, MAX_IDS_BESIDE)


def _scorer(call: GenerationCall) -> str:
    """Name the field that asks for logprobs."""
    if call.logprobs is None:
        return "prompt_logprobs"
    return "top_logprobs" if call.logprobs and isinstance(call, ChatCall) else "logprobs"


def _check(param: str, words: str, asked: int, limit: int) -> None:
    if asked > limit:
        raise InvalidValue(f"{words} is {asked}; the limit is {limit}", param)
