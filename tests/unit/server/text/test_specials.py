"""Marks for special tokens: found everywhere, also where a search's window ends."""

from __future__ import annotations

import pytest

from server.text import specials
from server.text.specials import Specials

TEXTS = ["<|a|>", "<|a|>b", "x"]


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specials, "_WINDOW", 4)


@pytest.mark.parametrize("before", range(10))
def test_a_special_token_across_windows_is_found_and_put_back(before: int) -> None:
    text = "." * before + "<|a|>b<|a|>" + "." * before + "x<|"
    known = Specials(TEXTS)
    dots = ["." * before] if before else []
    assert list(known.split(text)) == [*dots, "<|a|>b", "<|a|>", *dots, "x", "<|"]
    marked = known.mark(text)
    assert not known.anywhere(marked)
    assert known.unmark(marked) == text


def test_a_value_is_marked_through_and_through() -> None:
    known = Specials(TEXTS)
    value = {"x": ["x", {"a": ("<|a|>", 1, None)}], "b": ""}
    assert known.anywhere(value)
    marked = known.mark(value)
    assert not known.anywhere(marked)
    assert marked["x"][1]["a"][1:] == [1, None]


def test_a_tokenizer_without_special_tokens_marks_nothing() -> None:
    none = Specials([])
    assert not none.anywhere("<|a|>")
    assert list(none.split("<|a|>")) == ["<|a|>"]
