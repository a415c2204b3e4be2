"""From a call and its prompts to choices: what the engine is told of each, how its tokens read."""

from __future__ import annotations

import codecs
import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from core.errors import InvalidValue
from core.request import RequestId, SamplingParams
from core.wire import Submit
from server.answers.choice import Choice, ChoicePlan
from server.contract.validation import ChatCall, CompletionCall, GenerationCall
from server.text.detokenizer import Detokenizer
from server.text.prompts import Prompted
from server.text.tokenizer import ModelTokenizer
from server.text.tool_parser import ToolCallParser

Echo = tuple[str | None, Sequence[int]]  # a prompt's text, and where its tokens begin


def child_seed(seed: int, index: int) -> int:
    """Derive the seed of choice `index` of a prompt; the first has the request's own."""
    if index == 0:
        return seed
    digest = hashlib.blake2b(struct.pack(">qq", seed, index), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _check_any_left(sampling: SamplingParams, stops: frozenset[int]) -> None:
    """Refuse an allow-list of which nothing is left at the first token."""
    banned = {word[0] for word in sampling.bad_words if len(word) == 1}
    if sampling.min_tokens > 0:
        banned |= stops
    if sampling.allowed_token_ids and banned.issuperset(sampling.allowed_token_ids):
        message = "allowed_token_ids leaves no token: bad_words and min_tokens rule out the rest"
        raise InvalidValue(message, "allowed_token_ids")


class ChoiceMaker:
    """Makes each choice of a call together with what the engine is told of it.

    Raises:
        InvalidValue: the fields together allow no token.
    """

    def __init__(
        self,
        call: GenerationCall,
        bad_words: tuple[tuple[int, ...], ...],
        tokenizer: ModelTokenizer,
        eos_token_ids: tuple[int, ...],
    ) -> None:
        self._call, self._tokenizer = call, tokenizer
        self._sampling = replace(call.sampling, bad_words=bad_words)
        self._stops = call.stop_token_ids.union(() if call.ignore_eos else eos_token_ids)
        _check_any_left(self._sampling, self._stops)

    def choices(
        self,
        answer_id: str,
        prompts: Sequence[Prompted],
        tenant: str,
        draw_seed: Callable[[], int],
        on_news: Callable[[], None],
    ) -> Iterator[Choice]:
        """Make n choices of each prompt; a lone one has the answer's own id."""
        call = self._call
        for at, prompt in enumerate(prompts):
            seed = draw_seed() if call.seed is None else call.seed
            echo = self._echo(prompt)
            for child in range(call.n):
                index = at * call.n + child
                lone = len(prompts) * call.n == 1
                submit = Submit(
                    id=RequestId(answer_id if lone else f"{answer_id}-{index}"),
                    prompt_ids=prompt.ids,
                    max_tokens=prompt.max_tokens,
                    sampling=replace(self._sampling, seed=child_seed(seed, child)),
                    stop_token_ids=tuple(sorted(self._stops)),
                    grammar=call.grammar,
                    tenant=tenant,
                    cache_salt=call.cache_salt,
                    priority=call.priority,
                )
                plan = self._plan(f"call_{answer_id[-24:]}-{index}-", echo)
                yield Choice(index, submit, plan, on_news)

    def _plan(self, call_ids: str, echo: Echo) -> ChoicePlan:
        """Say how the tokens of a choice are read; `call_ids` begins those of its tool calls."""
        call = self._call
        stops, least = call.stop, call.sampling.min_tokens
        uses_tools = isinstance(call, ChatCall) and call.conversation.use is not None
        return ChoicePlan(
            detokenizer=Detokenizer(self._table, stops, call.keep_stop, least),
            echo=echo[0],
            echo_offsets=echo[1],
            caller_stops=call.stop_token_ids,
            keep_stop=call.keep_stop,
            interval=call.stream_interval,
            scores=call.logprobs is not None,
            parser=ToolCallParser(call_ids, call.grammar is not None) if uses_tools else None,
        )

    @property
    def _table(self) -> Sequence[bytes]:
        tokenizer = self._tokenizer
        return tokenizer.token_bytes if self._call.skip_special_tokens else tokenizer.shown_bytes

    def _echo(self, prompt: Prompted) -> Echo:
        """Give an echoed prompt's text, and where in it each token begins if it is scored.

        A text is echoed as it was written: its special tokens show, those put around it do not.
        """
        call = self._call
        if not isinstance(call, CompletionCall) or not call.echo:
            return None, ()
        written = prompt.text is not None
        table = self._tokenizer.shown_bytes if written else self._table
        added = self._tokenizer.added_before if written and call.add_special_tokens else 0
        if call.logprobs is None and prompt.text is not None:
            return prompt.text, ()
        if call.logprobs is None:
            return b"".join(map(table.__getitem__, prompt.ids)).decode("utf-8", "replace"), ()
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        pieces, offsets, size = list[str](), list[int](), 0
        for at, token in enumerate(prompt.ids):
            offsets.append(size)
            pieces.append(decoder.decode(table[token]) if at >= added else "")
            size += len(pieces[-1])
        pieces.append(decoder.decode(b"", final=True))
        return ("".join(pieces) if prompt.text is None else prompt.text), offsets
