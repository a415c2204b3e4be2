"""The prefix index: what is found, what is kept, what goes first."""

from __future__ import annotations

import pytest

from core.request import BlockId, Request, RequestId, SamplingParams
from kvcache.pool import BlockPool
from kvcache.prefix import PrefixIndex, chain_keys


def request(
    *tokens: int,
    tenant: str = "a",
    salt: str = "",
    sampling: SamplingParams = SamplingParams(),  # noqa: B008
) -> Request:
    id = RequestId("r")
    return Request(
        id=id, prompt_ids=tokens, max_tokens=1, tenant=tenant, cache_salt=salt, sampling=sampling
    )


def filled(pool: BlockPool, *tokens: int, **names: str) -> Request:
    """A request all of whose tokens are computed and published."""
    some = request(*tokens, **names)  # type: ignore[arg-type]
    assert pool.admit(some, pool.find(some), len(tokens) - len(pool.find(some)) * pool.block_size)
    some.computed_tokens = len(tokens)
    pool.publish(some)
    return some


# ── keys ──────────────────────────────────────────────────────────────────────────────────────


def key(some: Request, count: int = 1) -> bytes:
    return chain_keys(some, 2, count)[-1]


def test_equal_tokens_in_one_namespace_have_one_key() -> None:
    assert key(request(1, 2)) == key(request(1, 2, 3))


@pytest.mark.parametrize(
    "other",
    [
        request(1, 3),
        request(2, 1),
        request(1, 2, tenant="b"),
        request(1, 2, salt="s"),
        request(1, 2, tenant="as"),
        request(1, 2, tenant="", salt="a"),
    ],
)
def test_other_tokens_tenants_and_salts_have_other_keys(other: Request) -> None:
    assert key(other) != key(request(1, 2))


def test_a_key_holds_all_that_came_before() -> None:
    assert key(request(1, 2, 5, 6), 2) != key(request(3, 4, 5, 6), 2)


def test_keys_are_remembered_and_go_on_into_the_output() -> None:
    some = request(1, 2, 3)
    first = key(some)
    some.output_ids.append(4)
    assert chain_keys(some, 2, 2) == [first, key(request(1, 2, 3, 4), 2)]


def test_a_second_block_of_the_same_content_is_not_entered() -> None:
    index = PrefixIndex()
    assert index.add(b"k", BlockId(1))
    assert not index.add(b"k", BlockId(2))
    assert index.longest_chain([b"k"], 1) == [1]
    assert BlockId(2) not in index


# ── find and admit ────────────────────────────────────────────────────────────────────────────


def test_the_longest_known_beginning_is_found_and_a_token_is_left_to_compute() -> None:
    pool = BlockPool(8, 2)
    leader = filled(pool, 1, 2, 3, 4)
    assert pool.find(request(1, 2, 3, 4, 5)) == leader.block_table
    assert pool.find(request(1, 2, 3, 4)) == leader.block_table[:1]
    assert pool.find(request(1, 2, 9, 4, 5)) == leader.block_table[:1]
    assert pool.find(request(9, 2, 3, 4, 5)) == []


def test_other_namespaces_find_nothing() -> None:
    pool = BlockPool(8, 2)
    filled(pool, 1, 2, 3, tenant="a", salt="s")
    assert len(pool.find(request(1, 2, 3, tenant="a", salt="s"))) == 1
    assert pool.find(request(1, 2, 3, tenant="b", salt="s")) == []
    assert pool.find(request(1, 2, 3, tenant="a")) == []


def test_a_request_for_its_prompts_logprobs_finds_nothing() -> None:
    pool = BlockPool(8, 2)
    filled(pool, 1, 2, 3)
    assert pool.find(request(1, 2, 3, sampling=SamplingParams(prompt_logprobs=0))) == []


def test_a_pool_without_prefix_caching_keeps_nothing() -> None:
    pool = BlockPool(8, 2, prefix_caching=False)
    leader = filled(pool, 1, 2, 3)
    assert pool.find(request(1, 2, 3)) == []
    pool.release(leader)
    assert (pool.free_blocks, pool.cached_blocks) == (8, 0)


