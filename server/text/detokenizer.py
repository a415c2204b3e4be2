"""From token ids to text, as they come: whole characters only, and never a prefix of a stop string.

It knows no requests and no HTTP. The text of a request is the join of what `push` and `close` give,
however its tokens are grouped.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class StopMatcher:
    """Cuts a text at the first stop string to be completed (of two that end together, the longer).

    `keep_stop` sends the stop string itself too.

    Invariant: what is withheld is the longest suffix that is a proper prefix of some stop string.
    """

    def __init__(self, stops: Sequence[str], keep_stop: bool) -> None:
        self._stops, self._keep_stop = tuple(stops), keep_stop
        self._held = ""
        self.found: str | None = None

    def push(self, text: str, may_end: bool = True) -> str:
        """Return what is safe to send; nothing more once a stop string is found.

        A stop string that is completed where the text may not end is text; one that is only begun
        there can still be found.
        """
        if self.found is not None:
            return ""
        seen, text = len(self._held), self._held + text
        ends = [(self._end(text, stop, seen), stop) for stop in self._stops] if may_end else []
        hits = [(end, end - len(stop), stop) for end, stop in ends if end]
        if hits:
            end, at, self.found = min(hits)
            self._held = ""
            return text[: end if self._keep_stop else at]
        keep = max((self._overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def close(self) -> str:
        """Return what was withheld: the stop string did not come."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _end(text: str, stop: str, seen: int) -> int:
        """Say where `stop` is first completed behind the `seen` characters; 0 where it is not."""
        at = text.find(stop, max(seen - len(stop) + 1, 0))
        return at + len(stop) if at >= 0 else 0

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Count the characters at the end of `text` that begin `stop`, short of all of it."""
        longest = min(len(stop) - 1, len(text))
        return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)


class Detokenizer:
    """One request's bytes on their way to text. Bytes that are no UTF-8 become U+FFFD.

    The text of the first `min_tokens` tokens completes no stop string; it may begin one.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        stops: Sequence[str],
        keep_stop: bool,
        min_tokens: int,
    ) -> None:
        self._token_bytes, self._unstoppable = token_bytes, min_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._matcher = StopMatcher(stops, keep_stop)
        self.characters = 0  # decoded so far, sent or withheld

    @property
    def stop(self) -> str | None:
        """The stop string that ended the text."""
        return self._matcher.found

    def push(self, token: int) -> str:
        """Take a token; return the text that is now whole and safe to send."""
        text = self._decoder.decode(self._token_bytes[token])
        self.characters += len(text)
        may_end = self._unstoppable == 0
        self._unstoppable -= not may_end
        return self._matcher.push(text, may_end)

    def close(self) -> str:
        """End the text: an unfinished character becomes one U+FFFD, withheld text comes out."""
        rest = self._matcher.push(self._decoder.decode(b"", final=True))
        return rest + self._matcher.close()
