"""The fields that make a chat's prompt, for the chat route and for /tokenize alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from core.errors import InvalidValue
from server.contract.messages import Message, MessageList
from server.contract.tools import TOOLS, ToolChoiceKind, ToolUse, tool_use
from server.schema.fields import FieldGroup, Values, built
from server.schema.kinds import Anything, Boolean, OneOf, Text

MAX_TEMPLATE_CHARACTERS: Final = 64 * 1024
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class ConversationFields(FieldGroup):
    def __init__(self) -> None:
        note = "role and content: a string or parts of text"
        self.messages = built("messages", MessageList(), note, required=True)
        self.tools = built("tools", TOOLS, "functions that may be called", ())
        note = "none, auto, required, or a named function"
        self.tool_choice = built("tool_choice", ToolChoiceKind(), note)
        note = "several calls in one enforced answer"
        self.parallel_tool_calls = built("parallel_tool_calls", Boolean(), note, True)
        note = "open the assistant's turn; true unless a message is continued"
        self.opens = built("add_generation_prompt", Boolean(), note)
        self.continues = built(
            "continue_final_message", Boolean(), "go on in the last message", False
        )
        text = Text(1, MAX_TEMPLATE_CHARACTERS)
        self.template = built("chat_template", text, "instead of the model's (Jinja)")
        self.kwargs = built(
            "chat_template_kwargs", Anything(dict), "more variables for the template"
        )
        self.effort = built("reasoning_effort", OneOf(_EFFORTS), "a variable for the template")


CONVERSATION: Final = ConversationFields()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
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


def conversation(values: Values, add_special_tokens: bool, long: bool) -> ChatPrompt:
    """Build it from what its fields read; `long` says that the body was.

    Raises:
        InvalidValue, MissingParameter: fields that contradict each other.
    """
    tools, parallel = values[CONVERSATION.tools], values[CONVERSATION.parallel_tool_calls]
    use = tool_use(tools, values[CONVERSATION.tool_choice], parallel)
    messages = values[CONVERSATION.messages]
    opens, continues = values[CONVERSATION.opens], values[CONVERSATION.continues]
    if opens and continues:
        message = "continue_final_message needs add_generation_prompt to be false"
        raise InvalidValue(message, "continue_final_message")
    if continues and "content" not in messages[-1]:
        message = "continue_final_message needs content in the last message"
        raise InvalidValue(message, "continue_final_message")
    variables = dict(values[CONVERSATION.kwargs] or {})
    if values[CONVERSATION.effort] is not None:
        variables["reasoning_effort"] = values[CONVERSATION.effort]
    return ChatPrompt(
        messages=messages,
        use=use,
        add_generation_prompt=opens is not False and not continues,
        continue_final=continues,
        template=values[CONVERSATION.template],
        variables=variables,
        add_special_tokens=add_special_tokens,
        long=long,
    )
