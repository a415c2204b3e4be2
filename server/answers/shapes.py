"""Where the two routes' answers differ: what a choice and a delta look like. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from msgspec import UNSET

from server.answers.bodies import (
    CalledFunction,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatMessage,
    ChunkChoice,
    Completion,
    CompletionChoice,
    CompletionChunkChoice,
    FunctionDelta,
    ToolCall,
    ToolCallDelta,
    WholeChoice,
)
from server.answers.choice import Choice, Delta
from server.answers.logprobs import LogprobWriter
from server.text.tool_parser import CallDelta


class Shape(Protocol):
    id_prefix: ClassVar[str]
    body: ClassVar[type[Completion | ChatCompletion]]
    object: ClassVar[str]
    chunk_object: ClassVar[str]

    def choice(self, choice: Choice) -> WholeChoice:
        """Write a finished choice."""

    def chunk_choices(self, delta: Delta, first: bool) -> Sequence[ChunkChoice]:
        """Write a delta as the choices of one chunk each; `first` of its choice.

        The delta's tokens belong to the last of them.
        """


@dataclass(frozen=True, slots=True)
class CompletionShape:
    logprobs: LogprobWriter | None
    id_prefix: ClassVar[str] = "cmpl-"
    body: ClassVar[type[Completion | ChatCompletion]] = Completion
    object: ClassVar[str] = "text_completion"
    chunk_object: ClassVar[str] = "text_completion"

    def chunk_choices(self, delta: Delta, first: bool) -> list[CompletionChunkChoice]:
        written = CompletionChunkChoice(
            index=delta.index,
            text=delta.text,
            logprobs=self.logprobs.completion(delta.scored) if self.logprobs else None,
            finish_reason=delta.finish_reason,
            stop_reason=delta.stop_reason if delta.finish_reason else UNSET,
        )
        return [written]

    def choice(self, choice: Choice) -> CompletionChoice:
        return CompletionChoice(
            index=choice.index,
            text=choice.content,
            logprobs=self.logprobs.completion(choice.scored) if self.logprobs else None,
            finish_reason=choice.finish_reason,
            stop_reason=choice.stop_reason,
        )


@dataclass(frozen=True, slots=True)
class ChatShape:
    logprobs: LogprobWriter | None
    id_prefix: ClassVar[str] = "chatcmpl-"
    body: ClassVar[type[Completion | ChatCompletion]] = ChatCompletion
    object: ClassVar[str] = "chat.completion"
    chunk_object: ClassVar[str] = "chat.completion.chunk"

    def chunk_choices(self, delta: Delta, first: bool) -> list[ChatChunkChoice]:
        changes = [ChatDelta(role="assistant", content="")] if first else []
        if delta.text:
            changes.append(ChatDelta(content=delta.text))
        changes += [ChatDelta(tool_calls=[_call_delta(call)]) for call in delta.calls]
        if delta.finish_reason:
            changes.append(ChatDelta())
        written = [ChatChunkChoice(index=delta.index, delta=change) for change in changes]
        last = written[-1]
        if delta.finish_reason:
            last.finish_reason, last.stop_reason = delta.finish_reason, delta.stop_reason
        if self.logprobs is not None and delta.scored:
            last.logprobs = self.logprobs.chat(delta.scored)
        return written

    def choice(self, choice: Choice) -> ChatChoice:
        return ChatChoice(
            index=choice.index,
            message=_message(choice),
            logprobs=self.logprobs.chat(choice.scored) if self.logprobs else None,
            finish_reason=choice.finish_reason,
            stop_reason=choice.stop_reason,
        )


def _message(choice: Choice) -> ChatMessage:
    message = ChatMessage(role="assistant", content=choice.content, refusal=None)
    if choice.calls:
        message.content = choice.content or None
        message.tool_calls = [
            ToolCall(call.id, "function", CalledFunction(call.name, call.arguments))
            for call in choice.calls
        ]
    return message


def _call_delta(call: CallDelta) -> ToolCallDelta:
    """Write more of a call; what begins it names it."""
    if call.name is None:
        return ToolCallDelta(index=call.index, function=FunctionDelta(arguments=call.arguments))
    function = FunctionDelta(name=call.name, arguments=call.arguments)
    return ToolCallDelta(index=call.index, id=call.id, type="function", function=function)
