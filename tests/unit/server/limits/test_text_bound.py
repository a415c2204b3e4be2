"""How much text a token may cover: no text that fits is refused, and no bound is invented."""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from core.errors import ContextLengthExceeded, InvalidValue
from engine.tokenizer.byte_pairs import BytePairVocabulary, byte_alphabet, byte_pair_tokenizer
from server.limits.text_bound import ContextLimit, TextLimit, longest_token_bytes

FORMS = ("NFC", "NFD", "NFKC", "NFKD")


def byte_pairs(pre: str = "qwen2", **vocabulary: Any) -> Tokenizer:
    tokens = [*byte_alphabet(), "aa", "aaaa", "Ġaaaa", "<|end|>"]
    merges = ["a a", "aa aa", "Ġ aaaa"]
    described = BytePairVocabulary(
        pre=pre, tokens=tokens, merges=merges, special=frozenset({259}), **vocabulary
    )
    return Tokenizer.from_str(json.dumps(byte_pair_tokenizer(described)))


def sentence_pieces(**model: Any) -> Tokenizer:
    return Tokenizer(models.BPE(vocab={"a": 0, "<unk>": 1}, merges=[], **model))


def test_the_longest_token_of_a_byte_level_vocabulary_bounds_what_a_token_covers() -> None:
    assert longest_token_bytes(byte_pairs("gpt-2")) == len("<|end|>")
    assert longest_token_bytes(byte_pairs("llama-bpe")) == len("<|end|>")
    assert longest_token_bytes(byte_pairs("qwen2")) == 4 * len("<|end|>")  # NFC may shrink a text


@given(st.text(alphabet=st.sampled_from("a \n1é🦊\u0301\u212b\u3000"), max_size=200))
def test_no_text_has_more_bytes_than_its_tokens_may_cover(text: str) -> None:
    for pre in ("gpt-2", "smollm", "llama-bpe", "qwen2"):
        tokenizer = byte_pairs(pre)
        longest = longest_token_bytes(tokenizer)
        assert longest is not None
        assert len(text.encode()) <= longest * len(tokenizer.encode(text).ids)


def test_no_character_shrinks_more_by_a_normal_form_than_the_bound_allows() -> None:
    widest: dict[str, int] = {}  # by a character of a decomposed text: the most bytes it came from
    for code in range(sys.maxunicode + 1):
        if 0xD800 <= code < 0xE000:
            continue
        was = chr(code)
        for now in (*(unicodedata.normalize(form, was) for form in FORMS), was.lower()):
            assert len(was.encode()) <= 4 * len(now.encode())
        parts = unicodedata.normalize("NFKD", was)
        if len(parts) == 1:
            widest[parts] = max(widest.get(parts, 1), len(was.encode()))
    for code in range(sys.maxunicode + 1):  # what several characters may be composed to
        parts = unicodedata.normalize("NFD", chr(code)) if not 0xD800 <= code < 0xE000 else ""
        assert sum(widest[part] for part in parts if part in widest) <= 4 * len(
            chr(code).encode("utf-8", "replace")
        )


def _with(tokenizer: Tokenizer, **parts: Any) -> Tokenizer:
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def _greedy_token() -> Tokenizer:
    tokenizer = byte_pairs("gpt-2")
    tokenizer.add_special_tokens([AddedToken("<|x|>", rstrip=True)])
    return tokenizer


@pytest.mark.parametrize(
    "tokenizer",
    [
        _greedy_token(),
        sentence_pieces(unk_token="<unk>", fuse_unk=True),
        sentence_pieces(),  # what it does not know is dropped
        _with(byte_pairs(), normalizer=normalizers.Strip()),
        _with(byte_pairs(), normalizer=normalizers.Replace("a", "")),
        _with(byte_pairs(), pre_tokenizer=pre_tokenizers.WhitespaceSplit()),
        _with(byte_pairs(), pre_tokenizer=pre_tokenizers.Split(" ", "removed")),
        Tokenizer(models.WordPiece(vocab={"[UNK]": 0}, unk_token="[UNK]")),
    ],
)
def test_a_tokenizer_that_may_swallow_text_has_no_bound(tokenizer: Tokenizer) -> None:
    assert longest_token_bytes(tokenizer) is None


def test_an_unknown_character_that_is_one_token_is_at_most_four_bytes() -> None:
    assert longest_token_bytes(sentence_pieces(unk_token="<unk>", fuse_unk=False)) == 5


def test_a_text_is_refused_from_its_first_byte_above_the_limit() -> None:
    limit = TextLimit(6)
    limit.check("ééé", "prompt")
    for text in ("éééa", "a" * 7):
        with pytest.raises(InvalidValue, match="longer than 6 bytes"):
            limit.check(text, "prompt")
    with pytest.raises(ContextLengthExceeded, match="context length is 3") as caught:
        TextLimit(6, ContextLimit(3)).check("a" * 7, "messages")
    assert caught.value.param == "messages"
