"""Which context several slices of a step read: moved once, paid by all of them. It decides nothing.

A block that two tables name stands at the same place in both, after the same blocks: what tables
share is how they begin. So two tables are compared by bisection, never block by block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from core.request import BlockId
from core.step import StepPlan
from core.wire import SharedRun

Tables = Sequence[Sequence[BlockId]]


def shared_runs(plan: StepPlan, block_size: int) -> tuple[SharedRun, ...]:
    """Find the runs, each reader's in the order of its context.

    Invariant: called before `commit`, which takes back the tables of those who end. Shared blocks
        are full, so that they lie in every reader's context.
    Cost: O(slices × log blocks) for each depth at which tables part.
    """
    tables = [piece.request.block_table for piece in plan.slices]
    return tuple(
        SharedRun(tuple(readers), blocks * block_size)
        for group in _parted(tables, range(len(tables)), 0)
        for readers, blocks in _runs(tables, group, 0)
    )


def _runs(tables: Tables, readers: Sequence[int], depth: int) -> Iterator[tuple[list[int], int]]:
    """Give the run that all `readers` share beyond `depth` blocks, then those of its branches."""
    first = tables[readers[0]]
    common = min(_common(first, tables[reader], depth) for reader in readers[1:])
    yield list(readers), common - depth
    for branch in _parted(tables, readers, common):
        yield from _runs(tables, branch, common)


def _parted(tables: Tables, readers: Sequence[int], depth: int) -> list[list[int]]:
    """Group readers by their block at `depth`, and keep who is not alone."""
    branches: defaultdict[BlockId, list[int]] = defaultdict(list)
    for reader in readers:
        if len(tables[reader]) > depth:
            branches[tables[reader][depth]].append(reader)
    return [branch for branch in branches.values() if len(branch) > 1]


def _common(first: Sequence[BlockId], other: Sequence[BlockId], depth: int) -> int:
    """Count the blocks that two tables have in common; more than `depth` of them."""
    low, high = depth + 1, min(len(first), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if first[middle - 1] == other[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
