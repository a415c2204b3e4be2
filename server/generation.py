"""The choices of one HTTP request while they run: tokens become text, and text becomes deltas.

It knows no JSON and no HTTP; `server/bodies.py` shapes what comes out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

from core.request import FinishReason, RequestId
from core.wire import Submit
from server.detokenizer import Detokenizer
from server.engine_client import EngineClient, RequestStream


@dataclass(frozen=True, slots=True)
class Delta:
    """New text of one choice, with the tokens that were read since its last delta.

    `finish_reason` is set on the choice's last delta, whose text is empty.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None = None


class Choice:
    """One generation, and the text that it has so far.

    Invariant: `text` is the join of its deltas' texts, whenever they were taken.
    """

    def __init__(
        self, index: int, submit: Submit, detokenizer: Detokenizer, on_stop: Callable[[int], None]
    ) -> None:
        self.index, self.submit = index, submit
        self.token_ids: list[int] = []
        self.stream: RequestStream | None = None
        self._detokenizer, self._on_stop = detokenizer, on_stop
        self._pieces: list[str] = []
        self._taken_pieces = self._taken_tokens = 0
        self.closed = False  # its last delta was taken

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def finish_reason(self) -> str | None:
        """None while it runs; in OpenAI's words afterwards."""
        if self.stream is None or self.stream.reason is None:
            return None
        return FinishReason.STOP if self._detokenizer.stopped else self.stream.reason

    def read(self, token: int) -> None:
        """Take a token; those past a stop string, or past max_tokens, are not the caller's."""
        if self._detokenizer.stopped or len(self.token_ids) >= self.submit.max_tokens:
            return
        self.token_ids.append(token)
        self._pieces.append(self._detokenizer.push(token))
        if self._detokenizer.stopped:
            self._on_stop(len(self.token_ids))

    def take(self) -> Iterator[Delta]:
        """Return what came since the last call: text, then the end.

        Raises:
            ServiceError: the generation failed, or its engine did.
        """
        assert self.stream is not None
        if self.closed:
            return
        if self.stream.error is not None:
            raise self.stream.error
        if self.stream.ended:
            self.closed = True
            self._pieces.append(self._detokenizer.close())
        text = "".join(self._pieces[self._taken_pieces :])
        self._taken_pieces = len(self._pieces)
        if text:
            yield Delta(self.index, text, self._take_tokens())
        if self.closed:
            yield Delta(self.index, "", self._take_tokens(), self.finish_reason)

    def _take_tokens(self) -> tuple[int, ...]:
        tokens = tuple(self.token_ids[self._taken_tokens :])
        self._taken_tokens = len(self.token_ids)
        return tokens


class Generation:
    """All choices of one HTTP request, submitted together and given up together."""

    def __init__(
        self,
        client: EngineClient,
        submits: Sequence[Submit],
        detokenizer: Callable[[], Detokenizer],
        on_stop: Callable[[RequestId, int, FinishReason], None],
    ) -> None:
        self._client, self._on_stop = client, on_stop
        self._wake = asyncio.Event()
        self.choices = [
            Choice(index, submit, detokenizer(), self._stopper(submit.id))
            for index, submit in enumerate(submits)
        ]
        for choice in self.choices:
            choice.stream = client.submit(choice.submit, choice.read, self._wake.set)

    @property
    def ids(self) -> list[RequestId]:
        return [choice.submit.id for choice in self.choices]

    @property
    def prompt_tokens(self) -> int:
        return sum(len(choice.submit.prompt_ids) for choice in self.choices)

    @property
    def completion_tokens(self) -> int:
        return sum(len(choice.token_ids) for choice in self.choices)

    @property
    def cached_tokens(self) -> int:
        return sum(choice.stream.cached_tokens for choice in self.choices if choice.stream)

    async def deltas(self) -> AsyncIterator[Delta]:
        """Yield text as it comes, until every choice has ended.

        Raises:
            ServiceError: a choice failed; the others are not worth going on with.
        """
        running = list(self.choices)
        while running:
            await self._wake.wait()
            self._wake.clear()
            for choice in running:
                for delta in choice.take():
                    yield delta
            running = [choice for choice in running if not choice.closed]

    async def finish(self) -> None:
        """Wait for every choice.

        Raises:
            ServiceError: a choice failed.
        """
        async for _ in self.deltas():
            pass

    def close(self) -> None:
        """Give up what still runs."""
        for id in self.ids:
            self._client.abort(id)

    def _stopper(self, id: RequestId) -> Callable[[int], None]:
        def stop(n_tokens: int) -> None:
            self._client.finish(id, n_tokens, FinishReason.STOP)
            self._on_stop(id, n_tokens, FinishReason.STOP)

        return stop
