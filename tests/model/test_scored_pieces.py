"""A tokenizer of kind `llama` in a GGUF file gives sentencepiece's own ids."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random

import pytest
import sentencepiece
from gguf import TokenType
from tokenizers import Tokenizer

from core.errors import ModelError
from engine.checkpoint.gguf_file import _text_files
from engine.tokenizer.byte_pairs import to_json
from engine.tokenizer.scored_pieces import ScoredVocabulary, scored_pieces_tokenizer
from server.text.token_bytes import token_bytes
from tests.model.oracle import TEXT

VOCABULARY = 400
SYMBOLS = ["<tool>", "[INST]"]
STRANGE = [
    *("\n", "\t", "  ", "   ", " ", "é", "ß", "日本", "🙂", "🏳️\u200d🌈"),
    *("\u2581", "\u0000", "\ufffd", "ab", "x<0x0A>"),
]


@dataclass(frozen=True, eq=False)
class Both:
    theirs: sentencepiece.SentencePieceProcessor
    vocabulary: ScoredVocabulary

    @cached_property
    def ours_json(self) -> str:
        return to_json(scored_pieces_tokenizer(self.vocabulary))

    @cached_property
    def ours(self) -> Tokenizer:
        return Tokenizer.from_str(self.ours_json)


def train(space_prefix: bool) -> sentencepiece.SentencePieceProcessor:
    """Train as Llama's was: BPE, bytes for what is unknown, spaces as they are."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()),
        model_writer=model,
        model_type="bpe",
        vocab_size=VOCABULARY,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        split_digits=True,
        add_dummy_prefix=space_prefix,
        user_defined_symbols=SYMBOLS,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def vocabulary_of(theirs: sentencepiece.SentencePieceProcessor, prefix: bool) -> ScoredVocabulary:
    """Say what llama.cpp's converter writes of a model."""
    ids = range(theirs.get_piece_size())
    control = frozenset(i for i in ids if theirs.is_control(i))
    other = {i for i in ids if theirs.is_byte(i) or theirs.is_unknown(i) or theirs.is_unused(i)}
    added = frozenset(i for i in ids if theirs.id_to_piece(i) in SYMBOLS)
    return ScoredVocabulary(
        tokens=[theirs.id_to_piece(i) for i in ids],
        scores=[theirs.get_score(i) for i in ids],
        normal=frozenset(ids) - control - other - added,
        special=control,
        added=added,
        unknown_id=theirs.unk_id(),
        space_prefix=prefix,
        bos_id=theirs.bos_id(),
    )


@pytest.fixture(scope="module", params=[True, False], ids=["prefix", "no prefix"])
def both(request: pytest.FixtureRequest) -> Both:
    theirs = train(request.param)
    return Both(theirs, vocabulary_of(theirs, request.param))


def drawn(random: Random) -> str:
    words = [*TEXT.split(" "), *STRANGE]
    pieces = [random.choice(words) for _ in range(random.randint(1, 12))]
    if random.random() < 0.3:
        pieces.insert(1, random.choice(SYMBOLS))
    text = random.choice(("", " ")).join(pieces)
    if random.random() < 0.3:  # broken UTF-8, as it reaches a tokenizer
        data = text.encode()
        cut = random.randint(0, len(data))
        text = data[cut:].decode("utf-8", "replace") + data[:cut].decode("utf-8", "replace")
    return text


def assert_same_ids(both: Both, count: int) -> None:
    random = Random(11)
    for _ in range(count):
        text = drawn(random)
        ours = both.ours.encode(text, add_special_tokens=False).ids
        theirs = both.theirs.encode(text)
        assert ours == theirs, repr(text)


def test_drawn_texts_have_sentencepiece_s_ids(both: Both) -> None:
    assert_same_ids(both, 500)


@pytest.mark.slow
def test_ten_thousand_drawn_texts_have_sentencepiece_s_ids(both: Both) -> None:
    assert_same_ids(both, 10_000)


@pytest.mark.parametrize("text", ["", " ", "  ", "\n", "a", " a", "a ", "a  b", "🙂", "x\n\ny"])
def test_edges_have_sentencepiece_s_ids(both: Both, text: str) -> None:
    assert both.ours.encode(text, add_special_tokens=False).ids == both.theirs.encode(text)


def test_a_text_begins_with_the_token_that_the_file_names(both: Both) -> None:
    ids = both.ours.encode("hello").ids
    assert ids == [both.theirs.bos_id(), *both.theirs.encode("hello")]
    alone = replace(both.vocabulary, bos_id=None)
    plain = Tokenizer.from_str(to_json(scored_pieces_tokenizer(alone)))
    assert plain.encode("hello").ids == both.theirs.encode("hello")


def test_ids_lead_back_to_the_text(both: Both) -> None:
    for text in ("hello world", "日本 🙂", "a\n  b"):
        ids = both.ours.encode(text, add_special_tokens=False).ids
        assert both.ours.decode(ids) == text


def test_scores_must_be_those_of_the_tokens(both: Both) -> None:
    short = replace(both.vocabulary, scores=both.vocabulary.scores[1:])
    with pytest.raises(ModelError, match="399 scores for 400 tokens"):
        scored_pieces_tokenizer(short)


def test_a_file_of_this_kind_is_read(both: Both, tmp_path: Path) -> None:
    """Its header says all: pieces, scores, kinds, the prefix, the first token."""
    vocabulary, ids = both.vocabulary, range(VOCABULARY)
    kinds = dict.fromkeys(ids, TokenType.BYTE)
    kinds |= dict.fromkeys(vocabulary.normal, TokenType.NORMAL)
    kinds |= dict.fromkeys(vocabulary.special, TokenType.CONTROL)
    kinds |= dict.fromkeys(vocabulary.added, TokenType.USER_DEFINED)
    kinds[both.theirs.unk_id()] = TokenType.UNKNOWN
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": vocabulary.tokens,
        "tokenizer.ggml.scores": vocabulary.scores,
        "tokenizer.ggml.token_type": [int(kinds[i]) for i in ids],
        "tokenizer.ggml.add_space_prefix": vocabulary.space_prefix,
        "tokenizer.ggml.bos_token_id": both.theirs.bos_id(),
        "tokenizer.ggml.eos_token_id": both.theirs.eos_id(),
    }
    files = _text_files(metadata, "m.gguf")
    assert files["tokenizer.json"] == both.ours_json
    assert json.loads(files["tokenizer_config.json"])["eos_token"] == "</s>"
    (tmp_path / "tokenizer.json").write_text(files["tokenizer.json"], "utf-8")
    served = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    shown = token_bytes(served, VOCABULARY, show_special=True)
    text = "hello 日本 🙂"
    found = served.encode(text, add_special_tokens=False).ids
    assert b"".join(shown[i] for i in found).decode() == " " * vocabulary.space_prefix + text