def test_who_is_admitted_shares_the_blocks_and_counts_their_tokens() -> None:
    pool = BlockPool(8, 2)
    leader, follower = filled(pool, 1, 2, 3, 4), request(1, 2, 3, 4, 5)
    assert pool.admit(follower, pool.find(follower), 1)
    assert follower.block_table[:2] == leader.block_table
    assert (follower.computed_tokens, follower.cached_tokens) == (4, 4)
    assert (pool.shared_blocks, pool.referenced_blocks) == (2, 3)
    pool.release(leader)
    assert (pool.shared_blocks, pool.referenced_blocks, pool.cached_blocks) == (0, 3, 0)


def test_who_found_a_prefix_lets_others_find_what_it_adds() -> None:
    pool = BlockPool(8, 2)
    filled(pool, 1, 2, 3)
    longer = filled(pool, 1, 2, 3, 4, 5)
    assert pool.find(request(1, 2, 3, 4, 5, 6)) == longer.block_table[:2]


def test_an_admission_that_lacks_blocks_changes_nothing() -> None:
    pool = BlockPool(3, 2)
    pool.release(filled(pool, 1, 2, 3, 4))
    big = request(1, 2, 3, 4, 5, 6, 7)
    found = pool.find(big)
    assert not pool.admit(big, found, 3)
    assert not pool.admit(big, found, 1, spare_blocks=1)
    assert (big.block_table, big.computed_tokens, big.cached_tokens) == ([], 0, 0)
    assert (pool.free_blocks, pool.cached_blocks, pool.referenced_blocks) == (1, 2, 0)
    assert pool.admit(big, found, 1)


def test_a_partly_filled_block_is_not_shared() -> None:
    pool = BlockPool(8, 2)
    leader = filled(pool, 1, 2, 3)
    assert pool.find(request(1, 2, 3, 4, 5)) == leader.block_table[:1]


def test_a_twin_keeps_its_blocks_to_itself_and_all_after_them() -> None:
    pool = BlockPool(8, 2)
    first, twin = request(1, 2, 3), request(1, 2, 3, 4, 5)
    for each in (first, twin):  # admitted before either was computed
        assert pool.admit(each, pool.find(each), each.known_tokens)
    for each in (first, twin):
        each.computed_tokens = each.known_tokens
        pool.publish(each)
    assert pool.find(request(1, 2, 3, 4, 5)) == first.block_table[:1]
    pool.release(twin)
    assert (pool.free_blocks, pool.cached_blocks) == (6, 0)


# ── eviction ──────────────────────────────────────────────────────────────────────────────────


def test_free_blocks_go_before_cached_ones() -> None:
    pool = BlockPool(4, 2)
    pool.release(filled(pool, 1, 2, 3, 4))
    assert pool.grow(request(9), 4)
    assert len(pool.find(request(1, 2, 3, 4, 5))) == 2


def test_leaves_are_evicted_before_their_parents() -> None:
    pool = BlockPool(3, 2)
    pool.release(filled(pool, 1, 2, 3, 4, 5, 6))
    for left in (2, 1, 0):
        assert pool.grow(request(9), 2)
        assert len(pool.find(request(1, 2, 3, 4, 5, 6, 7))) == left


def test_the_prefix_used_least_recently_is_evicted_first() -> None:
    pool = BlockPool(4, 2)
    for tokens in ((1, 2), (3, 4), (5, 6)):
        pool.release(filled(pool, *tokens))
    again = request(1, 2, 7)
    assert pool.admit(again, pool.find(again), 1)
    pool.release(again)
    assert pool.grow(request(9), 4)  # the free one, and one more
    found = [len(pool.find(request(*tokens, 0))) for tokens in ((1, 2), (3, 4), (5, 6))]
    assert found == [1, 0, 1]


def test_blocks_in_use_are_never_evicted() -> None:
    pool = BlockPool(2, 2)
    filled(pool, 1, 2)
    pool.release(filled(pool, 3, 4))
    assert pool.grow(request(9), 2)
    assert not pool.grow(request(9), 2)
    assert len(pool.find(request(1, 2, 3))) == 1
