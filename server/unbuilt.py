"""Fields that we know, have not built, and that would change the output: refused by name.

A field's neutral values are accepted, since they ask for what happens anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from core.errors import UnsupportedParameter
from server.fields import Fields


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """What a field's value must be, and which values change nothing (null never does)."""

    kind: str  # integer, number, boolean, or any
    neutral: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0


_OFF: Final = Unbuilt("boolean", (False,))
_ON: Final = Unbuilt("boolean", (True,))
_PENALTY: Final = Unbuilt("number", (0,), -2, 2)

_COMMON: Final[Mapping[str, Unbuilt]] = {
    "n": Unbuilt("integer", (1,), 1, 128),
    "frequency_penalty": _PENALTY,
    "presence_penalty": _PENALTY,
    "repetition_penalty": Unbuilt("number", (1,), 0, 1e9),
    "logit_bias": Unbuilt("any", ({},)),
    "min_tokens": Unbuilt("integer", (0,), 0, 2**31),
    "stop_token_ids": Unbuilt("any", ([],)),
    "include_stop_str_in_output": _OFF,
    "skip_special_tokens": _ON,
    "spaces_between_special_tokens": _ON,
    "truncate_prompt_tokens": Unbuilt("any"),
    "allowed_token_ids": Unbuilt("any"),
    "bad_words": Unbuilt("any", ([],)),
    "prompt_logprobs": Unbuilt("any"),
    "logprob_token_ids": Unbuilt("any"),
    "return_tokens_as_token_ids": _OFF,
    "response_format": Unbuilt("any", ({"type": "text"},)),
    "structured_outputs": Unbuilt("any"),
    "priority": Unbuilt("integer", (0,), -(2**31), 2**31),
    "use_beam_search": _OFF,
    "length_penalty": Unbuilt("number", (1,), -1e9, 1e9),
}

_COMPLETION: Final[Mapping[str, Unbuilt]] = {
    "best_of": Unbuilt("integer", (1,), 0, 20),
    "echo": _OFF,
    "logprobs": Unbuilt("integer", (), 0, 20),
    "suffix": Unbuilt("any"),
    "add_special_tokens": _ON,
}

_CHAT: Final[Mapping[str, Unbuilt]] = {
    "logprobs": _OFF,
    "top_logprobs": Unbuilt("integer", (0,), 0, 20),
    "echo": _OFF,
    "tools": Unbuilt("any", ([],)),
    "tool_choice": Unbuilt("any", ("none",)),
    "functions": Unbuilt("any", ([],)),
    "function_call": Unbuilt("any", ("none",)),
    "reasoning_effort": Unbuilt("any"),
    "modalities": Unbuilt("any", (["text"],)),
    "audio": Unbuilt("any"),
    "web_search_options": Unbuilt("any"),
    "add_generation_prompt": _ON,
    "continue_final_message": _OFF,
    "add_special_tokens": _OFF,
    "chat_template": Unbuilt("any"),
    "chat_template_kwargs": Unbuilt("any", ({},)),
    "documents": Unbuilt("any", ([],)),
    "return_prompt_text": _OFF,
}

COMPLETION_UNBUILT: Final = MappingProxyType({**_COMMON, **_COMPLETION})
CHAT_UNBUILT: Final = MappingProxyType({**_COMMON, **_CHAT})


def refuse_unbuilt(fields: Fields, table: Mapping[str, Unbuilt]) -> None:
    """Let a request pass only if each unbuilt field is absent, null or neutral.

    Raises:
        InvalidType, InvalidValue: it would be wrong even if the field were built.
        UnsupportedParameter: it is right, and we cannot do it yet.
    """
    for name, rule in table.items():
        if fields.get(name) is None:
            continue
        value = _read(fields, name, rule)
        if value not in rule.neutral:
            raise UnsupportedParameter(f"{name} is not supported yet", name)


def _read(fields: Fields, name: str, rule: Unbuilt) -> Any:
    match rule.kind:
        case "boolean":
            return fields.boolean(name)
        case "integer":
            return fields.integer(name, int(rule.low), int(rule.high))
        case "number":
            return fields.number(name, 0.0, rule.low, rule.high)
        case _:
            return fields.get(name)
