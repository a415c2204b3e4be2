"""From a validated call to token ids, within the vocabulary and the context limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from core.errors import EmptyPrompt, InvalidTokenId, InvalidValue
from core.inputs.quantities import parse_bytes
from core.settings import HttpSettings
from server.contract.conversation import ChatPrompt
from server.contract.prompt_forms import Prompt
from server.contract.validation import ChatCall, CompletionCall, GenerationCall
from server.limits.off_loop import OffLoop
from server.limits.text_bound import ContextLimit, TextLimit
from server.templates.pool import Templates
from server.text.tokenizer import ModelTokenizer

_LONG_CHARACTERS: Final = 4_000  # about 4 ms of encoding: more goes to a thread
MAX_SPELLINGS: Final = 1024  # of all bad words: each is looked for at each token, in a microsecond
_MARK_BYTES: Final = 4  # of UTF-8, for a special token of at least one


@dataclass(frozen=True, slots=True)
class Prompted:
    """One prompt to go on from, how many tokens may follow, and its text where it was one."""

    ids: tuple[int, ...]
    max_tokens: int
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Prompts:
    """What a request's texts became: its prompts, and its `bad_words` in tokens."""

    list: tuple[Prompted, ...]
    bad_words: tuple[tuple[int, ...], ...]


class PromptEncoder:
    """Encodes prompts and conversations. A text that cannot fit is refused before it is encoded.

    Cost: what is longer than `_LONG_CHARACTERS` is encoded in a thread, without the interpreter
    lock; templates run in processes.
    """

    def __init__(self, templates: Templates, off_loop: OffLoop, http: HttpSettings) -> None:
        self._templates, self._off_loop = templates, off_loop
        self._most_bytes = parse_bytes(http.max_text, "--max-text")

    async def completion(
        self, call: CompletionCall, tokenizer: ModelTokenizer, limit: ContextLimit
    ) -> Prompts:
        """Encode each prompt of the list.

        Raises:
            InvalidTokenId, EmptyPrompt, ContextLengthExceeded, InvalidValue: one of them is not
                usable, so none is run.
        """
        most = self._limit(tokenizer, limit, call)
        for prompt in call.prompts:
            if isinstance(prompt, str):
                most.check(prompt, "prompt")
            elif call.truncate is None:
                room_for(len(prompt), call, limit, "prompt")
        size = sum(map(len, call.prompts))
        given = (call, tokenizer, limit)
        if size > _LONG_CHARACTERS or call.bad_words:
            return await self._off_loop.run(_completion, *given)
        return _completion(*given)

    async def chat(self, call: ChatCall, tokenizer: ModelTokenizer, limit: ContextLimit) -> Prompts:
        """Encode the conversation of a chat.

        Raises:
            TemplateFailed: the model has no template, or it refused the messages.
            EmptyPrompt, ContextLengthExceeded, InvalidValue: it has no tokens, or too many.
            InvalidTokenId: it has a token that the model lacks.
        """
        talk, most = call.conversation, self._limit(tokenizer, limit, call)
        whole = await self._render(talk, tokenizer, most)
        if len(whole) > _LONG_CHARACTERS:
            await self._off_loop.run(check_encoded, whole, tokenizer, "messages")
        else:
            check_encoded(whole, tokenizer, "messages")
        ids = truncate(whole, call, limit.tokens)
        if not ids:
            raise EmptyPrompt("the rendered conversation has no tokens", "messages")
        prompted = Prompted(ids, room_for(len(ids), call, limit, "messages"))
        if not call.bad_words:
            return Prompts((prompted,), ())
        words = await self._off_loop.run(bad_word_ids, call.bad_words, tokenizer)
        return Prompts((prompted,), words)

    async def conversation(self, talk: ChatPrompt, tokenizer: ModelTokenizer) -> tuple[int, ...]:
        """Render and encode, whatever the context holds.

        Raises:
            TemplateFailed: there is no template, or it refused the messages.
            InvalidValue: it is above the operator's limit.
        """
        return await self._render(talk, tokenizer, TextLimit(self._most_bytes))

    async def text(
        self, text: str, add_special_tokens: bool, tokenizer: ModelTokenizer
    ) -> tuple[int, ...]:
        """Encode a text, whatever the context holds.

        Raises:
            InvalidValue: it is above the operator's limit.
        """
        TextLimit(self._most_bytes).check(text, "prompt")
        if len(text) > _LONG_CHARACTERS:
            return await self._off_loop.run(tokenizer.encode, text, add_special_tokens)
        return tokenizer.encode(text, add_special_tokens)

    def _limit(
        self, tokenizer: ModelTokenizer, limit: ContextLimit, call: GenerationCall
    ) -> TextLimit:
        """Say how long a text may be; one to be truncated may be longer than the context."""
        longest = tokenizer.longest_token_bytes
        if longest is not None and call.truncate is None:
            held_bytes = limit.tokens * longest
            if held_bytes <= self._most_bytes:
                return TextLimit(held_bytes, limit)
        return TextLimit(self._most_bytes)

    async def _render(
        self, talk: ChatPrompt, tokenizer: ModelTokenizer, most: TextLimit
    ) -> tuple[int, ...]:
        if talk.long:
            script = await self._off_loop.run(tokenizer.script, talk)
        else:
            script = tokenizer.script(talk)
        # a mark may be longer than its token, and what follows a continued message is cut off
        loose = script.marked or talk.continue_final
        rendered = (
            replace(most, bytes=_MARK_BYTES * most.bytes + _LONG_CHARACTERS) if loose else most
        )
        given = (script.variables, rendered, talk.long, script.marks)
        if script.template is not None:
            text = await self._templates.render_own(script.template, *given)
        else:
            assert talk.template is not None  # else `script` has refused it
            text = await self._templates.render_callers(talk.template, tokenizer.names, *given)
        work = (text, script.marked, talk, most)
        if len(text) > _LONG_CHARACTERS:
            return await self._off_loop.run(tokenizer.encode_script, *work)
        return tokenizer.encode_script(*work)


