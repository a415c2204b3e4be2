"""The choices of one HTTP request while they run: tokens become text, and text becomes deltas.

It knows no JSON and no HTTP; `server/answers/bodies.py` shapes what comes out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from core.request import FinishReason, RequestId
from core.wire import Submit
from server.answers.choice import Choice, ChoicePlan, Delta
from server.engines.client import EngineClient


class Generation:
    """All choices of one HTTP request, submitted together and given up together.

    `per_prompt` choices in a row share a prompt, which usage counts once.
    """

    def __init__(
        self,
        client: EngineClient,
        submits: Sequence[Submit],
        plan: Callable[[int], ChoicePlan],
        per_prompt: int,
    ) -> None:
        self._client, self._per_prompt = client, per_prompt
        self._wake = asyncio.Event()
        self.choices = [
            Choice(index, submit, plan(index), self._stopper(submit.id))
            for index, submit in enumerate(submits)
        ]
        for choice in self.choices:
            choice.stream = client.submit(choice.submit, choice.read, self._wake.set)

    @property
    def ids(self) -> list[RequestId]:
        return [choice.submit.id for choice in self.choices]

    @property
    def prompt_tokens(self) -> int:
        return sum(len(choice.submit.prompt_ids) for choice in self._firsts)

    @property
    def completion_tokens(self) -> int:
        return sum(len(choice.token_ids) for choice in self.choices)

    @property
    def cached_tokens(self) -> int:
        return sum(choice.stream.cached_tokens for choice in self._firsts if choice.stream)

    @property
    def _firsts(self) -> list[Choice]:
        return self.choices[:: self._per_prompt]

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

        return stop
