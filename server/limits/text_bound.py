"""How long a text may be before it is encoded. It encodes nothing.

A token covers a bounded number of bytes in most tokenizers, so that the context limit bounds a
prompt's text. Where a tokenizer may drop text, only the operator's limit holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from core.errors import ContextLengthExceeded, InvalidValue

_CHARACTER_BYTES: Final = 4  # the most that UTF-8 takes for one
# What Unicode's normal forms and lower case make of text is at least a quarter of its bytes: the
# worst are letters of four bytes that become one of ASCII. Tested over all characters.
_SHRINKS: Final = {"NFC": 4, "NFD": 4, "NFKC": 4, "NFKD": 4, "Lowercase": 4}
_KEEPS: Final = frozenset({"ByteLevel", "Prepend"})  # normalizers that make no text shorter
_WHOLE: Final = frozenset({"ByteLevel", "Metaspace", "Digits", "UnicodeScripts"})
_CUTS: Final = frozenset({"Split", "Punctuation"})  # drop text only where they are told to
_BYTE_TOKENS: Final = frozenset(f"<0x{byte:02X}>" for byte in range(256))

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ContextLimit:
    """The most tokens of prompt and output together; `of_store`: the KV store holds no more."""

    tokens: int
    of_store: bool = False

    def refuse(self, what: str, param: str) -> NoReturn:
        """Say what is too long, in the words by which clients know this error.

        Raises:
            ContextLengthExceeded: always.
        Source: OpenAI's API; litellm and others look for its first words in a message.
        """
        message = f"This model's maximum context length is {self.tokens} tokens. However, {what}"
        if self.of_store:
            message += f"; {self.tokens} tokens are all that the KV store holds"
        raise ContextLengthExceeded(message, param)


@dataclass(frozen=True, slots=True)
class TextLimit:
    """The most bytes of UTF-8 that are encoded. `context` is the limit that they come from."""

    bytes: int
    context: ContextLimit | None = None  # None: the operator's --max-text

    def check(self, text: str, param: str) -> None:
        """Refuse a text that is longer; `param` is the field that brought it.

        Raises:
            ContextLengthExceeded: it has more tokens than the context can hold, whatever they are.
            InvalidValue: it is above the operator's limit.
        """
        if len(text) * _CHARACTER_BYTES <= self.bytes:
            return
        if len(text) > self.bytes or len(text.encode("utf-8", "replace")) > self.bytes:
            self.refuse(param)

    def refuse(self, param: str) -> NoReturn:
        """Say that the text is too long.

        Raises:
            ContextLengthExceeded, InvalidValue: always.
        """
        over = f"the text of {param} is longer than {self.bytes} bytes"
        if self.context is None:
            raise InvalidValue(f"{over}, the most that is encoded (--max-text)", param)
        self.context.refuse(f"{over}, which is more than fits", param)


def longest_token_bytes(tokenizer: Tokenizer) -> int | None:
    """Find how many bytes of a text one token may cover; None where there is no bound."""
    described = json.loads(tokenizer.to_str())
    factor = _shrinking(described.get("normalizer"))
    if factor is None or not _keeps_all(described):
        return None
    added = tokenizer.get_added_tokens_decoder().values()
    if any(token.lstrip or token.rstrip for token in added):
        return None  # such a token takes all the blanks beside it
    sizes = [len(token.content.encode()) for token in added]
    vocab = described["model"]["vocab"]  # in the byte alphabet a character stands for a byte
    sizes += map(len, vocab) if _is_byte_level(described) else (len(one.encode()) for one in vocab)
    return factor * max(_CHARACTER_BYTES, *sizes)


def _shrinking(normalizer: Json | None) -> int | None:
    """Find by what factor it may make a text shorter; None where there is no bound."""
    factor = 1
    for step in _steps(normalizer, "normalizers"):
        kind = step["type"]
        if kind == "Replace" and step["content"] and "String" in step["pattern"]:
            was, becomes = step["pattern"]["String"].encode(), step["content"].encode()
            factor *= max(-(-len(was) // len(becomes)), 1)
        elif kind in _SHRINKS:
            factor *= _SHRINKS[kind]
        elif kind not in _KEEPS:
            return None
    return factor


def _keeps_all(described: Json) -> bool:
    """Say whether every byte of a normalized text comes into a token of bounded length."""
    for step in _steps(described.get("pre_tokenizer"), "pretokenizers"):
        kept = step["type"] in _WHOLE
        if not kept and not (step["type"] in _CUTS and step["behavior"] != "Removed"):
            return False
    model = described["model"]
    if model["type"] != "BPE":
        return False
    vocab = model["vocab"]
    if _is_byte_level(described):
        return bool(vocab.keys() >= set(ByteLevel.alphabet()))
    if model.get("byte_fallback") and vocab.keys() >= _BYTE_TOKENS:
        return True
    return model.get("unk_token") is not None and not model.get("fuse_unk")


def _is_byte_level(described: Json) -> bool:
    """Say whether texts are written in the byte alphabet before they are cut into tokens."""
    parts = (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers"))
    return any(
        step["type"] == "ByteLevel"
        for part, key in parts
        for step in _steps(described.get(part), key)
    )


def _steps(part: Json | None, key: str) -> Sequence[Json]:
    if part is None:
        return ()
    if part["type"] == "Sequence":
        return [step for inner in part[key] for step in _steps(inner, key)]
    return (part,)
