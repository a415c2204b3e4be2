"""One HTTP request's answer: its choices while they run, its stream, its whole, its bill.

It knows no HTTP. `server/answers/shapes.py` says what the two routes' bodies look like.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, TypeVar

from msgspec import UNSET, UnsetType

from core.request import RequestId
from server.answers.bodies import (
    AnyChoice,
    Body,
    CachedTokens,
    ChatCompletion,
    Chunk,
    ChunkChoice,
    Completion,
    ToldUsage,
    Usage,
    WholeChoice,
)
from server.answers.choice import Choice, Delta
from server.answers.choice_maker import ChoiceMaker
from server.answers.logprobs import LogprobWriter
from server.answers.served import Served
from server.answers.shapes import ChatShape, CompletionShape, Shape
from server.contract.validation import ChatCall, GenerationCall
from server.engines.client import EngineClient
from server.engines.observer import unharmed
from server.limits.off_loop import OffLoop
from server.text.prompts import Prompts
from telemetry.bill.cost import CostObject

B = TypeVar("B", bound=Body)

_MANY_SCORED: Final = 256  # tokens with logprobs: some milliseconds of writing


class Answer:
    """All choices of one HTTP request, submitted together and given up together.

    A choice's index = its prompt's index × n + its place among the prompt's n. `draw_seed` gives a
    seed to each prompt of a call that brings none. Submit it once, and close it whatever comes.

    Raises:
        InvalidValue: the fields together allow no token.
    """

    def __init__(
        self,
        call: GenerationCall,
        prompts: Prompts,
        tenant: str,
        served: Served,
        draw_seed: Callable[[], int],
    ) -> None:
        self._call, self._tenant, self._served = call, tenant, served
        shape = ChatShape if isinstance(call, ChatCall) else CompletionShape
        self._shape: Shape = shape(self._writer(call.logprobs))
        self._id, self._created = f"{shape.id_prefix}{uuid.uuid4().hex}", int(time.time())
        self._fingerprint = served.fingerprint
        self._news = asyncio.Event()
        eos_token_ids = served.ready.model.eos_token_ids
        self._maker = ChoiceMaker(call, prompts.bad_words, served.tokenizer, eos_token_ids)
        self._prompts, self._draw_seed = prompts.list, draw_seed
        self.choices: list[Choice] = []  # made when they are submitted
        self._sent_tokens = 0
        self._begun: set[int] = set()
        self._ended = 0

    @property
    def ids(self) -> list[RequestId]:
        return [choice.submit.id for choice in self.choices]

    def submit(self, client: EngineClient, received_ns: int) -> None:
        """Make the choices, send them, and then open their accounts: tokens before books."""
        self._client = client
        given = (self._prompts, self._tenant, self._draw_seed, self._news.set)
        self.choices = list(self._maker.choices(self._id, *given))
        for choice in self.choices:
            client.submit(choice.submit, choice)
        with unharmed("a request's start"):
            for choice in self.choices:
                self._served.telemetry.on_received(
                    choice.submit.id,
                    len(choice.submit.prompt_ids),
                    self._tenant,
                    received_ns=received_ns,
                    shares_prompt=choice.index % self._call.n > 0,
                    has_grammar=choice.submit.grammar is not None,
                )

    async def deltas(self) -> AsyncIterator[Delta]:
        """Yield text as it comes, until every choice has ended.

        Raises:
            ServiceError: a choice failed; the others are not worth going on with.
        """
        running = list(self.choices)
        while running:
            await self._news.wait()
            self._news.clear()
            for choice in running:
                for delta in choice.take():
                    yield delta
            running = [choice for choice in running if not choice.closed]

    @property
    def is_long(self) -> bool:
        """Whether it has so many logprobs that to write them would hold up the streams."""
        scored = (len(one.scored) + len(one.prompt_logprobs) for one in self.choices)
        return sum(scored) > _MANY_SCORED

    async def whole(self, off_loop: OffLoop) -> Completion | ChatCompletion:
        """Wait for every choice, and write them all, a long answer off the event loop.

        Raises:
            ServiceError: a choice failed.
        """
        async for _ in self.deltas():
            pass
        shape = self._shape
        choices = await off_loop.run(self._written) if self.is_long else self._written()
        body = self._body(shape.body, shape.object, choices, self._usage(self._sampled))
        body.cost = self._cost()
        return body

    def _written(self) -> list[WholeChoice]:
        return [self._whole(choice) for choice in self.choices]

    async def stream(self) -> AsyncIterator[Chunk]:
        """Write each delta as it comes.

        The bill is asked for once, after the last delta: it goes into the usage chunk where usage
        was asked for, else into the chunk with the last finish reason.

        Raises:
            ServiceError: a choice failed.
        """
        async for delta in self.deltas():
            for chunk in self._chunks(delta):
                yield chunk
        if self._call.include_usage:
            chunk = self._chunk([])
            chunk.usage, chunk.cost = self._usage(self._sampled), self._cost()
            yield chunk

    def bill(self) -> CostObject | None:
        """Say what it cost so far, and what took how long; None where the books fail."""
        with unharmed("a bill"):
            return self._served.telemetry.cost(self.ids)
        return None

    def close(self) -> None:
        """Give up what still runs, and let go of the accounts."""
        for id in self.ids:
            self._client.abort(id)
        with unharmed("a response's end"):
            self._served.telemetry.forget(self.ids)

    @property
    def _sampled(self) -> int:
        return sum(len(choice.token_ids) for choice in self.choices)

    def _usage(self, completion_tokens: int) -> Usage:
        """Count as OpenAI does: a prompt once, and every sampled token that was kept."""
        firsts = self.choices[:: self._call.n]
        prompt_tokens = sum(len(choice.submit.prompt_ids) for choice in firsts)
        cached = CachedTokens(sum(choice.cached_tokens for choice in firsts))
        return Usage(prompt_tokens, completion_tokens, prompt_tokens + completion_tokens, cached)

    def _cost(self) -> CostObject | UnsetType:
        bill = self.bill() if self._served.tells_cost else None
        return UNSET if bill is None else bill

    def _chunks(self, delta: Delta) -> Iterator[Chunk]:
        first = delta.index not in self._begun
        self._begun.add(delta.index)
        *before, last = self._shape.chunk_choices(delta, first)
        for choice in before:  # opens the choice, before any of its tokens
            yield self._chunk([choice])
        self._sent_tokens += len(delta.token_ids)
        self._ended += delta.finish_reason is not None
        if self._call.return_token_ids:
            if first:
                last.prompt_token_ids = self.choices[delta.index].submit.prompt_ids
            last.token_ids = delta.token_ids
        chunk = self._chunk([last])
        if self._ended == len(self.choices) and not self._call.include_usage:
            chunk.cost = self._cost()
        yield chunk

    def _chunk(self, choices: Sequence[ChunkChoice]) -> Chunk:
        usage: ToldUsage = None if self._call.include_usage else UNSET
        if self._call.running_usage:
            usage = self._usage(self._sent_tokens)
        return self._body(Chunk, self._shape.chunk_object, choices, usage)

    def _whole(self, choice: Choice) -> WholeChoice:
        """Write a finished choice, with what was asked for beyond OpenAI's fields."""
        written, prompt_ids = self._shape.choice(choice), choice.submit.prompt_ids
        if self._call.return_token_ids:
            written.prompt_token_ids, written.token_ids = prompt_ids, choice.token_ids
        if (writer := self._writer(self._call.prompt_logprobs)) is not None:
            written.prompt_logprobs = writer.prompt(choice.prompt_logprobs, len(prompt_ids))
        return written

    def _writer(self, top: int | None) -> LogprobWriter | None:
        shown, as_ids = self._served.tokenizer.shown_bytes, self._call.tokens_as_ids
        return None if top is None else LogprobWriter(shown, top, as_ids)

    def _body(
        self, kind: type[B], object: str, choices: Sequence[AnyChoice], usage: ToldUsage
    ) -> B:
        return kind(
            id=self._id,
            object=object,
            created=self._created,
            model=self._served.name,
            system_fingerprint=self._fingerprint,
            choices=choices,
            usage=usage,
        )
