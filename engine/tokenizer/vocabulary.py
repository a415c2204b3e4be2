"""Holds a checkpoint's tokenizer and its special ids against the rows of its embedding."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from core.errors import ModelError
from core.model import ModelConfig


def fit_to_vocabulary(
    config: ModelConfig, tokenizer_json: str, where: str, say: Callable[[str], None]
) -> ModelConfig:
    """Check that every id which plain text can give has a row; `where` names the checkpoint.

    Some real checkpoints have added tokens beyond the vocabulary and never use them: `say` reports
    them, and the server refuses requests whose text holds one. Start and end ids beyond it can
    never come: `say` reports them, and the config leaves them out.

    Returns: the config with the special ids that exist.
    Raises:
        ModelError: an ordinary token has no row.
    """
    size = config.vocab_size
    added, ordinary = _tokens_beyond(tokenizer_json, size)
    vocabulary = f"the model's vocabulary has {size} ids"
    if ordinary:
        id, text = min(ordinary.items())
        raise ModelError(f"{where}: its tokenizer gives token {text!r} the id {id}; {vocabulary}")
    if added:
        id, text = min(added.items())
        say(
            f"warning: {where}: {len(added)} added tokens are beyond the vocabulary, first "
            f"{text!r} with id {id}; {vocabulary}; requests that use one are refused"
        )
    return _with_known_ids(config, where, say)


def _with_known_ids(config: ModelConfig, where: str, say: Callable[[str], None]) -> ModelConfig:
    def known(id: int, what: str) -> bool:
        if 0 <= id < config.vocab_size:
            return True
        if id != -1:  # older files write it for "none"
            size = config.vocab_size
            say(f"warning: {where}: {what} id {id} is ignored; the vocabulary has {size} ids")
        return False

    bos = config.bos_token_id
    ends = tuple(id for id in config.eos_token_ids if known(id, "eos"))
    if not ends:
        say(
            f"warning: {where}: no end-of-sequence token is named; answers end at max_tokens or a "
            "stop string"
        )
    known_bos = bos if bos is not None and known(bos, "bos") else None
    return replace(config, bos_token_id=known_bos, eos_token_ids=ends)


def id_of(text: str, tokenizer_json: str) -> int | None:
    """Find the id of a token in `tokenizer.json`; None if it has none, or is broken."""
    try:
        description = json.loads(tokenizer_json)
        for token in description.get("added_tokens", ()):
            if token["content"] == text:
                return int(token["id"])
        vocab = _by_id(description["model"])
        return next((id for id, piece in vocab.items() if piece == text), None)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None  # not a tokenizer: the server reports it in the library's words


def _tokens_beyond(tokenizer_json: str, size: int) -> tuple[dict[int, str], dict[int, str]]:
    """Find added and ordinary tokens with ids from `size` on, by id."""
    try:
        description = json.loads(tokenizer_json)
        added = {token["id"]: str(token["content"]) for token in description["added_tokens"]}
        vocab = _by_id(description["model"])
        beyond = {id: text for id, text in vocab.items() if id >= size and id not in added}
        return {id: text for id, text in added.items() if id >= size}, beyond
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}, {}  # not a tokenizer: the server reports it in the library's words


def _by_id(model: Mapping[str, Any]) -> dict[int, str]:
    vocab = model["vocab"]
    if isinstance(vocab, list):  # Unigram: texts with scores, in id order
        return {id: text for id, (text, _) in enumerate(vocab)}
    return {id: text for text, id in vocab.items()}
