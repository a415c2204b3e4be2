"""The tokenizer files that we write ourselves, read by the library that will read them."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from core.errors import ModelError
from engine.tokenizer.byte_pairs import (
    BytePairVocabulary,
    byte_alphabet,
    byte_pair_tokenizer,
    byte_tokenizer,
    to_json,
)

MERGES = ("t h", "th e", "Ġ the", "1 2", "3 4", "12 34")
TOKENS = (*byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES), "<s>", "<tool>")
BOS, TOOL = len(TOKENS) - 2, len(TOKENS) - 1


def tokenizer(pre: str, bos_id: int | None = None) -> Tokenizer:
    vocabulary = BytePairVocabulary(
        pre=pre,
        tokens=TOKENS,
        merges=MERGES,
        special=frozenset({BOS}),
        added=frozenset({TOOL}),
        bos_id=bos_id,
    )
    return Tokenizer.from_str(to_json(byte_pair_tokenizer(vocabulary)))


@pytest.mark.parametrize(
    ("pre", "digits"),
    [
        ("gpt-2", ["1234"]),
        ("smollm", ["1", "2", "3", "4"]),
        ("qwen2", ["1", "2", "3", "4"]),
        ("starcoder", ["1", "2", "3", "4"]),
        ("tekken", ["1", "2", "3", "4"]),
        ("gpt-4o", ["12", "3", "4"]),
        ("llama3", ["12", "3", "4"]),
        ("llama-bpe", ["12", "3", "4"]),  # runs of up to three: 123, 4
    ],
)
def test_each_rule_cuts_digits_its_own_way(pre: str, digits: list[str]) -> None:
    assert tokenizer(pre).encode("the the1234").tokens == ["the", "Ġthe", *digits]


def test_a_tokenizer_that_adds_a_first_token_does_so_only_when_asked() -> None:
    adding = tokenizer("llama-bpe", bos_id=BOS)
    assert adding.encode("the").tokens == ["<s>", "the"]
    assert adding.encode("the", add_special_tokens=False).tokens == ["the"]
    assert tokenizer("llama-bpe").encode("the").tokens == ["the"]


def test_special_tokens_vanish_from_text_and_added_ones_stay() -> None:
    ours = tokenizer("qwen2")
    ids = ours.encode("<s>the<tool>").ids
    assert ids == [BOS, TOKENS.index("the"), TOOL]
    assert ours.decode(ids) == "the<tool>"


def test_qwen2_composes_characters_first() -> None:
    assert tokenizer("qwen2").encode("e\u0301").ids == tokenizer("gpt-2").encode("é").ids


def test_a_pretokenizer_that_we_do_not_know_is_refused_by_name() -> None:
    for pre in ("default", "no-such-rule"):
        with pytest.raises(ModelError, match=f"pre-tokenizer '{pre}' is not supported"):
            tokenizer(pre)


TEXT = "HelloWorld don't DON'T x/\n\n  12345 é日本 \U0001f600!/ \t\n end  "


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        (
            "tekken",
            "Hello|World| don|'t| DON|'T| x|/\n\n| | |1|2|3|4|5| é日本| \U0001f600!/| \t\n| end|  ",
        ),
        (
            "gpt-4o",
            "Hello|World| don't| DON'T| x|/\n\n| | |123|45| é日本| \U0001f600!/| \t\n| end|  ",
        ),
    ],
)
def test_rules_by_case_cut_as_their_makers_do(pre: str, pieces: str) -> None:
    cutter = tokenizer(pre).pre_tokenizer
    assert cutter is not None
    cuts = [span for _, span in cutter.pre_tokenize_str(TEXT)]
    assert [TEXT[begin:end] for begin, end in cuts] == pieces.split("|")


def test_the_byte_tokenizer_gives_each_byte_its_own_value() -> None:
    ours = Tokenizer.from_str(to_json(byte_tokenizer(("<|a|>", "<|b|>"))))
    text = "naïve 日本 12\n\x00<|b|>"
    assert ours.encode(text).ids == [*"naïve 日本 12\n\x00".encode(), 257]
    assert ours.decode(list(range(32, 127))) == bytes(range(32, 127)).decode()
