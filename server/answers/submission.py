"""From one validated request to its generations: what the engine is told, how answers are read."""

from __future__ import annotations

import codecs
import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from core.errors import InvalidValue
from core.request import RequestId, SamplingParams
from core.wire import Submit
from server.answers.bodies import ChatShape, CompletionShape, Shape
from server.answers.choice import ChoicePlan
from server.answers.logprobs import LogprobWriter
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


@dataclass(frozen=True, slots=True)
class Submission:
    """All choices of one request: index = prompt's index × n + choice's index.

    `draw_seed` gives a seed to each prompt of a request that brings none.
    """

    call: GenerationCall
    prompts: Sequence[Prompted]
    tenant: str
    tokenizer: ModelTokenizer
    eos_token_ids: tuple[int, ...]
    draw_seed: Callable[[], int]
    bad_words: tuple[tuple[int, ...], ...]  # the call's, in tokens
    _echoes: dict[int, Echo] = field(default_factory=dict)  # by prompt: its choices share it

    @property
    def count(self) -> int:
        return len(self.prompts) * self.call.n

    def shape(self) -> Shape:
        call, writer = self.call, None
        if call.logprobs is not None:
            writer = LogprobWriter(self.tokenizer.shown_bytes, call.logprobs, call.tokens_as_ids)
        return ChatShape(writer) if isinstance(call, ChatCall) else CompletionShape(writer)

    def submits(self, answer_id: str) -> Iterator[Submit]:
        """Build what goes to the engine; a lone generation has the answer's own id.

        Raises:
            InvalidTokenId: a bad word has a token that the model lacks.
            InvalidValue: the fields together allow no token.
        """
        call = self.call
        sampling = replace(call.sampling, bad_words=self.bad_words)
        stops = call.stop_token_ids.union(() if call.ignore_eos else self.eos_token_ids)
        _check_any_left(sampling, stops)
        for at, prompt in enumerate(self.prompts):
            seed = self.draw_seed() if call.seed is None else call.seed
            for child in range(call.n):
                index = at * call.n + child
                yield Submit(
                    id=RequestId(answer_id if self.count == 1 else f"{answer_id}-{index}"),
                    prompt_ids=prompt.ids,
                    max_tokens=prompt.max_tokens,
                    sampling=replace(sampling, seed=child_seed(seed, child)),
                    stop_token_ids=tuple(sorted(stops)),
                    grammar=call.grammar,
                    tenant=self.tenant,
                    cache_salt=call.cache_salt,
                    priority=call.priority,
                )

    def plan(self, answer_id: str, index: int) -> ChoicePlan:
        """Say how the tokens of a choice are read."""
        call = self.call
        at = index // call.n
        if at not in self._echoes:
            self._echoes[at] = self._echo(self.prompts[at])
        echo, offsets = self._echoes[at]
        stops, least = call.stop, call.sampling.min_tokens
        parser = None
        if isinstance(call, ChatCall) and call.conversation.use is not None:
            parser = ToolCallParser(f"call_{answer_id[-24:]}-{index}-")
        return ChoicePlan(
            detokenizer=Detokenizer(self._table, stops, call.keep_stop, least),
            echo=echo,
            echo_offsets=offsets,
            caller_stops=call.stop_token_ids,
            keep_stop=call.keep_stop,
            interval=call.stream_interval,
            scores=call.logprobs is not None,
            parser=parser,
        )

    @property
    def _table(self) -> Sequence[bytes]:
        tokenizer = self.tokenizer
        return tokenizer.token_bytes if self.call.skip_special_tokens else tokenizer.shown_bytes

    def _echo(self, prompt: Prompted) -> Echo:
        """Give an echoed prompt's text, and where in it each token begins if it is scored.

        A text is echoed as it was written: its special tokens show, those put around it do not.
        """
        call = self.call
        if not isinstance(call, CompletionCall) or not call.echo:
            return None, ()
        written = prompt.text is not None
        table = self.tokenizer.shown_bytes if written else self._table
        added = self.tokenizer.added_before if written and call.add_special_tokens else 0
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        pieces, offsets, size = list[str](), list[int](), 0
        for at, token in enumerate(prompt.ids):
            offsets.append(size)
            pieces.append(decoder.decode(table[token]) if at >= added else "")
            size += len(pieces[-1])
        pieces.append(decoder.decode(b"", final=True))
        text = "".join(pieces) if prompt.text is None else prompt.text
        return text, offsets if call.logprobs is not None else ()
