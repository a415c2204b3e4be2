"""Shows the KV store: blocks, bytes, rent, and how many more requests would fit."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from core.wire import PoolState, Ready
from telemetry.series.registry import NS, Instruments, Tally

_RECENT_REQUESTS: Final = 256
_PERCENTILES: Final = {"p50": 0.50, "p95": 0.95}


class MemoryMeters:
    """Headroom counts cached blocks as room: what the prefix index keeps can be evicted."""

    def __init__(self, make: Instruments) -> None:
        self._make = make
        self._blocks = make.gauges("kv_blocks", "state")
        self._bytes = make.gauges("kv_bytes", "state")
        self._per_token = make.gauge("kv_bytes_per_token")
        self._headroom = make.gauges("kv_headroom_requests", "size")
        self._rents: dict[str, Tally] = {}  # bounded: the ledger bounds tenants
        self._sizes: deque[int] = deque(maxlen=_RECENT_REQUESTS)  # in tokens
        self._block_tokens, self._block_bytes, self._room_blocks = 1, 0, 0

    def ready(self, ready: Ready, kv_bytes_per_token: int) -> None:
        self._block_tokens = ready.block_size
        self._block_bytes = ready.block_size * kv_bytes_per_token
        self._per_token.set(kv_bytes_per_token)
        self._show(ready.num_blocks, 0, 0)

    def pool(self, pool: PoolState) -> None:
        self._show(pool.free_blocks, pool.cached_blocks, pool.referenced_blocks)

    def gone(self) -> None:
        """The engine died and its store with it."""
        self._show(0, 0, 0)

    def rent(self, tenant: str, block_ns: int) -> None:
        if tenant not in self._rents:
            self._rents[tenant] = self._make.tally("kv_block_seconds_total", NS, tenant=tenant)
        self._rents[tenant].add(block_ns)

    def ended(self, tokens: int) -> None:
        """Remember the size of a request that ran, prompt and answer together."""
        self._sizes.append(tokens)

    def refresh(self) -> None:
        sizes = sorted(self._sizes)
        for name, share in _PERCENTILES.items():
            if not sizes:
                self._headroom[name].set(math.nan)
                continue
            tokens = sizes[min(int(share * len(sizes)), len(sizes) - 1)]
            self._headroom[name].set(self._room_blocks // max(-(-tokens // self._block_tokens), 1))

    def _show(self, free: int, cached: int, referenced: int) -> None:
        self._room_blocks = free + cached
        for state, blocks in (("free", free), ("cached", cached), ("referenced", referenced)):
            self._blocks[state].set(blocks)
            self._bytes[state].set(blocks * self._block_bytes)
