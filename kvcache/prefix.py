"""What blocks hold, by content: the prefix index. It knows neither references nor requests' lives.

A block's key is a SHA-256 over the key of the block before it and its tokens; a chain begins with
its namespace, so that tenants and cache salts never meet.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import sha256
from itertools import islice
from typing import Final

from core.request import BlockId, Request

_TOKEN: Final = "Q"  # 8 bytes: any token id, on any machine


def chain_keys(request: Request, block_size: int, count: int) -> Sequence[bytes]:
    """Give the keys of the request's first `count` blocks of known tokens.

    Mutates: `request.block_keys`, which remembers them: known tokens never change.
    Cost: O(tokens of blocks that it was not asked for before).
    """
    keys = request.block_keys
    while len(keys) < count:
        start = len(keys) * block_size
        tokens = [request.token_at(position) for position in range(start, start + block_size)]
        parent = keys[-1] if keys else _namespace(request)
        keys.append(sha256(parent + array(_TOKEN, tokens).tobytes()).digest())
    return keys


def _namespace(request: Request) -> bytes:
    tenant, salt = request.tenant.encode(), request.cache_salt.encode()
    return sha256(len(tenant).to_bytes(8, "big") + tenant + salt).digest()


class PrefixIndex:
    """Content to block, and back.

    Invariant: an entry's block is full and never written again while it is here; the block of its
        parent's key is here too, and is the one that precedes it in every block table.
    """

    def __init__(self) -> None:
        self._blocks: dict[bytes, BlockId] = {}
        self._keys: dict[BlockId, bytes] = {}

    def __contains__(self, block: BlockId) -> bool:
        return block in self._keys

    def longest_chain(self, keys: Sequence[bytes], limit: int) -> list[BlockId]:
        """Find the blocks of the longest run of leading keys, at most `limit`.

        Cost: O(blocks found).
        """
        found: list[BlockId] = []
        for key in islice(keys, limit):
            block = self._blocks.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def add(self, key: bytes, block: BlockId) -> bool:
        """Enter a full block; False, and nothing changes, where another holds the same content."""
        if key in self._blocks:
            return False
        self._blocks[key], self._keys[block] = block, key
        return True

    def drop(self, block: BlockId) -> None:
        del self._blocks[self._keys.pop(block)]
