"""Shows the KV store: blocks, bytes, who holds them, and how many more requests would fit."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

from core.wire import PoolState, Ready
from costmodel.split import sums_by
from telemetry.bill.entry import Entry
from telemetry.books.accounts import BurstAccounts
from telemetry.books.facts import Facts
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
        self._block_tokens, self._block_bytes, self._room_blocks = 1, 0, 0

    def ready(self, ready: Ready, kv_bytes_per_token: int) -> None:
        self._block_tokens = ready.block_size
        self._block_bytes = ready.block_size * kv_bytes_per_token
        self._per_token.set(kv_bytes_per_token)
        self._show(ready.num_blocks, 0, 0)

    def pool(self, pool: PoolState) -> None:
        self._show(pool.free_blocks, pool.cached_blocks, pool.referenced_blocks)

    def gone(self) -> None:
        """Show an empty store: the engine died and its store with it."""
        self._show(0, 0, 0)

    def take(self, facts: Facts, accounts: BurstAccounts) -> None:
        block_ns = sums_by(facts.requests, facts.block_ns, len(facts.entries)).tolist()
        for entry, ns in zip(facts.entries, block_ns, strict=True):
            self._counter_of(entry.tenant).inc(ns)
        self.ended(facts.ended)
        self.pool(facts.reports[-1].pool)

    def ended(self, entries: Iterable[Entry]) -> None:
        """Remember the sizes of requests that held blocks, prompt and answer together."""
        self._sizes += [
            e.prompt_tokens + e.tokens for e in entries if e.blocks_since_ns is not None
        ]

    def _counter_of(self, tenant: str) -> Counter:
        if tenant not in self._held:
            self._held[tenant] = self._make.counter("kv_block_seconds_total", NS, tenant=tenant)
        return self._held[tenant]

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
