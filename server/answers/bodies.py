"""The JSON of answers and chunks, for both routes. Pure: it is told the numbers and the times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from server.answers.choice import Choice, Delta
from server.answers.generation import Generation
from server.answers.logprobs import LogprobWriter
from server.text.tool_parser import CallDelta


class Shape(Protocol):
    """Where the two routes' bodies differ."""

    id_prefix: ClassVar[str]
    object: ClassVar[str]
    chunk_object: ClassVar[str]

    def choice(self, choice: Choice) -> dict[str, Any]:
        """Write a finished choice."""

    def chunk_choices(self, delta: Delta, first: bool) -> list[dict[str, Any]]:
        """Write a delta as the choices of one chunk each; `first` of its choice.

        The delta's tokens belong to the last of them.
        """


@dataclass(frozen=True, slots=True)
class CompletionShape:
    logprobs: LogprobWriter | None = None
    id_prefix: ClassVar[str] = "cmpl-"
    object: ClassVar[str] = "text_completion"
    chunk_object: ClassVar[str] = "text_completion"

    def choice(self, choice: Choice) -> dict[str, Any]:
        return {
            "index": choice.index,
            "text": choice.content,
            "logprobs": self.logprobs and self.logprobs.completion(choice.scored),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }

    def chunk_choices(self, delta: Delta, first: bool) -> list[dict[str, Any]]:
        written = {
            "index": delta.index,
            "text": delta.text,
            "logprobs": self.logprobs and self.logprobs.completion(delta.scored),
            "finish_reason": delta.finish_reason,
        }
        if delta.finish_reason:
            written["stop_reason"] = delta.stop_reason
        return [written]


@dataclass(frozen=True, slots=True)
class ChatShape:
    logprobs: LogprobWriter | None = None
    id_prefix: ClassVar[str] = "chatcmpl-"
    object: ClassVar[str] = "chat.completion"
    chunk_object: ClassVar[str] = "chat.completion.chunk"

    def choice(self, choice: Choice) -> dict[str, Any]:
        return {
            "index": choice.index,
            "message": _message(choice),
            "logprobs": self.logprobs and self.logprobs.chat(choice.scored),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }

    def chunk_choices(self, delta: Delta, first: bool) -> list[dict[str, Any]]:
        changes: list[dict[str, Any]] = [{"role": "assistant", "content": ""}] if first else []
        if delta.text:
            changes.append({"content": delta.text})
        changes += [{"tool_calls": [_call_change(call)]} for call in delta.calls]
        if delta.finish_reason:
            changes.append({})
        written: list[dict[str, Any]] = [
            {"index": delta.index, "delta": change, "logprobs": None, "finish_reason": None}
            for change in changes
        ]
        if delta.finish_reason:
            written[-1] |= {"finish_reason": delta.finish_reason, "stop_reason": delta.stop_reason}
        if self.logprobs is not None and delta.scored:
            written[-1]["logprobs"] = self.logprobs.chat(delta.scored)
        return written


def _message(choice: Choice) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.content, "refusal": None}
    if choice.calls:
        message["content"] = choice.content or None
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in choice.calls
        ]
    return message


def _call_change(call: CallDelta) -> dict[str, Any]:
    """Write more of a call; what begins it names it."""
    if call.name is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"index": call.index, "id": call.id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Head:
    """What all bodies of one request share."""

    id: str
    created: int
    model: str
    fingerprint: str

    def body(self, object: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }


def usage(generation: Generation, completion_tokens: int) -> dict[str, Any]:
    """Count as OpenAI does: every sampled token that was kept, the end-of-sequence one too."""
    return {
        "prompt_tokens": generation.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": generation.prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": generation.cached_tokens},
    }


def answer(
    shape: Shape,
    head: Head,
    generation: Generation,
    cost: Mapping[str, Any] | None,
    extras: Callable[[Choice], Mapping[str, Any]],
) -> dict[str, Any]:
    """Write a whole answer; `extras` adds to each choice what was asked for beyond OpenAI's."""
    choices = [{**shape.choice(choice), **extras(choice)} for choice in generation.choices]
    body = head.body(shape.object, choices)
    body["usage"] = usage(generation, generation.completion_tokens)
    return body if cost is None else {**body, "cost": cost}
