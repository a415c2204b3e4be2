"""Tools that a chat offers, which of them must be called, and the grammar that enforces it.

The format is Hermes': `<tool_call>`, a JSON object with name and arguments, `</tool_call>`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from core.errors import InvalidType, InvalidValue, MissingParameter
from core.request import Grammar, GrammarKind
from grammar.compile import JSON_OPTIONS
from server.contract.messages import Message
from server.contract.schemas import SchemaRules
from server.schema.fields import FieldGroup, Structure, Values, built
from server.schema.kinds import Anything, Boolean, ListOf, OneOf, Schema, Text

OPEN_TAG: Final = "<tool_call>"
CLOSE_TAG: Final = "</tool_call>"
MAX_TOOLS: Final = 128
NAME: Final = "[A-Za-z0-9_-]{1,64}"

_TYPE: Final = built("type", OneOf(("function",)), "function", required=True)
_NAME: Final = built("name", Text(pattern=NAME), "the function's name", required=True)


class _NamedFields(FieldGroup):
    def __init__(self) -> None:
        self.name = _NAME


class _FunctionFields(_NamedFields):
    def __init__(self) -> None:
        super().__init__()
        self.description = built("description", Text(), "what it does")
        self.parameters = built("parameters", Anything(dict), "JSON schema of its arguments")
        self.strict = built("strict", Boolean(), "enforced calls always follow the schema")


class _ToolFields(FieldGroup):
    def __init__(self, function: FieldGroup, note: str) -> None:
        self.type = _TYPE
        self.function = built(
            "function", Structure(function.table, Values.plain), note, required=True
        )


_TOOL: Final = Structure(_ToolFields(_FunctionFields(), "what to call").table, Values.plain)
TOOLS: Final = ListOf(_TOOL, most=MAX_TOOLS)


class ToolChoiceKind:
    """none, auto, required, or an object that names one function."""

    _modes: Final = OneOf(("none", "auto", "required"))
    _named: Final = Structure(_ToolFields(_NamedFields(), "the one to call").table, Values.plain)

    def read(self, value: Any, path: str) -> str | dict[str, Any]:
        if isinstance(value, str):
            return self._modes.read(value, path)
        if isinstance(value, dict):
            return self._named.read(value, path)
        raise InvalidType(f"{path} must be a string or an object", path)

    def schema(self) -> Schema:
        return {"anyOf": [self._modes.schema(), self._named.schema()]}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of one chat. `callable_names` are those that a call may name."""

    tools: tuple[Mapping[str, Any], ...]
    enforced: bool = False  # the answer must be calls, and nothing else
    callable_names: frozenset[str] = frozenset()
    parallel: bool = True

    def grammar(self, rules: SchemaRules, answer: Grammar | None) -> Grammar | None:
        """Say what the output must be; None where the model decides.

        Calls, where they are enforced; calls or JSON, where `answer` says what else may come.
        """
        if not self.enforced and answer is None:
            return None
        functions = [
            tool["function"]
            for tool in self.tools
            if tool["function"]["name"] in self.callable_names
        ]
        calls = 'calls: call ("\\n" call)*' if self.parallel else "calls: call"
        either = " | ".join(f"call_{at}" for at in range(len(functions)))
        lines = [calls, f'call: "{OPEN_TAG}\\n" ({either}) "\\n{CLOSE_TAG}"']
        lines += [f"call_{at}: {_call(one, rules)}" for at, one in enumerate(functions)]
        if self.enforced or answer is None:
            return Grammar(GrammarKind.LARK, "\n".join(["start: calls", *lines]))
        schema = json.loads(answer.text) if answer.text else {"type": "object"}
        lines.append(f"answer: {_json(schema)}")
        return Grammar(GrammarKind.LARK, "\n".join(["start: calls | answer", *lines]))


def tool_use(
    tools: Sequence[Mapping[str, Any]], choice: str | Mapping[str, Any] | None, parallel: bool
) -> ToolUse | None:
    """Resolve `tools` and `tool_choice`; None where no tool may be called.

    Raises:
        InvalidValue, MissingParameter: a choice without tools, or of a tool that is not there.
    """
    if not tools:
        if choice not in (None, "none"):
            raise MissingParameter("tools is required where tool_choice is set", "tools")
        return None
    names = [tool["function"]["name"] for tool in tools]
    if len(set(names)) < len(names):
        raise InvalidValue("tools must not hold two functions of one name", "tools")
    given = tuple({**tool, "function": _given(tool["function"])} for tool in tools)
    if choice == "none":
        return None
    if choice is None or isinstance(choice, str):
        return ToolUse(given, choice == "required", frozenset(names), parallel)
    name = choice["function"]["name"]
    if name not in names:
        raise InvalidValue(f"tool_choice names {name!r}, which is not in tools", "tool_choice")
    return ToolUse(given, True, frozenset({name}), parallel=False)


def _given(function: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in function.items() if value is not None}


def _call(function: Mapping[str, Any], rules: SchemaRules) -> str:
    """Write the rule of one function's call; its schema stays a root, so that its refs hold."""
    begin = json.dumps(f'{{"name": "{function["name"]}", "arguments": ')
    return f'{begin} {_json(rules.arguments(function))} "}}"'


def _json(schema: Mapping[str, Any]) -> str:
    schema = {**schema, "x-guidance": JSON_OPTIONS}
    return f"%json {json.dumps(schema, ensure_ascii=False)}"


# ── for templates that do not know tools ──────────────────────────────────────────────────────


def explain_tools(messages: Sequence[Message], tools: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Put tools and calls into plain messages, in Hermes' words.

    Source: NousResearch, Hermes-Function-Calling, the system prompt for function calling.
    """
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    words = (
        "You may call one or more functions to assist with the user query. You are provided with "
        f"function signatures within <tools></tools> XML tags:\n<tools>\n{listed}\n</tools>\n"
        "For each function call, return a JSON object with function name and arguments within "
        f'{OPEN_TAG}{CLOSE_TAG} XML tags:\n{OPEN_TAG}\n{{"name": <function-name>, "arguments": '
        f"<args-json-object>}}\n{CLOSE_TAG}"
    )
    plain = write_calls(messages)
    if plain and plain[0]["role"] == "system":
        content = f"{plain[0]['content']}\n\n{words}"
        return [{**plain[0], "content": content}, *plain[1:]]
    return [{"role": "system", "content": words}, *plain]


def write_calls(messages: Sequence[Message]) -> list[Message]:
    """Turn the calls of earlier answers into the text that made them."""
    return [_written(message) if message.get("tool_calls") else message for message in messages]


def _written(message: Message) -> Message:
    texts = [_call_text(call["function"]) for call in message["tool_calls"]]
    content = "\n".join(filter(None, [message.get("content"), *texts]))
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": content}


def _call_text(function: Mapping[str, Any]) -> str:
    """Write a call as the model does; arguments that were cut are text, and stay it."""
    name, arguments = json.dumps(function["name"], ensure_ascii=False), function["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return f'{OPEN_TAG}\n{{"name": {name}, "arguments": {arguments}}}\n{CLOSE_TAG}'
