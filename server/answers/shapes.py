"""Where the two routes' answers differ: what a choice and a delta look like. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from msgspec import UNSET, UnsetType

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
    Usage,
)
from server.answers.choice import Choice, Delta
from server.answers.logprobs import LogprobWriter
from server.contract.validation import ChatCall, GenerationCall
from server.text.tool_parser import CallDelta
from telemetry.bill.cost import CostObject

WholeChoice = TypeVar("WholeChoice", CompletionChoice, ChatChoice)
Cost = CostObject | UnsetType


@dataclass(frozen=True, slots=True)
class Head:
    """What all bodies of one request share."""

    id: str
    created: int
    model: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Extras:
    """What whole choices have beyond OpenAI's fields, where it was asked for."""

    token_ids: bool = False
    prompt_logprobs: LogprobWriter | None = None

    def add(self, written: WholeChoice, choice: Choice) -> WholeChoice:
        prompt_ids = choice.submit.prompt_ids
        if self.token_ids:
            written.prompt_token_ids, written.token_ids = prompt_ids, choice.token_ids
        if self.prompt_logprobs is not None:
            known = choice.prompt_logprobs
            written.prompt_logprobs = self.prompt_logprobs.prompt(known, len(prompt_ids))
        return written


class Shape(Protocol):
    id_prefix: ClassVar[str]
    chunk_object: ClassVar[str]

    def whole(
        self, head: Head, choices: Sequence[Choice], usage: Usage, cost: Cost
    ) -> Completion | ChatCompletion: ...

    def chunk_choices(self, delta: Delta, first: bool) -> Sequence[ChunkChoice]:
        """Write a delta as the choices of one chunk each; `first` of its choice.

        The delta's tokens belong to the last of them.
        """


@dataclass(frozen=True, slots=True)
class CompletionShape:
    logprobs: LogprobWriter | None
    extras: Extras
    id_prefix: ClassVar[str] = "cmpl-"
    chunk_object: ClassVar[str] = "text_completion"

    def whole(self, head: Head, choices: Sequence[Choice], usage: Usage, cost: Cost) -> Completion:
        return Completion(
            id=head.id,
            object="text_completion",
            created=head.created,
            model=head.model,
            system_fingerprint=head.fingerprint,
            choices=[self.extras.add(self._choice(choice), choice) for choice in choices],
            usage=usage,
            cost=cost,
        )

    def chunk_choices(self, delta: Delta, first: bool) -> list[CompletionChunkChoice]:
        written = CompletionChunkChoice(
            index=delta.index,
            text=delta.text,
            logprobs=self.logprobs.completion(delta.scored) if self.logprobs else None,
            finish_reason=delta.finish_reason,
            stop_reason=delta.stop_reason if delta.finish_reason else UNSET,
        )
        return [written]

    def _choice(self, choice: Choice) -> CompletionChoice:
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
    extras: Extras
    id_prefix: ClassVar[str] = "chatcmpl-"
    chunk_object: ClassVar[str] = "chat.completion.chunk"

    def whole(
        self, head: Head, choices: Sequence[Choice], usage: Usage, cost: Cost
    ) -> ChatCompletion:
        return ChatCompletion(
            id=head.id,
            object="chat.completion",
            created=head.created,
            model=head.model,
            system_fingerprint=head.fingerprint,
            choices=[self.extras.add(self._choice(choice), choice) for choice in choices],
            usage=usage,
            cost=cost,
        )

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

    def _choice(self, choice: Choice) -> ChatChoice:
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


def shape_of(call: GenerationCall, shown_bytes: Sequence[bytes]) -> Shape:
    """Choose the route's shape; logprobs write tokens as `shown_bytes` has them."""

    def writer(top: int | None) -> LogprobWriter | None:
        return None if top is None else LogprobWriter(shown_bytes, top, call.tokens_as_ids)

    shape = ChatShape if isinstance(call, ChatCall) else CompletionShape
    return shape(writer(call.logprobs), Extras(call.return_token_ids, writer(call.prompt_logprobs)))
