"""The four forms of a completion's prompt: text, texts, token ids, lists of token ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from core.errors import EmptyPrompt, InvalidType, InvalidValue
from server.schema.kinds import MAX_IDS, Schema, TokenId

Prompt = str | tuple[int, ...]

_TOKEN: Final = TokenId()


@dataclass(frozen=True, slots=True)
class PromptForms:
    """Reads any of the forms as a tuple of prompts; one bad prompt refuses them all."""

    most: int

    def read(self, value: Any, path: str) -> tuple[Prompt, ...]:
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            raise InvalidType(f"{path} must be a string, or a list of strings or token ids", path)
        if value and not isinstance(value[0], str | list):
            value = [value]  # one prompt of token ids
        if len(value) > self.most:
            raise InvalidValue(f"{path} holds at most {self.most} prompts", path)
        if not value or any(not item and isinstance(item, str | list) for item in value):
            raise EmptyPrompt(f"{path} must not be empty", path)
        if len({type(item) for item in value}) > 1:
            raise InvalidType(f"{path} must not mix texts and token ids", path)
        if sum(len(item) for item in value if isinstance(item, list)) > MAX_IDS:
            raise InvalidValue(f"{path} holds at most {MAX_IDS} token ids", path)
        return tuple(
            item if isinstance(item, str) else tuple(_TOKEN.read(one, path) for one in item)
            for item in value
        )

    def schema(self) -> Schema:
        text = {"type": "string", "minLength": 1}
        ids = {"type": "array", "items": _TOKEN.schema(), "minItems": 1, "maxItems": MAX_IDS}
        lists = [
            {"type": "array", "items": item, "minItems": 1, "maxItems": self.most}
            for item in (text, ids)
        ]
        return {"anyOf": [text, ids, *lists]}
