"""Which blocks belong to whom. No tensors live here: a block is a number and a reference count."""

from __future__ import annotations

from core.request import BlockId, Request


class BlockPool:
    """Hand out blocks and take them back.

    The free list is a stack: the block released last is handed out first, while its memory is
    still in the processor's caches, and slots that were never needed never become resident.

    Invariant: `free_blocks + cached_blocks + referenced_blocks == num_blocks`; a block's reference
        count is the number of block tables that name it.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        assert num_blocks > 0, "a pool needs blocks"
        assert block_size > 0, "a block needs slots"
        self.num_blocks, self.block_size = num_blocks, block_size
        self._free = [BlockId(number) for number in reversed(range(num_blocks))]
        self._references = [0] * num_blocks
        self._referenced = 0

    @property
    def capacity_tokens(self) -> int:
        return self.num_blocks * self.block_size

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def referenced_blocks(self) -> int:
        return self._referenced

    @property
    def cached_blocks(self) -> int:
        """Blocks that nobody references and that still hold something worth keeping."""
        return self.num_blocks - self.free_blocks - self.referenced_blocks

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def grow(self, request: Request, length: int, spare_blocks: int = 0) -> bool:
        """Give `request` room for its next `length` tokens: all of them, or nothing changes.

        Cost: O(blocks handed out).
        Returns:
            False when fewer than `spare_blocks` would stay free. That is pressure, not an error:
            the caller preempts somebody and asks again, or waits.
        """
        held = len(request.block_table)
        missing = max(self.blocks_for(request.computed_tokens + length) - held, 0)
        if missing + spare_blocks > len(self._free):
            return False
        for _ in range(missing):
            block = self._free.pop()
            self._references[block] += 1
            request.block_table.append(block)
        self._referenced += missing
        return True

    def release(self, request: Request) -> None:
        """Take back every block, so that the next to grow gets them in the same order.

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
            self._references[block] -= 1
            self._free.append(block)
        self._referenced -= len(table)
        table.clear()
