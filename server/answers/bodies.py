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


WholeChoice = CompletionChoice | ChatChoice
ChunkChoice = CompletionChunkChoice | ChatChunkChoice
AnyChoice = WholeChoice | ChunkChoice
ToldUsage = Usage | UnsetType | None  # null where it comes with another chunk


# ── bodies ────────────────────────────────────────────────────────────────────────────────────


class Body(Struct, kw_only=True, forbid_unknown_fields=True):
    """What whole answers and chunks of both routes share."""

    id: str
    object: str
    created: Whole
    model: str
    system_fingerprint: str
    choices: Sequence[AnyChoice]
    usage: ToldUsage = UNSET
    cost: CostObject | UnsetType = UNSET


class Completion(Body, kw_only=True):
    object: Literal["text_completion"]
    choices: Annotated[Sequence[CompletionChoice], Meta(min_length=1)]
    usage: Usage


class ChatCompletion(Body, kw_only=True):
    object: Literal["chat.completion"]
    choices: Annotated[Sequence[ChatChoice], Meta(min_length=1)]
    usage: Usage


class Chunk(Body, kw_only=True):
    object: Literal["text_completion", "chat.completion.chunk"]
    choices: Sequence[ChunkChoice]
