"""The ways in which tokens spell a text, against trying all sequences."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from server.text.spellings import MAX_BYTES, Spellings

tokens = st.lists(st.binary(max_size=3).map(lambda b: bytes(97 + x % 2 for x in b)), max_size=8)


@given(tokens, st.text("ab", min_size=1, max_size=5), st.integers(1, 2))
def test_every_way_is_found_once_and_the_shortest_come_first(
    table: list[bytes], text: str, at_once: int
) -> None:
    data = text.encode()
    ways = list(Spellings(table).of(data, at_once))
    tried = [
        ids
        for count in range(1, len(data) + 1)
        for ids in itertools.product(range(len(table)), repeat=count)
        if b"".join(table[id] for id in ids) == data
        and all(table[id] for id in ids)
        and len(table[ids[0]]) >= at_once
    ]
    assert sorted(ways) == sorted(tried)
    assert [len(ids) for ids in ways] == sorted(map(len, ways))


def test_what_has_very_many_ways_is_begun_at_once_and_what_is_too_long_has_none() -> None:
    table = [b"a" * size for size in range(1, 20)]
    ways = Spellings(table).of(b"a" * MAX_BYTES)
    assert [len(ids) for ids in itertools.islice(ways, 1000)] == [4] * 455 + [5] * 545
    assert list(Spellings(table).of(b"a" * (MAX_BYTES + 1))) == []
