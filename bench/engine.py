"""An engine in a process of its own, as a server has it, for benchmarks that send it requests."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from core.errors import ServiceError
from core.request import FinishReason
from core.settings import EngineSettings
from core.wire import Ready, TokenLogprobs
from server.engines.client import EngineClient
from server.engines.supervisor import launch_process


class QuietListener:
    """Reads no token; it keeps the end, and tells of it."""

    def __init__(self, on_end: Callable[[], None] = lambda: None) -> None:
        self.end: FinishReason | ServiceError | None = None
        self._on_end = on_end

    def started(self, cached_tokens: int) -> None: ...
    def prompt_scored(self, scored: TokenLogprobs) -> None: ...
    def token(self, token: int, logprobs: TokenLogprobs | None) -> int | None:
        return None

    def ended(self, reason: FinishReason) -> None:
        self.end = reason
        self._on_end()

    def failed(self, error: ServiceError) -> None:
        self.end = error
        self._on_end()


@asynccontextmanager
async def running(settings: EngineSettings) -> AsyncIterator[tuple[EngineClient, Ready]]:
    """Start an engine; it ends with the block, however that ends.

    Raises:
        ModelError, SettingsError: it cannot use what it was told.
    """
    ours, theirs = socket.socketpair()
    process = await launch_process(theirs)
    theirs.close()
    client = await EngineClient.connect(ours)
    try:
        yield client, await client.start(settings)
    finally:
        client.close()
        await process.wait()
