"""From a validated call to token ids, within the vocabulary and the context limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from core.errors import ContextLengthExceeded, EmptyPrompt, InvalidTokenId, InvalidValue
from server.chat_template import TemplateChildren
from server.conversation import Conversation
from server.prompt_forms import Prompt
from server.tokenizer import ModelTokenizer
from server.validation import ChatCall, CompletionCall, GenerationCall

_LONG_CHARACTERS: Final = 20_000  # about 20 ms of encoding: more goes to a thread


@dataclass(frozen=True, slots=True)
class Prompted:
    """One prompt to go on from, how many tokens may follow, and its text where it was one."""

    ids: tuple[int, ...]
    max_tokens: int
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ContextLimit:
    """The most tokens of prompt and output together; `of_store`: the KV store holds no more."""

    tokens: int
    of_store: bool

    def __str__(self) -> str:
        return f"{self.tokens}" + ", all that the KV store holds" * self.of_store


class PromptEncoder:
    """Encodes prompts and conversations; long ones in a thread."""

    def __init__(self, template_timeout_s: float) -> None:
        self._children = TemplateChildren(template_timeout_s)

    async def prompts(
        self, call: CompletionCall, tokenizer: ModelTokenizer, limit: ContextLimit
    ) -> list[Prompted]:
        """Encode each prompt of the list.

        Raises:
            InvalidTokenId, EmptyPrompt, ContextLengthExceeded: one of them is not usable, so none
                is run.
        """
        prompted = []
        for prompt in call.prompts:
            whole = await self._encode(prompt, call.add_special_tokens, tokenizer)
            ids = truncate(whole, call, limit.tokens)
            room = room_for(len(ids), call, limit, "prompt")
            text = prompt if isinstance(prompt, str) and ids == whole else None
            prompted.append(Prompted(ids, room, text))
        return prompted

    async def chat(
        self, call: ChatCall, tokenizer: ModelTokenizer, limit: ContextLimit
    ) -> Prompted:
        """Encode the conversation of a chat.

        Raises:
            TemplateFailed: the model has no template, or it refused the messages.
            EmptyPrompt, ContextLengthExceeded: it has no tokens, or too many.
            InvalidTokenId: it has a token that the model lacks.
        """
        whole = await self.conversation(call.conversation, tokenizer)
        check_encoded(whole, tokenizer, "messages")
        ids = truncate(whole, call, limit.tokens)
        if not ids:
            raise EmptyPrompt("the rendered conversation has no tokens", "messages")
        return Prompted(ids, room_for(len(ids), call, limit, "messages"))

    async def conversation(self, talk: Conversation, tokenizer: ModelTokenizer) -> tuple[int, ...]:
        """Render and encode.

        Raises:
            TemplateFailed: there is no template, or it refused the messages.
        """
        if talk.template is not None:
            script = tokenizer.script(talk)
            tokens = tokenizer.template.tokens if tokenizer.template else {}
            text = await self._children.render(talk.template, tokens, script.variables)
            return await asyncio.to_thread(tokenizer.encode_script, text, script.marked, talk)
        if len(str(talk.messages)) + len(str(talk.use)) > _LONG_CHARACTERS:
            return await asyncio.to_thread(tokenizer.encode_chat, talk)
        return tokenizer.encode_chat(talk)

    async def text(
        self, text: str, add_special_tokens: bool, tokenizer: ModelTokenizer
    ) -> tuple[int, ...]:
        if len(text) > _LONG_CHARACTERS:
            return await asyncio.to_thread(tokenizer.encode, text, add_special_tokens)
        return tokenizer.encode(text, add_special_tokens)

    async def _encode(
        self, prompt: Prompt, add_special_tokens: bool, tokenizer: ModelTokenizer
    ) -> tuple[int, ...]:
        if not isinstance(prompt, str):
            check_vocabulary(prompt, len(tokenizer.token_bytes), "prompt")
            return prompt
        ids = await self.text(prompt, add_special_tokens, tokenizer)
        if not ids:
            raise EmptyPrompt("the prompt has no tokens", "prompt")
        check_encoded(ids, tokenizer, "prompt")
        return ids


def check_vocabulary(ids: Iterable[int], vocab_size: int, param: str) -> None:
    """Check that the model has each of the tokens, whoever made the ids.

    Raises:
        InvalidTokenId: one of them is not below `vocab_size`.
    """
    worst = max(ids, default=0)
    if worst >= vocab_size:
        raise InvalidTokenId(f"token id {worst} is not below the {vocab_size} ids known", param)


def check_encoded(ids: tuple[int, ...], tokenizer: ModelTokenizer, param: str) -> None:
    """Check ids that the checkpoint's own tokenizer gave: some know more tokens than the model.

    Raises:
        InvalidTokenId: the model lacks one of them; the message shows its text.
    """
    size = len(tokenizer.token_bytes)
    if (worst := max(ids, default=0)) >= size:
        token = f"{tokenizer.token_text(worst)!r} (id {worst})"
        message = f"the text holds the token {token}, which the model's {size} ids do not have"
        raise InvalidTokenId(message, param)


def check_token_fields(call: GenerationCall, vocab_size: int) -> None:
    """Check the ids in fields beside the prompt.

    Raises:
        InvalidTokenId, InvalidValue: one is not in the vocabulary.
    """
    check_vocabulary(call.stop_token_ids, vocab_size, "stop_token_ids")
    check_vocabulary(call.sampling.allowed_token_ids, vocab_size, "allowed_token_ids")
    worst = max((token for token, _ in call.sampling.logit_bias), default=0)
    if worst >= vocab_size:
        message = f"logit_bias: token id {worst} is not below the {vocab_size} ids known"
        raise InvalidValue(message, "logit_bias")


def bad_word_ids(words: Iterable[str], tokenizer: ModelTokenizer) -> tuple[tuple[int, ...], ...]:
    """Spell each word in tokens, at the start of a text and after a space.

    Raises:
        InvalidTokenId: a word has a token that the model lacks.
    """
    spelled = [
        tokenizer.encode_word(f"{space}{word.lstrip()}") for word in words for space in ("", " ")
    ]
    for ids in spelled:
        check_encoded(ids, tokenizer, "bad_words")
    return tuple(dict.fromkeys(ids for ids in spelled if ids))


def truncate(ids: tuple[int, ...], call: GenerationCall, limit: int) -> tuple[int, ...]:
    """Cut a prompt to what the call keeps of it; -1 leaves room for what is to be generated."""
    if call.truncate is None:
        return ids
    keep = call.truncate if call.truncate > 0 else max(limit - max(call.max_tokens or 1, 1), 1)
    if len(ids) <= keep:
        return ids
    return ids[:keep] if call.keep_left else ids[-keep:]


def room_for(prompt_tokens: int, call: GenerationCall, limit: ContextLimit, param: str) -> int:
    """Say how many tokens may be generated after a prompt, which the field `param` brought.

    Raises:
        ContextLengthExceeded: the prompt, or prompt and `max_tokens` together, are over `limit`.
    """
    room, wanted = limit.tokens - prompt_tokens, call.max_tokens
    if room < 0 or (room == 0 and wanted != 0):
        raise ContextLengthExceeded(
            f"the prompt has {prompt_tokens} tokens; the context limit is {limit}, "
            "and at least one token must be left to generate",
            param,
        )
    if wanted is None:
        return room
    if wanted > room and call.max_tokens_field is not None:
        shown = str(wanted) if wanted < 10**9 else "over 10^9"
        raise ContextLengthExceeded(
            f"the prompt has {prompt_tokens} tokens and {call.max_tokens_field} is {shown}: "
            f"together above the context limit of {limit}",
            call.max_tokens_field,
        )
    return min(wanted, room)
