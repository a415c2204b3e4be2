"""Every form of a chat message, brought to the one that templates read. It renders nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from core.errors import InvalidType, InvalidValue, MissingParameter
from server.schema.kinds import OneOf, Schema, typed

Message = Mapping[str, Any]

MAX_MESSAGES: Final = 10_000
ROLES: Final = OneOf(("system", "developer", "user", "assistant", "tool", "function"))  # OpenAI's
_TEXT_PARTS: Final = {"text": "text", "refusal": "refusal"}  # a part's type, and where its text is


class MessageList:
    """A conversation. Parts of text are joined by line breaks; a lone part is its text.

    Tool calls reach the template with their arguments as an object, as templates expect.
    A message's further keys, and whether a role fits where it stands, are the template's to judge.
    """

    def read(self, value: Any, path: str) -> tuple[Message, ...]:
        messages = typed(value, list, "a list", path)
        if len(messages) > MAX_MESSAGES:
            raise InvalidValue(f"{path} must hold at most {MAX_MESSAGES} messages", path)
        if not messages:
            raise InvalidValue(f"{path} must not be empty", path)
        return tuple(_message(item, f"{path}.{at}") for at, item in enumerate(messages))

    def schema(self) -> Schema:
        text = {"type": "string"}
        parts = [
            _described({"type": {"const": kind}, key: text}) for kind, key in _TEXT_PARTS.items()
        ]
        content = {"anyOf": [text, {"type": "array", "items": {"anyOf": parts}, "minItems": 1}]}
        function = _described({"name": text}, arguments={"anyOf": [{"type": "object"}, text]})
        calls = {"type": "array", "items": _described({"function": function}), "minItems": 1}
        others = {"enum": [role for role in ROLES.values if role != "tool"]}
        forms = [
            _described({"role": others, "content": content}),
            _described({"role": {"const": "assistant"}, "tool_calls": calls}),
            _described({"role": {"const": "tool"}, "tool_call_id": text, "content": content}),
        ]
        return {"type": "array", "items": {"anyOf": forms}, "minItems": 1, "maxItems": MAX_MESSAGES}


def _described(required: dict[str, Schema], **optional: Schema) -> Schema:
    properties = {**required, **optional}
    return {"type": "object", "properties": properties, "required": list(required)}


def _message(item: Any, path: str) -> Message:
    message = typed(item, dict, "an object", path)
    role = ROLES.read(_required(message, "role", path), f"{path}.role")
    read = {**message, "content": _content(message.get("content"), f"{path}.content")}
    calls = read.pop("tool_calls", None)
    if calls:  # null and [] are as absent
        read["tool_calls"] = _tool_calls(calls, f"{path}.tool_calls")
    if read["content"] is None and not (calls and role == "assistant"):
        raise MissingParameter(f"{path}.content is required", f"{path}.content")
    if role == "tool":
        _required_text(message, "tool_call_id", path)
    return read


def _required(item: Mapping[str, Any], key: str, path: str) -> Any:
    value = item.get(key)
    if value is None:
        raise MissingParameter(f"{path}.{key} is required", f"{path}.{key}")
    return value


def _required_text(item: Mapping[str, Any], key: str, path: str) -> str:
    return str(typed(_required(item, key, path), str, "a string", f"{path}.{key}"))


def _content(content: Any, path: str) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise InvalidType(f"{path} must be a string or a list of text parts", path)
    return "\n".join(_part(part, f"{path}.{at}") for at, part in enumerate(content))


def _part(item: Any, path: str) -> str:
    part = typed(item, dict, "an object", path)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _TEXT_PARTS:
        message = f"{path}.type must be 'text': the model reads nothing else"
        raise InvalidValue(message, f"{path}.type")
    return _required_text(part, _TEXT_PARTS[kind], path)


def _tool_calls(value: Any, path: str) -> list[dict[str, Any]]:
    return [
        _tool_call(item, f"{path}.{at}")
        for at, item in enumerate(typed(value, list, "a list", path))
    ]


def _tool_call(item: Any, path: str) -> dict[str, Any]:
    call, path = typed(item, dict, "an object", path), f"{path}.function"
    if call.get("function") is None:
        raise MissingParameter(f"{path} is required", path)
    function = typed(call["function"], dict, "an object", path)
    name = _required_text(function, "name", path)
    arguments = _arguments(function.get("arguments"), f"{path}.arguments")
    return {**call, "function": {**function, "name": name, "arguments": arguments}}


def _arguments(value: Any, path: str) -> dict[str, Any]:
    """Read arguments given as JSON text or as an object; nothing, "" and "null" mean none."""
    if isinstance(value, str) and value.strip():
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            raise InvalidValue(f"{path} must be the JSON text of an object", path) from None
    return dict(typed(value, dict, "the JSON text of an object", path)) if value else {}
