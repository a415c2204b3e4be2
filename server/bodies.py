"""The JSON of answers and chunks, for both routes. Pure: it is told the numbers and the times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from server.generation import Choice, Delta, Generation


class Shape(Protocol):
    """Where the two routes' bodies differ."""

    id_prefix: str
    object: str
    chunk_object: str

    def choice(self, choice: Choice) -> dict[str, Any]:
        """Write a finished choice."""

    def chunk_choices(self, delta: Delta, first: bool) -> list[dict[str, Any]]:
        """Write a delta as the choices of one chunk each; `first` of its choice."""


class CompletionShape:
    id_prefix = "cmpl-"
    object = "text_completion"
    chunk_object = "text_completion"

    def choice(self, choice: Choice) -> dict[str, Any]:
        return self._choice(choice.index, choice.text, choice.finish_reason)

    def chunk_choices(self, delta: Delta, first: bool) -> list[dict[str, Any]]:
        return [self._choice(delta.index, delta.text, delta.finish_reason)]

    @staticmethod
    def _choice(index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}


class ChatShape:
    id_prefix = "chatcmpl-"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def choice(self, choice: Choice) -> dict[str, Any]:
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": None,
            "finish_reason": choice.finish_reason,
        }

    def chunk_choices(self, delta: Delta, first: bool) -> list[dict[str, Any]]:
        chunks = []
        if first:
            chunks.append(self._chunk(delta.index, {"role": "assistant", "content": ""}, None))
        change = {} if delta.finish_reason else {"content": delta.text}
        return [*chunks, self._chunk(delta.index, change, delta.finish_reason)]

    @staticmethod
    def _chunk(index: int, change: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
        return {"index": index, "delta": change, "logprobs": None, "finish_reason": finish_reason}


COMPLETION = CompletionShape()
CHAT = ChatShape()


@dataclass(frozen=True, slots=True)
class Head:
    """What all bodies of one request share."""

    id: str
    created: int
    model: str

    def body(self, object: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
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
    with_ids: bool,
) -> dict[str, Any]:
    """Write a whole answer; `with_ids` adds the token ids of prompt and output."""
    choices = []
    for choice in generation.choices:
        written = shape.choice(choice)
        if with_ids:
            written["prompt_token_ids"] = choice.submit.prompt_ids
            written["token_ids"] = choice.token_ids
        choices.append(written)
    body = head.body(shape.object, choices)
    body["usage"] = usage(generation, generation.completion_tokens)
    return body if cost is None else {**body, "cost": cost}
