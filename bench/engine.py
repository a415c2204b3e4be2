"""An engine in a process of its own, as a server has it, for benchmarks that send it requests."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from core.settings import EngineSettings
from core.wire import Ready
from server.engines.client import EngineClient
from server.engines.supervisor import launch_process


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
