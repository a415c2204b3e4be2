"""Every form of a chat message, brought to the one that templates read. It renders nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from core.errors import InvalidType, InvalidValue, MissingParameter
from server.schema.kinds import OneOf, Schema, typed

Message = Mapping[str, Any]

MAX_MESSAGES: Final = 10_000
ROLES: Final = OneOf(("system", "developer", "user", "assistant", "tool", "function"))  # OpenAI's
_REASONING_FIELDS: Final = ("reasoning_content", "thinking", "reasoning")  # the first wins
_ASKS_FOR_NULL: Final = re.compile(r"content['\"\]]*\s+is\s+none")
_WALKS: Final = re.compile(r"[|]\s*items|[.]items[(]")
_TEXT_PARTS: Final = {"text": "text", "refusal": "refusal"}  # a part's type, and where its text is


class MessageList:
    """A conversation. Parts of text are joined by line breaks; a lone part is its text.

    Tool calls reach the template with their arguments as an object, as templates expect; arguments
    that an answer's end cut off stay text. What an assistant thought has the names by which
    templates ask for it. Keys that are null are left out, as by transformers. A message's further
    keys, and whether a role fits where it stands, are the template's to judge.
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
        others = {"enum": [role for role in ROLES.values if role not in ("tool", "assistant")]}
        said: Schema = {"content": {"anyOf": [content, {"type": "null"}]}, "tool_calls": calls}
        said |= {key: {"type": ["string", "null"]} for key in _REASONING_FIELDS}
        forms = [
            _described({"role": others, "content": content}, name=text),
            _described({"role": {"const": "assistant"}}, name=text, **said),
            _described({"role": {"const": "tool"}, "tool_call_id": text, "content": content}),
        ]
        return {"type": "array", "items": {"anyOf": forms}, "minItems": 1, "maxItems": MAX_MESSAGES}


def _described(required: dict[str, Schema], **optional: Schema) -> Schema:
    properties = {**required, **optional}
    return {"type": "object", "properties": properties, "required": list(required)}


def _message(item: Any, path: str) -> Message:
    message = typed(item, dict, "an object", path)
    role = ROLES.read(_required(message, "role", path), f"{path}.role")
    read = {key: value for key, value in message.items() if value is not None}
    for key in ("name", *(_REASONING_FIELDS if role == "assistant" else ())):
        if key in read:
            typed(read[key], str, "a string", f"{path}.{key}")
    calls = read.pop("tool_calls", None)
    if calls:  # null and [] are as absent
        read["tool_calls"] = _tool_calls(calls, f"{path}.tool_calls")
    if "content" in read:
        read["content"] = _content(read["content"], f"{path}.content")
    elif role != "assistant":
        raise MissingParameter(f"{path}.content is required", f"{path}.content")
    elif not calls:
        read["content"] = ""
    if role == "tool":
        _required_text(message, "tool_call_id", path)
    return _with_reasoning(read) if role == "assistant" else read


def _with_reasoning(message: dict[str, Any]) -> Message:
    """Give what was thought by the names that templates read.

    Source: transformers, `utils/chat_template_utils.py`, _alias_reasoning_fields.
    """
    thought = next((message[key] for key in _REASONING_FIELDS if key in message), None)
    if thought is None:
        return message
    return {"thinking": thought, **message, "reasoning_content": thought}


def _required(item: Mapping[str, Any], key: str, path: str) -> Any:
    value = item.get(key)
    if value is None:
        raise MissingParameter(f"{path}.{key} is required", f"{path}.{key}")
    return value


def _required_text(item: Mapping[str, Any], key: str, path: str) -> str:
    return str(typed(_required(item, key, path), str, "a string", f"{path}.{key}"))


def _content(content: Any, path: str) -> str:
    if isinstance(content, str):
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


def _arguments(value: Any, path: str) -> dict[str, Any] | str:
    """Read arguments given as JSON text or as an object; nothing, "" and "null" mean none.

    The start of an object, which no brace closes, is what an answer says that was cut: it stays.
    """
    if isinstance(value, str) and (text := value.strip()):
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            if text.startswith("{"):
                return text
            raise InvalidValue(f"{path} must be the JSON text of an object", path) from None
    return dict(typed(value, dict, "the JSON text of an object", path)) if value else {}


def suited(messages: Sequence[Message], template: str) -> Sequence[Message]:
    """Write messages as a template reads them, which differ in three points.

    A developer's turns are the system's where it does not know that role. An assistant that said
    nothing has no content, or null where the template asks for that: an absent one breaks it.
    Arguments that were cut, and are text, are an object's only value where it walks through them.
    """
    renames, walks = "developer" not in template, _WALKS.search(template) is not None
    nothing = {"content": None} if _ASKS_FOR_NULL.search(template) else {}
    written: list[Message] = []
    for message in messages:
        message = {**nothing, **message}
        if renames and message["role"] == "developer":
            message["role"] = "system"
        if walks and "tool_calls" in message:
            message["tool_calls"] = [_as_object(call) for call in message["tool_calls"]]
        written.append(message)
    return written


def _as_object(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call["function"]
    if not isinstance(function["arguments"], str):
        return call
    return {**call, "function": {**function, "arguments": {"arguments": function["arguments"]}}}
