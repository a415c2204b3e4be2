"""Special tokens that a caller wrote into messages: rendered as marks, and then text again.

So they differ from the special tokens that the template itself writes. No ids are known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

_PRIVATE: Final = 0xF0000  # Supplementary Private Use Area-A: marks that no text should hold
_WINDOW: Final = 16 * 1024  # characters of one search, which keeps the interpreter lock: some ms


class Specials:
    """The texts of a tokenizer's special tokens, and a mark for each."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = list(texts)
        self._marks = {text: chr(_PRIVATE + at) for at, text in enumerate(self._texts)}
        self._any = _Finder(self._texts)
        self._any_mark = _Finder(self._marks.values())

    def anywhere(self, value: Any) -> bool:
        """Say whether one of them is in a text of the value."""
        if isinstance(value, str):
            return next(self._any.matches(value), None) is not None
        if isinstance(value, Mapping):
            return any(self.anywhere(item) for item in value.values())
        return isinstance(value, list | tuple) and any(self.anywhere(item) for item in value)

    def mark(self, value: Any) -> Any:
        """Put marks in their place, in all texts of the value."""
        if isinstance(value, str):
            return "".join(
                self._marks[part] if special else part for part, special in self._any.parts(value)
            )
        if isinstance(value, Mapping):
            return {key: self.mark(item) for key, item in value.items()}
        return [self.mark(item) for item in value] if isinstance(value, list | tuple) else value

    def marks_in(self, text: str) -> dict[str, str]:
        """Give the marks of those that stand in a text."""
        return {one: mark for one, mark in self._marks.items() if one in text}

    def unmark(self, text: str) -> str:
        """Put them back in the place of their marks."""
        return "".join(
            self._texts[ord(part) - _PRIVATE] if mark else part
            for part, mark in self._any_mark.parts(text)
        )

    def split(self, text: str) -> Iterator[str]:
        """Cut a text into special tokens and what is between them."""
        return (part for part, _ in self._any.parts(text))


class _Finder:
    """Finds any of the texts, at each place the longest; it gives way between windows."""

    def __init__(self, texts: Iterable[str]) -> None:
        ordered = sorted(texts, key=len, reverse=True)
        self._longest = len(ordered[0]) if ordered else 0
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """Find what `finditer` finds: a match that begins in a window lies wholly in its search."""
        at = 0
        while self._pattern is not None and at < len(text):
            found = self._pattern.search(text, at, at + _WINDOW + self._longest)
            if found is None or found.start() >= at + _WINDOW:
                at += _WINDOW
            else:
                yield found
                at = found.end()

    def parts(self, text: str) -> Iterator[tuple[str, bool]]:
        """Cut a text at the matches; each part says whether it is one. Empty parts are left out."""
        at = 0
        for found in self.matches(text):
            if found.start() > at:
                yield text[at : found.start()], False
            yield found[0], True
            at = found.end()
        if at < len(text):
            yield text[at:], False
