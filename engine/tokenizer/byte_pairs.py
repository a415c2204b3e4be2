"""Writes `tokenizer.json` of byte-level BPE from a vocabulary and merges, as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from core.errors import ModelError

Json = dict[str, Any]

_LLAMA_BPE_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT: Final = _LLAMA_BPE_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN_SPLIT: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTRACTION: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT_4O_SPLIT: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _byte_level(use_regex: bool) -> Json:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _sequence(first: Json, use_regex: bool) -> Json:
    return {"type": "Sequence", "pretokenizers": [first, _byte_level(use_regex)]}


def _split(pattern: str) -> Json:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


@dataclass(frozen=True, slots=True)
class _PreTokenizer:
    """How text is cut before merges."""

    rule: Json
    normalizer: Json | None = None
    ignore_merges: bool = False  # a piece that is a token stays as it is


_GPT_2: Final = _PreTokenizer(_byte_level(use_regex=True))
_DIGITS: Final = _PreTokenizer(
    _sequence({"type": "Digits", "individual_digits": True}, use_regex=True)
)
_LLAMA_3: Final = _PreTokenizer(
    _sequence(_split(_LLAMA_BPE_SPLIT), use_regex=False), ignore_merges=True
)
_QWEN2: Final = _PreTokenizer(
    _sequence(_split(_QWEN2_SPLIT), use_regex=False), normalizer={"type": "NFC"}
)
_TEKKEN: Final = _PreTokenizer(
    _sequence(_split(_TEKKEN_SPLIT), use_regex=False), ignore_merges=True
)
_GPT_4O: Final = _PreTokenizer(_sequence(_split(_GPT_4O_SPLIT), use_regex=False))

# Source: the tokenizer.json of the checkpoints that llama.cpp's converter gives these names; tekken
# and gpt-4o: their original patterns, as llama.cpp's llama-vocab.cpp quotes them.
_PRE_TOKENIZERS: Final[Mapping[str, _PreTokenizer]] = {
    **dict.fromkeys(("gpt-2", "phi-2"), _GPT_2),
    **dict.fromkeys(("smollm", "starcoder", "refact"), _DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), _LLAMA_3),
    "qwen2": _QWEN2,
    "tekken": _TEKKEN,
    "gpt-4o": _GPT_4O,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BytePairVocabulary:
    """What a GGUF file says of a byte-level BPE tokenizer."""

    pre: str  # the name of its pre-tokenizer
    tokens: Sequence[str]  # in id order, in the byte alphabet
    merges: Sequence[str]
    special: frozenset[int] = frozenset()  # ids of control tokens
    added: frozenset[int] = frozenset()  # ids of added tokens that are plain text
    bos_id: int | None = None  # put before every text; None puts nothing there


def byte_pair_tokenizer(vocabulary: BytePairVocabulary) -> Json:
    """Describe a byte-level BPE tokenizer.

    Raises:
        ModelError: we do not know its pre-tokenizer.
    """
    pre = _PRE_TOKENIZERS.get(vocabulary.pre)
    if pre is None:
        known = ", ".join(_PRE_TOKENIZERS)
        raise ModelError(f"pre-tokenizer {vocabulary.pre!r} is not supported (only {known})")
    added = sorted(vocabulary.special | vocabulary.added)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            added_token(i, vocabulary.tokens[i], i in vocabulary.special) for i in added
        ],
        "normalizer": pre.normalizer,
        "pre_tokenizer": pre.rule,
        "post_processor": _post_processor(vocabulary),
        "decoder": _byte_level(use_regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre.ignore_merges,
            "vocab": {token: i for i, token in enumerate(vocabulary.tokens)},
            "merges": [merge.split(" ") for merge in vocabulary.merges],
        },
    }


def added_token(token_id: int, text: str, special: bool) -> Json:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token_id, "content": text, **flags, "special": special}


def _post_processor(vocabulary: BytePairVocabulary) -> Json:
    offsets = {**_byte_level(use_regex=True), "trim_offsets": False}
    if vocabulary.bos_id is None:
        return offsets
    before = begin_with(vocabulary.tokens[vocabulary.bos_id], vocabulary.bos_id)
    return {"type": "Sequence", "processors": [offsets, before]}


def begin_with(bos: str, bos_id: int) -> Json:
    """Describe a token that is put before every text."""
    first = {"SpecialToken": {"id": bos, "type_id": 0}}
    texts = [{"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB")]
    return {
        "type": "TemplateProcessing",
        "single": [first, texts[0]],
        "pair": [first, *texts],
        "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}},
    }


def byte_tokenizer(special: Sequence[str]) -> Json:
    """Describe a tokenizer whose id of byte b is b; `special` follow from 256 on."""
    tokens = [*byte_alphabet(), *special]
    ids = frozenset(range(256, len(tokens)))
    described = byte_pair_tokenizer(
        BytePairVocabulary(pre="gpt-2", tokens=tokens, merges=(), special=ids)
    )
    return {**described, "pre_tokenizer": _byte_level(use_regex=False)}


def byte_alphabet() -> list[str]:
    """Give the printable character that stands for each byte.

    Source: GPT-2's `bytes_to_unicode`: printable Latin-1 is itself, the rest goes to 256 and up.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def tokenizer_config(bos: str | None, eos: str | None) -> Json:
    """Describe what a chat template may refer to."""
    return {"bos_token": bos, "eos_token": eos}


def to_json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
