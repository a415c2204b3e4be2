"""Shows the KV store: blocks, bytes, who holds them, and how many more requests would fit."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from core.wire import PoolState, Ready
from telemetry.bill.entry import Entry
from telemetry.books.accounts import Booked
from telemetry.series.registry import NS, Counter, Instruments

_RECENT_REQUESTS: Final = 256
_PERCENTILES: Final = {"p50": 0.50, "p95": 0.95}


class MemorySeries:
    """Headroom counts cached blocks as room: what the prefix index keeps can be evicted."""

    def __init__(self, make: Instruments) -> None:
        self._make = make
        self._blocks = make.gauges("kv_blocks", "state")
        self._bytes = make.gauges("kv_bytes", "state")
        self._per_token = make.gauge("kv_bytes_per_token")
        self._headroom = make.gauges("kv_headroom_requests", "size")
        self._held: dict[str, Counter] = {}  # bounded: the ledger bounds tenants
        self._sizes: deque[int] = deque(maxlen=_RECENT_REQUESTS)  # in tokens
        self._block_tokens, self._block_bytes = 1, 0

    def ready(self, ready: Ready, kv_bytes_per_token: int) -> None:
        self._block_tokens = ready.block_size
        self._block_bytes = ready.block_size * kv_bytes_per_token
        self._per_token.set(kv_bytes_per_token)

    def take(self, bursts: Sequence[Booked]) -> None:
        for facts, _ in bursts:
            for entry, ns in zip(facts.entries, facts.block_ns, strict=True):
                self._counter_of(entry.tenant).inc(ns)
            self.ended(facts.ended)

    def ended(self, entries: Iterable[Entry]) -> None:
        """Remember the sizes of requests that held blocks, prompt and answer together."""
        self._sizes += [
            e.prompt_tokens + e.tokens for e in entries if e.blocks_since_ns is not None
        ]

    def _counter_of(self, tenant: str) -> Counter:
        if tenant not in self._held:
            self._held[tenant] = self._make.counter("kv_block_seconds_total", NS, tenant=tenant)
        return self._held[tenant]

    def refresh(self, pool: PoolState) -> None:
        """Show what the store holds, and how many requests of recent sizes still fit."""
        states = (
            ("free", pool.free_blocks),
            ("cached", pool.cached_blocks),
            ("referenced", pool.referenced_blocks),
        )
        for state, blocks in states:
            self._blocks[state].set(blocks)
            self._bytes[state].set(blocks * self._block_bytes)
        room_blocks, sizes = pool.free_blocks + pool.cached_blocks, sorted(self._sizes)
        for name, share in _PERCENTILES.items():
            if not sizes:
                self._headroom[name].set(math.nan)
                continue
            tokens = sizes[min(int(share * len(sizes)), len(sizes) - 1)]
            self._headroom[name].set(room_blocks // max(-(-tokens // self._block_tokens), 1))
