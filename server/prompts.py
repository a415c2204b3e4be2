"""From a validated call to token ids, within the vocabulary and the context limit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from core.errors import ContextLengthExceeded, EmptyPrompt, InvalidTokenId
from server.tokenizer import ModelTokenizer
from server.validation import ChatCall, CompletionCall, Prompt

_LONG_CHARACTERS: Final = 20_000  # about 20 ms of encoding: more goes to a thread


async def encode_prompts(call: CompletionCall, tokenizer: ModelTokenizer) -> list[tuple[int, ...]]:
    """Encode each prompt of the list.

    Raises:
        InvalidTokenId, EmptyPrompt: one of them is not usable, so none is run.
    """
    return [await _encode(prompt, tokenizer) for prompt in call.prompts]


async def encode_chat(call: ChatCall, tokenizer: ModelTokenizer) -> tuple[int, ...]:
    """Encode the conversation.

    Raises:
        TemplateFailed: the model has no template, or it refused the messages.
    """
    size = sum(len(str(message.get("content"))) for message in call.messages)
    if size > _LONG_CHARACTERS:
        return await asyncio.to_thread(tokenizer.encode_chat, call.messages)
    return tokenizer.encode_chat(call.messages)


async def _encode(prompt: Prompt, tokenizer: ModelTokenizer) -> tuple[int, ...]:
    if not isinstance(prompt, str):
        _check_vocabulary(prompt, len(tokenizer.token_bytes))
        return prompt
    if len(prompt) > _LONG_CHARACTERS:
        ids = await asyncio.to_thread(tokenizer.encode, prompt)
    else:
        ids = tokenizer.encode(prompt)
    if not ids:
        raise EmptyPrompt("the prompt has no tokens", "prompt")
    return ids


def _check_vocabulary(ids: Sequence[int], vocab_size: int) -> None:
    worst = max(ids)
    if worst >= vocab_size:
        raise InvalidTokenId(f"token id {worst} is not below the {vocab_size} ids known", "prompt")


def room_for(prompt_tokens: int, wanted: int | None, limit: int, param: str, clamp: bool) -> int:
    """Say how many tokens may be generated after a prompt; `wanted` None takes all the room.

    `clamp` cuts `wanted` to the room instead of refusing it.

    Raises:
        ContextLengthExceeded: the prompt, or prompt and `wanted` together, are over `limit`.
    """
    room = limit - prompt_tokens
    if room <= 0:
        raise ContextLengthExceeded(
            f"the prompt has {prompt_tokens} tokens; the context limit is {limit}, "
            "and at least one token must be left to generate",
            param,
        )
    if wanted is None or (clamp and wanted > room):
        return room
    if wanted > room:
        raise ContextLengthExceeded(
            f"the prompt has {prompt_tokens} tokens and max_tokens is {wanted}: together "
            f"{prompt_tokens + wanted}, above the context limit of {limit}",
            "max_tokens",
        )
    return wanted
