"""Runs long pure work beside the event loop, in few threads. It does not know what the work is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

WORKERS: Final = 2  # each may keep a core, and the interpreter lock for 5 ms at a time


class OffLoop:
    """One for all routes: more requests wait, so that the loop and the engine keep their cores."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(WORKERS, "off_loop")

    async def run(self, work: Callable[..., T], *given: object) -> T:
        """Run `work` after what came before it."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *given)

    def close(self) -> None:
        """Take no more; what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
