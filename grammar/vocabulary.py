"""Cuts a tokenizer's description down to the ids that the model has. It compiles nothing."""

from __future__ import annotations

import json


def within_vocabulary(tokenizer_json: str, vocab_size: int) -> str:
    """Leave out the tokens beyond the vocabulary, for what reads outputs; none can hold one.

    Raises:
        ValueError: it describes no tokenizer.
    """
    try:
        description = json.loads(tokenizer_json)
        kept = [token for token in description["added_tokens"] if token["id"] < vocab_size]
        model = description["model"]
        if isinstance(vocab := model["vocab"], dict):
            model["vocab"] = {text: id for text, id in vocab.items() if id < vocab_size}
    except (KeyError, TypeError) as error:
        raise ValueError(f"tokenizer.json describes no tokenizer: {error!r}") from error
    return json.dumps({**description, "added_tokens": kept})


def special_texts(tokenizer_json: str) -> list[str]:
    """Give the texts of the special tokens."""
    tokens = json.loads(tokenizer_json).get("added_tokens", ())
    return [token["content"] for token in tokens if token.get("special")]
