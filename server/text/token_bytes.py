"""The bytes that each token stands for, by its tokenizer's own decoder. Nothing is decoded here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from tokenizers import Tokenizer

from core.errors import ModelError

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def token_bytes(
    tokenizer: Tokenizer,
    vocab_size: int,
    hidden: Iterable[int] = (),
    show_special: bool = False,
) -> list[bytes]:
    """Tabulate all ids below `vocab_size`; ids that the tokenizer lacks stand for no bytes.

    Nor do special tokens, unless `show_special`, and `hidden` ids: a checkpoint may end texts with
    a token not called special.

    Raises:
        ModelError: the tokenizer's decoder is of a kind whose tokens are no fixed bytes.
    """
    added = {
        index: b"" if token.special and not show_special else token.content.encode()
        for index, token in tokenizer.get_added_tokens_decoder().items()
    }
    to_bytes = _rule(json.loads(tokenizer.to_str()))
    table = [b""] * vocab_size
    for text, index in tokenizer.get_vocab(with_added_tokens=True).items():
        if index < vocab_size:
            table[index] = added[index] if index in added else to_bytes(text)
    for index in hidden:
        table[index] = b""
    return table


def _rule(description: Mapping[str, Any]) -> Callable[[str], bytes]:
    decoders = {step["type"]: step for step in _steps(description.get("decoder"))}
    if "ByteLevel" in decoders:
        return _from_byte_level
    if "ByteFallback" in decoders or "Metaspace" in decoders:
        return _from_pieces
    raise ModelError(f"the tokenizer's decoder is not supported: {', '.join(decoders) or 'none'}")


def _steps(decoder: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if decoder is None:
        return
    if decoder["type"] == "Sequence":
        for step in decoder["decoders"]:
            yield from _steps(step)
    else:
        yield decoder


def _from_pieces(text: str) -> bytes:
    """Read a SentencePiece token: `<0xNN>` is a byte, U+2581 a space."""
    byte = _BYTE_TOKEN.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else text.replace("\u2581", " ").encode()


def _byte_of_character() -> dict[str, int]:
    """Invert GPT-2's map of bytes to printable characters.

    Source: openai/gpt-2, src/encoder.py, bytes_to_unicode: bytes that print stand for themselves,
    the others for U+0100 onwards, in order.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(plain))
    return {chr(byte): byte for byte in plain} | {
        chr(0x100 + index): byte for index, byte in enumerate(others)
    }


_BYTES: Final = _byte_of_character()


def _from_byte_level(text: str) -> bytes:
    if all(character in _BYTES for character in text):
        return bytes(_BYTES[character] for character in text)
    return text.encode()
