"""A listener that keeps what it hears, for tests of who tells it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from core.errors import ServiceError
from core.request import FinishReason
from core.wire import TokenLogprobs


class FakeListener:
    """`then` runs as each token comes, and says whether the text ends there, and after how many."""

    def __init__(self, then: Callable[[], int | None] = lambda: None) -> None:
        self.tokens: list[int] = []
        self.starts: list[int] = []  # cached tokens, at each
        self.ends: list[FinishReason | ServiceError] = []
        self._wake, self._then = asyncio.Event(), then

    def started(self, cached_tokens: int) -> None:
        self.starts.append(cached_tokens)

    def prompt_scored(self, scored: TokenLogprobs) -> None:
        raise AssertionError("nobody asked for it")

    def token(self, token: int, logprobs: TokenLogprobs | None) -> int | None:
        self._wake.set()
        self.tokens.append(token)
        return self._then()

    def ended(self, reason: FinishReason) -> None:
        self.ends.append(reason)
        self._wake.set()

    def failed(self, error: ServiceError) -> None:
        self.ends.append(error)
        self._wake.set()

    async def news(self) -> None:
        """Wait for a token or the end."""
        await self._wake.wait()
        self._wake.clear()

    async def end(self) -> FinishReason | ServiceError:
        """Wait for the one end."""
        while not self.ends:
            await self.news()
        (end,) = self.ends
        return end
