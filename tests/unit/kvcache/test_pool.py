"""The block pool: all or nothing, and no block in two places."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.request import BlockId, Request, RequestId
from kvcache.pool import BlockPool


def request(name: str = "r") -> Request:
    return Request(id=RequestId(name), prompt_ids=(1,), max_tokens=1)


def counts(pool: BlockPool) -> tuple[int, int, int]:
    return pool.free_blocks, pool.cached_blocks, pool.referenced_blocks


def test_growing_takes_whole_blocks_for_the_tokens_that_come() -> None:
    pool, some = BlockPool(num_blocks=4, block_size=4), request()
    assert pool.grow(some, 5)
    assert len(some.block_table) == 2
    assert counts(pool) == (2, 0, 2)


def test_growing_takes_nothing_while_the_last_block_has_slots() -> None:
    pool, some = BlockPool(4, 4), request()
    pool.grow(some, 5)
    some.computed_tokens = 5
    assert pool.grow(some, 3)
    assert len(some.block_table) == 2
    some.computed_tokens = 8
    assert pool.grow(some, 1)
    assert len(some.block_table) == 3


def test_growing_within_reserved_blocks_keeps_them() -> None:
    pool, some = BlockPool(4, 4), request()
    pool.grow(some, 16)
    assert pool.grow(some, 1)
    assert len(some.block_table) == 4


def test_a_pool_that_is_too_empty_changes_nothing() -> None:
    pool, some, other = BlockPool(4, 4), request(), request("other")
    pool.grow(other, 9)
    assert not pool.grow(some, 5)
    assert some.block_table == []
    assert counts(pool) == (1, 0, 3)


def test_spare_blocks_stay_free_or_nothing_changes() -> None:
    pool, some = BlockPool(4, 4), request()
    assert not pool.admit(some, [], 9, spare_blocks=2)
    assert counts(pool) == (4, 0, 0)
    assert pool.admit(some, [], 9, spare_blocks=1)
    assert counts(pool) == (1, 0, 3)


def test_no_block_is_in_two_tables() -> None:
    pool, some, other = BlockPool(4, 4), request(), request("other")
    pool.grow(some, 8)
    pool.grow(other, 8)
    assert sorted(some.block_table + other.block_table) == [0, 1, 2, 3]


def test_releasing_gives_every_block_back() -> None:
    pool, some = BlockPool(4, 4), request()
    pool.grow(some, 16)
    pool.release(some)
    assert some.block_table == []
    assert counts(pool) == (4, 0, 0)
    assert pool.grow(some, 16)


def test_the_blocks_released_last_are_handed_out_first_in_the_same_order() -> None:
    pool, some, other = BlockPool(8, 4), request(), request("other")
    pool.grow(some, 12)
    table = list(some.block_table)
    pool.release(some)
    pool.grow(other, 12)
    assert other.block_table == table


def test_releasing_a_request_without_blocks_is_nothing() -> None:
    pool = BlockPool(4, 4)
    pool.release(request())
    assert counts(pool) == (4, 0, 0)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda table: table.append(BlockId(3)), "free already"),
        (lambda table: table.append(BlockId(4)), "unknown block 4"),
        (lambda table: table.append(BlockId(-1)), "unknown block -1"),
        (lambda table: table.append(table[0]), "twice in one table"),
    ],
)
def test_a_table_that_is_wrong_is_refused_whole(
    spoil: Callable[[list[BlockId]], None], complaint: str
) -> None:
    pool, some = BlockPool(4, 4), request()
    pool.grow(some, 8)
    spoil(some.block_table)
    before = list(some.block_table)
    with pytest.raises(AssertionError, match=complaint):
        pool.release(some)
    assert some.block_table == before
    assert counts(pool) == (2, 0, 2)
    del some.block_table[2:]
    pool.release(some)
    assert counts(pool) == (4, 0, 0)


def test_a_second_release_of_the_same_blocks_is_refused() -> None:
    pool, some = BlockPool(4, 4), request()
    pool.grow(some, 8)
    stale = list(some.block_table)
    pool.release(some)
    some.block_table.extend(stale)
    with pytest.raises(AssertionError, match="free already"):
        pool.release(some)
    assert counts(pool) == (4, 0, 0)


@pytest.mark.parametrize("sizes", [(0, 4), (4, 0)])
def test_a_pool_without_slots_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(AssertionError):
        BlockPool(*sizes)
