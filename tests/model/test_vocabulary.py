"""Tokenizers that know more ids than the model has rows: told or refused at each start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter, TokenType

from core.errors import ModelError
from core.request import Grammar, GrammarKind
from core.settings import ModelSettings
from engine.tokenizer.byte_pairs import byte_alphabet, byte_tokenizer
from grammar.compile import GrammarCompiler
from tests.model import test_gguf
from tests.model.families import SIZES, build
from tests.model.preparing import prepare_rows

VOCAB_SIZE = int(str(SIZES["vocab_size"]))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path / "cache"))


def directory(folder: Path, extra: dict[str, int], ordinary: dict[str, int] | None = None) -> Path:
    """Write a small model whose tokenizer has `extra` added tokens, and `ordinary` ones."""
    build("llama").save_pretrained(folder)
    described = byte_tokenizer(("<|end|>",))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    described["added_tokens"] += [
        {"id": id, "content": text, **flags, "special": False} for text, id in extra.items()
    ]
    described["model"]["vocab"] |= ordinary or {}
    (folder / "tokenizer.json").write_text(json.dumps(described))
    return folder


def gguf_file(path: Path, monkeypatch: pytest.MonkeyPatch, kind: TokenType) -> Path:
    """Write a small model with one token of `kind` more than it has rows."""

    def add_tokenizer(writer: GGUFWriter, texts: dict[str, str]) -> None:
        filled = [f"[{at}]" for at in range(256, VOCAB_SIZE)]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list([*byte_alphabet(), *filled, "<extra>"])
        writer.add_token_types([TokenType.NORMAL] * VOCAB_SIZE + [kind])
        writer.add_token_merges(["a b"])
        writer.add_eos_token_id(VOCAB_SIZE + 7)

    monkeypatch.setattr(test_gguf, "add_tokenizer", add_tokenizer)
    test_gguf.write(path, build("llama"), "llama")
    return path


def warnings_of(model: Path) -> list[str]:
    told: list[str] = []
    prepare_rows(ModelSettings(model=str(model)), told.append)
    return [line for line in told if line.startswith("warning")]


def test_added_tokens_beyond_the_vocabulary_are_told_at_every_start(tmp_path: Path) -> None:
    model = directory(tmp_path / "m", {"<extra>": VOCAB_SIZE, "<more>": VOCAB_SIZE + 5})
    first, again = warnings_of(model), warnings_of(model)
    assert first == again
    (line,) = first
    for words in (str(model), "2 added tokens", f"'<extra>' with id {VOCAB_SIZE}", "refused"):
        assert words in line
    assert "\n" not in line


def test_a_vocabulary_larger_than_the_tokenizer_is_told_nothing(tmp_path: Path) -> None:
    assert warnings_of(directory(tmp_path / "m", {"<extra>": VOCAB_SIZE - 1})) == []


def test_an_ordinary_token_beyond_the_vocabulary_refuses_the_checkpoint(tmp_path: Path) -> None:
    model = directory(tmp_path / "m", {}, {"ab": VOCAB_SIZE + 2})
    with pytest.raises(ModelError) as error:
        warnings_of(model)
    for words in (str(model), "'ab'", f"id {VOCAB_SIZE + 2}", f"has {VOCAB_SIZE} ids"):
        assert words in str(error.value)


@pytest.mark.parametrize("kind", [TokenType.CONTROL, TokenType.USER_DEFINED])
def test_an_added_token_beyond_a_gguf_file_s_rows_is_told(
    kind: TokenType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gguf_file(tmp_path / "m.gguf", monkeypatch, kind)
    added, eos, none = warnings_of(path)
    assert f"{path}: 1 added tokens" in added
    assert f"'<extra>' with id {VOCAB_SIZE}" in added
    assert f"eos id {VOCAB_SIZE + 7} is ignored" in eos
    assert "no end-of-sequence token" in none


def test_an_ordinary_token_beyond_a_gguf_file_s_rows_refuses_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gguf_file(tmp_path / "m.gguf", monkeypatch, TokenType.NORMAL)
    with pytest.raises(ModelError, match=f"'<extra>' the id {VOCAB_SIZE}"):
        warnings_of(path)


@pytest.mark.parametrize(
    ("raw", "bos", "eos", "lines"),
    [
        ({"bos_token_id": -1, "eos_token_id": [256, -1]}, None, (256,), 0),
        ({"bos_token_id": 9999, "eos_token_id": [256, 9998]}, None, (256,), 2),
        ({"bos_token_id": 0, "eos_token_id": VOCAB_SIZE - 1}, 0, (VOCAB_SIZE - 1,), 0),
    ],
)
def test_special_ids_that_no_row_has_are_left_out(
    raw: dict[str, Any], bos: int | None, eos: tuple[int, ...], lines: int, tmp_path: Path
) -> None:
    model = directory(tmp_path / "m", {})
    (model / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | raw))
    told: list[str] = []
    found = prepare_rows(ModelSettings(model=str(model)), told.append).config
    assert (found.bos_token_id, found.eos_token_ids) == (bos, eos)
    assert len([line for line in told if "ignored" in line]) == lines


def test_a_model_whose_tokenizer_knows_more_takes_grammars(tmp_path: Path) -> None:
    model = directory(tmp_path / "m", {"<extra>": VOCAB_SIZE + 3})
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"eos_token_id": 256}))
    prepared = prepare_rows(ModelSettings(model=str(model)))
    compiler = GrammarCompiler.load(prepared.dir, prepared.config)
    matcher = compiler.compile(Grammar(GrammarKind.REGEX, "ab"))
    mask = matcher.allowed([], (256,))
    assert mask.shape == (VOCAB_SIZE,)
    assert mask.nonzero()[0].tolist() == [ord("a")]
