"""Text from tokens: whole characters, no prefix of a stop string, however the tokens fall."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.text.detokenizer import Detokenizer, StopMatcher

BYTES = [bytes([value]) for value in range(256)]
STOPS = st.lists(st.text("ab\n€", min_size=1, max_size=4), max_size=4)


def deltas(data: bytes, stops: list[str]) -> list[str]:
    detokenizer = Detokenizer(BYTES, stops, keep_stop=False, min_tokens=0)
    parts = [detokenizer.push(byte) for byte in data]
    return [*parts, detokenizer.close()]


def cut(text: str, stops: list[str]) -> str:
    """Cut a whole text at the first stop string to be completed: the plain twin of the matcher."""
    for end in range(1, len(text) + 1):
        hits = [stop for stop in stops if text[:end].endswith(stop)]
        if hits:
            return text[: end - len(max(hits, key=len))]
    return text


@given(st.binary(max_size=60), STOPS)
def test_joined_deltas_are_the_text_cut_at_its_first_stop(data: bytes, stops: list[str]) -> None:
    assert "".join(deltas(data, stops)) == cut(data.decode("utf-8", "replace"), stops)


@given(st.text("ab\n€", max_size=40), STOPS)
def test_no_delta_takes_back_what_another_sent(text: str, stops: list[str]) -> None:
    whole = cut(text, stops)
    sent = ""
    for delta in deltas(text.encode(), stops):
        sent += delta
        assert whole.startswith(sent)
        delta.encode()  # no half of a character


@given(st.lists(st.text("ab", max_size=5), max_size=8), STOPS)
def test_only_a_proper_prefix_of_a_stop_is_withheld(pieces: list[str], stops: list[str]) -> None:
    matcher, seen, sent = StopMatcher(stops, keep_stop=False), "", ""
    for piece in pieces:
        seen += piece
        sent += matcher.push(piece)
        if matcher.found is None:
            held = seen[len(sent) :]
            assert not held or any(stop.startswith(held) and stop != held for stop in stops)


def test_a_character_is_sent_when_it_is_whole() -> None:
    assert deltas("€🦊".encode(), []) == ["", "", "€", "", "", "", "🦊", ""]


@pytest.mark.parametrize("broken", ["🦊".encode()[:1], "🦊".encode()[:3], b"\xff"])
def test_broken_bytes_at_the_end_become_one_replacement_character(broken: bytes) -> None:
    assert "".join(deltas(b"a" + broken, [])) == "a\ufffd"


def test_of_two_stops_the_first_to_be_completed_wins() -> None:
    assert "".join(deltas(b"xxabcd", ["abcd", "bc"])) == "xxa"


def test_of_two_stops_that_end_together_the_longer_wins() -> None:
    assert "".join(deltas(b"xabc", ["bc", "abc"])) == "x"


def test_withheld_text_comes_out_when_the_stop_does_not_come() -> None:
    assert deltas(b"ab", ["abc"]) == ["", "", "ab"]


def test_nothing_follows_a_stop() -> None:
    detokenizer = Detokenizer(BYTES, ["b"], keep_stop=False, min_tokens=0)
    assert [detokenizer.push(byte) for byte in b"abc"] == ["a", "", ""]
    assert detokenizer.stop is not None
    assert detokenizer.close() == ""


def stopped(text: str, stops: list[str], least: int) -> tuple[str, str | None]:
    """Cut a whole text at the first stop string to be completed behind `least` characters."""
    for end in range(least + 1, len(text) + 1):
        hits = [stop for stop in stops if text[:end].endswith(stop)]
        if hits:
            longest = max(hits, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(st.text("ab\n", max_size=20), STOPS, st.integers(0, 8))
def test_a_stop_begun_before_min_tokens_and_completed_after_them_is_found(
    text: str, stops: list[str], least: int
) -> None:
    detokenizer = Detokenizer(BYTES, stops, keep_stop=False, min_tokens=least)
    joined = "".join([*map(detokenizer.push, text.encode()), detokenizer.close()])
    assert (joined, detokenizer.stop) == stopped(text, stops, least)


def test_a_stop_completed_before_min_tokens_is_text_also_where_a_longer_one_may_follow() -> None:
    detokenizer = Detokenizer(BYTES, ["b", "abc"], keep_stop=False, min_tokens=2)
    assert "".join(map(detokenizer.push, b"abx")) == "abx"
    assert detokenizer.stop is None
