"""A checkpoint's tokenizer and chat template, read from the folder that the engine prepared.

Special tokens that a caller writes into a chat message stay plain text; in a raw prompt, which is
the caller's own markup, they are what they say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from core.errors import ModelError, TemplateFailed
from core.model import ModelConfig
from server.chat_template import ChatTemplate
from server.token_bytes import token_bytes

_PRIVATE: Final = 0xF0000  # Supplementary Private Use Area-A: marks that no text should hold
_TOKEN_NAMES: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


class ModelTokenizer:
    """Text in, ids out; `token_bytes` leads back.

    Cost: encoding takes about a microsecond per character and gives up the GIL.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        template: ChatTemplate | None = None,
        hidden: Iterable[int] = (),
    ) -> None:
        self._tokenizer, self._template = tokenizer, template
        self._literal = Tokenizer.from_str(tokenizer.to_str())
        self._literal.encode_special_tokens = True
        self.token_bytes = token_bytes(tokenizer, vocab_size, hidden)
        self._specials = {
            token.content: index
            for index, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        self._marks = {text: chr(_PRIVATE + at) for at, text in enumerate(self._specials)}
        self._any_special = _any_of(self._specials)
        self._any_mark = _any_of(self._marks.values())

    @classmethod
    def load(cls, folder: Path, model: ModelConfig) -> ModelTokenizer:
        """Read `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`.

        Raises:
            ModelError: a file is missing or broken; only the tokenizer itself must be there.
        """
        try:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises nothing narrower
            raise ModelError(f"tokenizer.json in {folder} cannot be read: {error}") from None
        config = _read_json(folder / "tokenizer_config.json")
        path = folder / "chat_template.jinja"
        source = path.read_text(encoding="utf-8") if path.exists() else config.get("chat_template")
        tokens = {name: text for name in _TOKEN_NAMES if (text := _text(config.get(name)))}
        template = ChatTemplate(source, tokens) if isinstance(source, str) else None
        return cls(tokenizer, model.vocab_size, template, model.eos_token_ids)

    def encode(self, text: str) -> tuple[int, ...]:
        """Encode a raw prompt, with the special tokens that the tokenizer adds by itself."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=True).ids)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
        """Encode a conversation by the chat template, which alone decides on special tokens.

        Raises:
            TemplateFailed: there is no template, or it refused the messages.
        """
        if self._template is None:
            raise TemplateFailed("the model has no chat template", "messages")
        if self._any_special is None or not _anywhere(self._any_special, messages):
            text = self._template.render(messages)
            return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)
        return self._encode_marked(self._template.render(self._mark(messages)))

    # ── special tokens in messages: rendered as marks, so that they differ from the template's ────

    def _mark(self, value: Any) -> Any:
        assert self._any_special is not None
        if isinstance(value, str):
            return self._any_special.sub(lambda found: self._marks[found[0]], value)
        if isinstance(value, Mapping):
            return {key: self._mark(item) for key, item in value.items()}
        return [self._mark(item) for item in value] if isinstance(value, list | tuple) else value

    def _encode_marked(self, rendered: str) -> tuple[int, ...]:
        assert self._any_special is not None
        ids: list[int] = []
        for piece in re.split(f"({self._any_special.pattern})", rendered):
            if piece in self._specials:
                ids.append(self._specials[piece])
            elif piece:
                text = self._unmark(piece)
                ids += self._literal.encode(text, add_special_tokens=False).ids
        return tuple(ids)

    def _unmark(self, text: str) -> str:
        assert self._any_mark is not None
        names = list(self._specials)
        return self._any_mark.sub(lambda found: names[ord(found[0]) - _PRIVATE], text)


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Match any of the texts, the longest first; None where there are none."""
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _anywhere(pattern: re.Pattern[str], value: Any) -> bool:
    if isinstance(value, str):
        return pattern.search(value) is not None
    if isinstance(value, Mapping):
        return any(_anywhere(pattern, item) for item in value.values())
    return isinstance(value, list | tuple) and any(_anywhere(pattern, item) for item in value)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from None
    return value if isinstance(value, dict) else {}


def _text(token: Any) -> str | None:
    """Read a token as older configs write it: a text, or an object with `content`."""
    return token.get("content") if isinstance(token, dict) else token
