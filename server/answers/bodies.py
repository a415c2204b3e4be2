"""The JSON of answers and chunks as types. /openapi.json describes them from these classes.

A field that is `UNSET` is left out; the order of the fields is that of the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from server.answers.logprobs import ChatLogprobs, CompletionLogprobs, PromptLogprobs
from telemetry.bill.cost import CostObject

Whole = Annotated[int, Meta(ge=0)]
Ids = Sequence[Whole]
CompletionEnd = Annotated[str, Meta(extra_json_schema={"enum": ["stop", "length"]})]
ChatEnd = Annotated[str, Meta(extra_json_schema={"enum": ["stop", "length", "tool_calls"]})]
Stop = str | int | None  # the stop string or the caller's stop token id that ended the text


class CachedTokens(Struct, forbid_unknown_fields=True):
    cached_tokens: Whole


class Usage(Struct, forbid_unknown_fields=True):
    prompt_tokens: Whole
    completion_tokens: Whole
    total_tokens: Whole
    prompt_tokens_details: CachedTokens


# ── answers that come whole ───────────────────────────────────────────────────────────────────


class CompletionChoice(Struct, kw_only=True, forbid_unknown_fields=True):
    index: Whole
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: CompletionEnd | None
    stop_reason: Stop
    prompt_token_ids: Ids | UnsetType = UNSET
    token_ids: Ids | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class CalledFunction(Struct, forbid_unknown_fields=True):
    name: str
    arguments: str


class ToolCall(Struct, forbid_unknown_fields=True):
    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(Struct, kw_only=True, forbid_unknown_fields=True):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: Annotated[list[ToolCall], Meta(min_length=1)] | UnsetType = UNSET


class ChatChoice(Struct, kw_only=True, forbid_unknown_fields=True):
    index: Whole
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatEnd | None
    stop_reason: Stop
    prompt_token_ids: Ids | UnsetType = UNSET
    token_ids: Ids | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(Struct, kw_only=True, forbid_unknown_fields=True):
    id: str
    object: Literal["text_completion"]
    created: Whole
    model: str
    system_fingerprint: str
    choices: Annotated[list[CompletionChoice], Meta(min_length=1)]
    usage: Usage
    cost: CostObject | UnsetType = UNSET


class ChatCompletion(Struct, kw_only=True, forbid_unknown_fields=True):
    id: str
    object: Literal["chat.completion"]
    created: Whole
    model: str
    system_fingerprint: str
    choices: Annotated[list[ChatChoice], Meta(min_length=1)]
    usage: Usage
    cost: CostObject | UnsetType = UNSET


# ── chunks of a stream ────────────────────────────────────────────────────────────────────────


class CompletionChunkChoice(Struct, kw_only=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: Stop | UnsetType = UNSET  # with a finish reason only
    prompt_token_ids: Ids | UnsetType = UNSET
    token_ids: Ids | UnsetType = UNSET


class FunctionDelta(Struct, kw_only=True):
    name: str | UnsetType = UNSET  # where the call begins
    arguments: str


class ToolCallDelta(Struct, kw_only=True):
    index: int
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: FunctionDelta


class ChatDelta(Struct, kw_only=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(Struct, kw_only=True):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: Stop | UnsetType = UNSET
    prompt_token_ids: Ids | UnsetType = UNSET
    token_ids: Ids | UnsetType = UNSET


ChunkChoice = CompletionChunkChoice | ChatChunkChoice


class Chunk(Struct, kw_only=True):
    """A chunk of either route."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: Sequence[ChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    cost: CostObject | UnsetType = UNSET
