"""Writes `tokenizer.json` for sentencepiece's kind of BPE, whose vocabulary has scores, no merges.

Of two pieces that stand side by side, those are merged first whose whole has the best score. Each
piece can be made of any two others that it is the sum of, so that the merges follow from it.
Nothing is tokenised here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from core.errors import ModelError
from engine.tokenizer.byte_pairs import Json, added_token, begin_with

SPACE: Final = "\u2581"  # stands for a space in pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredVocabulary:
    """What a GGUF file says of a tokenizer of kind `llama`."""

    tokens: Sequence[str]  # in id order; bytes as <0x00> to <0xFF>
    scores: Sequence[float]
    normal: frozenset[int]  # ids of pieces that merges lead to
    special: frozenset[int] = frozenset()  # ids of control tokens
    added: frozenset[int] = frozenset()  # ids of pieces that are cut out of a text first
    unknown_id: int | None = None
    space_prefix: bool = True  # put before a text
    bos_id: int | None = None  # put before every text; None puts nothing there


def scored_pieces_tokenizer(vocabulary: ScoredVocabulary) -> Json:
    """Describe the tokenizer.

    A text that is put together from an added piece and the bare name of a byte (`<0x0A><tool>`,
    without a prefix) has that byte, where sentencepiece spells the name.

    Cost: 3 s for a vocabulary of 256,000.
    Raises:
        ModelError: there is not a score for each token.
    """
    tokens, bos_id = vocabulary.tokens, vocabulary.bos_id
    if len(vocabulary.scores) != len(tokens):
        counts = f"{len(vocabulary.scores)} scores for {len(tokens)} tokens"
        raise ModelError(f"tokenizer.ggml.scores: {counts}")
    own = [tokens[i].replace(" ", SPACE) for i in vocabulary.added]
    unknown = None if vocabulary.unknown_id is None else tokens[vocabulary.unknown_id]
    prefix: list[Json] = [{"type": "Prepend", "prepend": SPACE}] * vocabulary.space_prefix
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] * vocabulary.space_prefix
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            added_token(i, tokens[i], i in vocabulary.special) for i in sorted(vocabulary.special)
        ],
        "normalizer": {"type": "Sequence", "normalizers": [*prefix, _replace(" ", SPACE)]},
        "pre_tokenizer": _cut_out(own) if own else None,
        "post_processor": None if bos_id is None else begin_with(tokens[bos_id], bos_id),
        "decoder": {
            "type": "Sequence",
            "decoders": [_replace(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}, *strip],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": bool(own),  # what was cut out is a piece as it is
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": list(_merges(vocabulary)),
        },
    }


def _replace(text: str, by: str) -> Json:
    return {"type": "Replace", "pattern": {"String": text}, "content": by}


def _cut_out(texts: Sequence[str]) -> Json:
    """Describe how texts are cut out of another: of two that begin alike, the longer one."""
    pattern = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def _merges(vocabulary: ScoredVocabulary) -> Iterator[tuple[str, str]]:
    """Give each pair of pieces whose sum is a piece, the sum of the best score first."""
    scores = vocabulary.scores
    pieces = {vocabulary.tokens[i] for i in vocabulary.normal}
    for i in sorted(vocabulary.normal, key=lambda i: (-scores[i], i)):
        whole = vocabulary.tokens[i]
        for cut in range(1, len(whole)):
            left, right = whole[:cut], whole[cut:]
            if left in pieces and right in pieces:
                yield left, right
