"""One validator for both routes: from a request body to what to generate. No tokens are made here.

The context limit and the vocabulary are checked in `server/prompts.py`, once tokens exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from core.errors import EmptyPrompt, InvalidTokenId, InvalidType, InvalidValue
from server.fields import Fields, as_integer, decode_object
from server.unbuilt import CHAT_UNBUILT, COMPLETION_UNBUILT, refuse_unbuilt

MAX_PROMPTS: Final = 128  # in one list
MAX_STOPS: Final = 4
DEFAULT_COMPLETION_TOKENS: Final = 16  # what OpenAI documents for /v1/completions
_INT64: Final = 2**63

Prompt = str | tuple[int, ...]
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationCall:
    """What both routes take. `max_tokens` None fills the room; `seed` None is drawn."""

    model: str | None
    max_tokens: int | None
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int | None
    stop: tuple[str, ...]
    ignore_eos: bool
    stream: bool
    include_usage: bool
    running_usage: bool  # `continuous_usage_stats`
    return_token_ids: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionCall(GenerationCall):
    prompts: tuple[Prompt, ...]
    clamp: bool  # max_tokens was not given: the default shrinks to the room


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall(GenerationCall):
    messages: tuple[Message, ...]


def completion_call(body: bytes) -> CompletionCall:
    """Read the body of /v1/completions.

    Raises:
        RequestError: one of its subclasses, with the field to blame.
    """
    fields = Fields(decode_object(body))
    prompts = _prompts(fields)
    refuse_unbuilt(fields, COMPLETION_UNBUILT)
    given = fields.integer("max_tokens", 0)
    max_tokens = DEFAULT_COMPLETION_TOKENS if given is None else given
    common = _common(fields)
    return CompletionCall(prompts=prompts, clamp=given is None, max_tokens=max_tokens, **common)


def chat_call(body: bytes) -> ChatCall:
    """Read the body of /v1/chat/completions; `max_completion_tokens` wins over `max_tokens`.

    Raises:
        RequestError: one of its subclasses, with the field to blame.
    """
    fields = Fields(decode_object(body))
    messages = _messages(fields)
    refuse_unbuilt(fields, CHAT_UNBUILT)
    older = fields.integer("max_tokens", 0)
    newer = fields.integer("max_completion_tokens", 0)
    max_tokens = older if newer is None else newer
    return ChatCall(messages=messages, max_tokens=max_tokens, **_common(fields))


def _common(fields: Fields) -> dict[str, Any]:
    stream = fields.boolean("stream")
    options = fields.object("stream_options")
    if not stream and fields.get("stream_options"):
        raise InvalidValue("stream_options needs stream to be true", "stream_options")
    include_usage = options.boolean("include_usage")
    return {
        "model": fields.string("model"),
        "stop": _stop(fields),
        "ignore_eos": fields.boolean("ignore_eos"),
        "stream": stream,
        "include_usage": include_usage,
        "running_usage": options.boolean("continuous_usage_stats") and include_usage,
        "return_token_ids": fields.boolean("return_token_ids"),
        **_sampling(fields),
    }


def _sampling(fields: Fields) -> dict[str, Any]:
    """Read how the next token is drawn; `top_k` -1 and 0 both turn it off."""
    top_p = fields.number("top_p", 1.0, 0.0, 1.0)
    if top_p == 0:
        raise InvalidValue("top_p must be above 0 and at most 1", "top_p")
    return {
        "temperature": fields.number("temperature", 1.0, 0.0, 2.0),
        "top_p": top_p,
        "top_k": max(fields.integer("top_k", -1) or 0, 0),
        "min_p": fields.number("min_p", 0.0, 0.0, 1.0),
        "seed": fields.integer("seed", -_INT64, _INT64 - 1),
    }


def _stop(fields: Fields) -> tuple[str, ...]:
    value = fields.get("stop")
    if value is None:
        return ()
    stops = value if isinstance(value, list) else [value]
    if not all(isinstance(stop, str) for stop in stops):
        raise InvalidType("stop must be a string or a list of strings", "stop")
    if len(stops) > MAX_STOPS:
        raise InvalidValue(f"stop holds at most {MAX_STOPS} strings", "stop")
    if "" in stops:
        raise InvalidValue("stop must not hold an empty string", "stop")
    return tuple(stops)


# ── prompts ───────────────────────────────────────────────────────────────────────────────────


def _prompts(fields: Fields) -> tuple[Prompt, ...]:
    """Read the four forms: text, texts, token ids, lists of token ids."""
    if "prompt" in fields and fields.get("prompt") is None:
        raise EmptyPrompt("prompt must not be empty", "prompt")
    value = fields.required("prompt")
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise InvalidType("prompt must be a string, or a list of strings or token ids", "prompt")
    if value and not isinstance(value[0], str | list):
        value = [value]  # one prompt of token ids
    if len(value) > MAX_PROMPTS:
        raise InvalidValue(f"prompt holds at most {MAX_PROMPTS} prompts", "prompt")
    if not value or any(not item and isinstance(item, str | list) for item in value):
        raise EmptyPrompt("prompt must not be empty", "prompt")
    if len({type(item) for item in value}) > 1:
        raise InvalidType("prompt must not mix texts and token ids", "prompt")
    return tuple(item if isinstance(item, str) else _token_ids(item) for item in value)


def _token_ids(items: list[Any]) -> tuple[int, ...]:
    ids = [as_integer(item) for item in items]
    if any(isinstance(item, str | list | bool | dict) or item is None for item in items):
        raise InvalidType("prompt must not mix texts and token ids", "prompt")
    whole = [item for item in ids if item is not None and 0 <= item < _INT64]
    if len(whole) < len(items):
        raise InvalidTokenId("a token id must be an integer of at least 0", "prompt")
    return tuple(whole)


# ── messages ──────────────────────────────────────────────────────────────────────────────────


def _messages(fields: Fields) -> tuple[Message, ...]:
    value = fields.required("messages")
    if not isinstance(value, list):
        raise InvalidType("messages must be a list", "messages")
    if not value:
        raise InvalidValue("messages must not be empty", "messages")
    return tuple(_message(item, f"messages.{index}") for index, item in enumerate(value))


def _message(item: Any, path: str) -> Message:
    if not isinstance(item, dict):
        raise InvalidType(f"{path} must be an object", path)
    message = Fields(item, f"{path}.")
    message.required("role")
    message.string("role")
    if "tool_calls" in item and not item["tool_calls"]:  # null or []: as absent
        item = {key: value for key, value in item.items() if key != "tool_calls"}
    if item.get("content") is None and not ("tool_calls" in item and item["role"] == "assistant"):
        message.required("content")
    return {**item, "content": _content(item.get("content"), f"{path}.content")}


def _content(content: Any, path: str) -> str | None:
    """Read a text, or parts of text, which are joined by line breaks."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise InvalidType(f"{path} must be a string or a list of text parts", path)
    return "\n".join(_part(part, f"{path}.{index}") for index, part in enumerate(content))


def _part(part: Any, path: str) -> str:
    if not isinstance(part, dict):
        raise InvalidType(f"{path} must be an object", path)
    if part.get("type") != "text":
        message = f"{path}.type must be 'text': the model reads nothing else"
        raise InvalidValue(message, f"{path}.type")
    text = Fields(part, f"{path}.").required("text")
    if not isinstance(text, str):
        raise InvalidType(f"{path}.text must be a string", f"{path}.text")
    return text