def _completion(call: CompletionCall, tokenizer: ModelTokenizer, limit: ContextLimit) -> Prompts:
    prompted = []
    for prompt in call.prompts:
        whole = _encoded(prompt, call.add_special_tokens, tokenizer)
        ids = truncate(whole, call, limit.tokens)
        room = room_for(len(ids), call, limit, "prompt")
        text = prompt if isinstance(prompt, str) and ids == whole else None
        prompted.append(Prompted(ids, room, text))
    words = bad_word_ids(call.bad_words, tokenizer) if call.bad_words else ()
    return Prompts(tuple(prompted), words)


def _encoded(
    prompt: Prompt, add_special_tokens: bool, tokenizer: ModelTokenizer
) -> tuple[int, ...]:
    if not isinstance(prompt, str):
        check_vocabulary(prompt, len(tokenizer.token_bytes), "prompt")
        return prompt
    ids = tokenizer.encode(prompt, add_special_tokens)
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


def bad_word_ids(words: Sequence[str], tokenizer: ModelTokenizer) -> tuple[tuple[int, ...], ...]:
    """Spell each word in tokens: the tokenizer's own way, and the others, up to a share of them.

    A word may stand at the start of a text or after a space, which a token may hold as well.

    Raises:
        InvalidTokenId: a word has a token that the model lacks.
    """
    bare = [word.lstrip() for word in words]
    spelled = [tokenizer.encode_word(f"{space}{word}") for word in bare for space in ("", " ")]
    for ids in spelled:
        check_encoded(ids, tokenizer, "bad_words")
    share, ways = MAX_SPELLINGS // (2 * max(len(words), 1)), tokenizer.spellings
    for word in bare:
        spelled += islice(ways.of(word.encode()), share)
        spelled += islice(ways.of(f" {word}".encode(), at_once=2), share)
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
        what = f"the {param} came to {prompt_tokens} tokens, and one at least is to be generated"
        limit.refuse(what, param)
    if wanted is None:
        return room
    if wanted > room and call.max_tokens_field is not None:
        shown = str(wanted) if wanted < 10**9 else "over 10^9"
        all_told = str(prompt_tokens + wanted) if wanted < 10**9 else "over 10^9"
        limit.refuse(
            f"you requested {all_told} tokens ({prompt_tokens} in the {param}, {shown} in the "
            f"completion). Reduce the {param} or {call.max_tokens_field}",
            call.max_tokens_field,
        )
    return min(wanted, room)
