"""The fields that make a chat's prompt, for the chat route and for /tokenize alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from core.errors import InvalidValue
from server.contract.fields import Field, built
from server.contract.kinds import Anything, Boolean, OneOf, Text
from server.contract.messages import Message, MessageList
from server.contract.tools import TOOLS, ToolChoiceKind, ToolUse, tool_use

MAX_TEMPLATE_CHARACTERS: Final = 64 * 1024
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

CONVERSATION: Final[tuple[Field, ...]] = (
    built("messages", MessageList(), "role and content: a string or parts of text", required=True),
    built("tools", TOOLS, "functions that may be called", ()),
    built("tool_choice", ToolChoiceKind(), "none, auto, required, or a named function"),
    built("parallel_tool_calls", Boolean(), "several calls in one enforced answer", True),
    built(
        "add_generation_prompt",
        Boolean(),
        "open the assistant's turn; true unless a message is continued",
    ),
    built("continue_final_message", Boolean(), "go on in the last message", False),
    built("chat_template", Text(1, MAX_TEMPLATE_CHARACTERS), "instead of the model's (Jinja)"),
    built("chat_template_kwargs", Anything(dict), "more variables for the template"),
    built("reasoning_effort", OneOf(_EFFORTS), "a variable for the template"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What a chat template is rendered with."""

    messages: tuple[Message, ...]
    use: ToolUse | None = None
    add_generation_prompt: bool = True
    continue_final: bool = False
    template: str | None = None  # None: the model's own
    variables: Mapping[str, Any]
    add_special_tokens: bool = False
    long: bool = False  # its body was: what is done with it belongs off the event loop

    @property
    def param(self) -> str:
        """Name the field to blame for what is rendered."""
        return "messages" if self.template is None else "chat_template"


def conversation(values: Mapping[str, Any], long: bool) -> Conversation:
    """Build it from what `CONVERSATION` read of a body; `long` says that this was.

    Raises:
        InvalidValue, MissingParameter: fields that contradict each other.
    """
    use = tool_use(values["tools"], values["tool_choice"], values["parallel_tool_calls"])
    opens, continues = values["add_generation_prompt"], values["continue_final_message"]
    if opens and continues:
        message = "continue_final_message needs add_generation_prompt to be false"
        raise InvalidValue(message, "continue_final_message")
    if continues and values["messages"][-1]["content"] is None:
        message = "continue_final_message needs content in the last message"
        raise InvalidValue(message, "continue_final_message")
    variables = dict(values["chat_template_kwargs"] or {})
    if values["reasoning_effort"] is not None:
        variables["reasoning_effort"] = values["reasoning_effort"]
    return Conversation(
        messages=values["messages"],
        use=use,
        add_generation_prompt=opens is not False and not continues,
        continue_final=continues,
        template=values["chat_template"],
        variables=variables,
        add_special_tokens=values["add_special_tokens"],
        long=long,
    )
