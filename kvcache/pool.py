"""Which blocks belong to whom. No tensors live here: a block is a number and a reference count."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from core.request import BlockId, Request
from kvcache.prefix import PrefixIndex, chain_keys


class BlockPool:
    """Hand out blocks, take them back, and find those that hold a request's leading tokens.

    A block is free (holds nothing of use), cached (holds a known prefix, in nobody's table) or
    referenced. The free list is a stack: the block released last is handed out first, while its
    memory is still in the processor's caches, and slots that were never needed never become
    resident. Cached blocks are handed out when no free one is left, least recently used first; a
    table is released from its end, so that leaves go before their parents.

    Invariant: `free_blocks + cached_blocks + referenced_blocks == num_blocks`; a block's reference
        count is the number of block tables that name it; a table that names a block of the prefix
        index names all its ancestors before it.
    """

    def __init__(self, num_blocks: int, block_size: int, prefix_caching: bool = True) -> None:
        assert num_blocks > 0, "a pool needs blocks"
        assert block_size > 0, "a block needs slots"
        self.num_blocks, self.block_size = num_blocks, block_size
        self._prefix_caching = prefix_caching
        self._free = [BlockId(number) for number in reversed(range(num_blocks))]
        self._cached: OrderedDict[BlockId, None] = OrderedDict()  # the next to evict comes first
        self._references = [0] * num_blocks
        self._index = PrefixIndex()
        self.shared_blocks = 0  # in two tables or more

    @property
    def capacity_tokens(self) -> int:
        return self.num_blocks * self.block_size

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def cached_blocks(self) -> int:
        """Blocks that nobody references and that still hold something worth keeping."""
        return len(self._cached)

    @property
    def referenced_blocks(self) -> int:
        return self.num_blocks - self.free_blocks - self.cached_blocks

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    # ── to hand out ───────────────────────────────────────────────────────────────────────────

    def grow(self, request: Request, length: int) -> bool:
        """Give `request` room for its next `length` tokens: all of them, or nothing changes.

        Cost: O(blocks handed out).
        Returns:
            False when too few blocks are unreferenced. That is pressure, not an error: the caller
            preempts somebody and asks again, or waits.
        """
        held = len(request.block_table)
        missing = max(self.blocks_for(request.computed_tokens + length) - held, 0)
        if missing > self.free_blocks + self.cached_blocks:
            return False
        for _ in range(missing):
            block = self._take()
            self._references[block] += 1
            request.block_table.append(block)
        return True

    def _take(self) -> BlockId:
        if self._free:
            return self._free.pop()
        block, _ = self._cached.popitem(last=False)
        self._index.drop(block)
        return block

    def find(self, request: Request) -> list[BlockId]:
        """Find the blocks that hold its leading known tokens; a token at least is left to compute.

        A request for its prompt's logprobs needs every row of it computed: nothing is found.
        Cost: O(blocks found), and the hash of its tokens the first time.
        """
        if not self._prefix_caching or request.sampling.prompt_logprobs is not None:
            return []
        limit = (request.known_tokens - 1) // self.block_size
        return self._index.longest_chain(chain_keys(request, self.block_size, limit), limit)

    def admit(
        self, request: Request, found: Sequence[BlockId], length: int, spare_blocks: int = 0
    ) -> bool:
        """Give `request` the blocks that `find` just found, and room for `length` tokens after.

        Mutates: its table, and its counts of computed and cached tokens; or nothing at all.
        Returns: False when fewer than `spare_blocks` would stay unreferenced.
        """
        assert not request.block_table, f"{request.id} has blocks already"
        idle = sum(1 for block in found if not self._references[block])
        missing = self.blocks_for(length)
        if missing + idle + spare_blocks > self.free_blocks + self.cached_blocks:
            return False
        for block in found:
            self._reference(block)
        request.block_table.extend(found)
        request.indexed_blocks = len(found)
        request.computed_tokens = len(found) * self.block_size
        request.cached_tokens += request.computed_tokens
        return self.grow(request, length)

    def _reference(self, block: BlockId) -> None:
        if not self._references[block]:
            del self._cached[block]
        self._references[block] += 1
        self.shared_blocks += self._references[block] == 2

    def publish(self, request: Request) -> None:
        """Let others find the blocks that `request` has filled: they are never written again.

        Where another block holds the same content already, this one and all after it stay private.
        Cost: O(blocks filled since the last time, and their tokens' hash).
        """
        full = request.computed_tokens // self.block_size
        if not self._prefix_caching or request.indexed_blocks == full:
            return
        keys = chain_keys(request, self.block_size, full)
        while request.indexed_blocks < full:
            position = request.indexed_blocks
            if not self._index.add(keys[position], request.block_table[position]):
                return
            request.indexed_blocks += 1

    # ── to take back ──────────────────────────────────────────────────────────────────────────

    def release(self, request: Request) -> None:
        """Take back every block, so that the next to grow gets free ones in the same order.

        Cost: O(blocks taken back).
        Raises:
            AssertionError: a block of the table is unknown, free, or named twice; nothing changed.
        """
        table = request.block_table
        assert len(set(table)) == len(table), f"{request.id}: a block twice in one table"
        for block in table:
            assert 0 <= block < self.num_blocks, f"{request.id}: unknown block {block}"
            assert self._references[block] > 0, f"{request.id}: block {block} is free already"
        for block in reversed(table):
            self._dereference(block)
        table.clear()
        request.indexed_blocks = 0

    def _dereference(self, block: BlockId) -> None:
        self._references[block] -= 1
        self.shared_blocks -= self._references[block] == 1
        if self._references[block]:
            return
        if block in self._index:
            self._cached[block] = None
        else:
            self._free.append(block)
