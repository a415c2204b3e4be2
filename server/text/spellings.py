"""All the ways in which tokens spell a text. It knows no tokenizer's rules, only tokens' bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

MAX_BYTES: Final = 64  # of a text that is spelled: more has too many ways, and takes too long


class Spellings:
    """Tokens by their bytes.

    Cost: 25 ms and some megabytes for 50,000 tokens; a text takes milliseconds.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._ids: dict[bytes, list[int]] = {}
        for id, known in enumerate(token_bytes):
            if 0 < len(known) <= MAX_BYTES:
                self._ids.setdefault(known, []).append(id)

    def of(self, text: bytes, at_once: int = 1) -> Iterator[tuple[int, ...]]:
        """Give the ways to write a text, those of the fewest tokens first.

        The first token covers its first `at_once` bytes. A text over `MAX_BYTES` has none.
        """
        size = len(text)
        if not at_once <= size <= MAX_BYTES:
            return
        steps = [self._from(text, at) for at in range(size)]
        steps[0] = [(end, ids) for end, ids in steps[0] if end >= at_once]
        reach = [[at == size for at in range(size + 1)]]  # by count: what ends in so many tokens
        for count in range(1, size + 1):
            last = reach[-1]
            reach.append([any(last[end] for end, _ in steps[at]) for at in range(size)] + [False])
            if reach[count][0]:
                yield from self._paths(steps, reach, 0, count)

    def _from(self, text: bytes, at: int) -> list[tuple[int, list[int]]]:
        """Give the tokens that may stand at a place, by where they end."""
        ends = range(at + 1, len(text) + 1)
        return [(end, ids) for end in ends if (ids := self._ids.get(text[at:end]))]

    def _paths(
        self,
        steps: Sequence[list[tuple[int, list[int]]]],
        reach: Sequence[list[bool]],
        at: int,
        count: int,
    ) -> Iterator[tuple[int, ...]]:
        if count == 0:
            yield ()
            return
        for end, ids in steps[at]:
            if reach[count - 1][end]:
                for rest in self._paths(steps, reach, end, count - 1):
                    yield from ((id, *rest) for id in ids)
