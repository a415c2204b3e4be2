"""How likely each token was, in the two shapes that OpenAI has for it, and in vLLM's for prompts.

Values are the engine's: log-softmax of the raw logits, no lower than -9999.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from core.wire import TokenLogprobs
from server.answers.choice import Scored


class CompletionLogprobs(Struct, forbid_unknown_fields=True):
    """Four lists of one length."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TopLogprob(Struct, forbid_unknown_fields=True):
    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(TopLogprob, forbid_unknown_fields=True):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct, forbid_unknown_fields=True):
    content: list[ChatLogprob]
    refusal: None


class PromptLogprob(Struct, forbid_unknown_fields=True):
    logprob: float
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


@dataclass(frozen=True, slots=True)
class LogprobWriter:
    """Writes tokens as text; `token_bytes` shows special tokens by name."""

    token_bytes: Sequence[bytes]
    top: int  # of the likeliest tokens are told
    as_ids: bool = False  # writes `token_id:7` for a token

    def completion(self, scored: Iterable[Scored]) -> CompletionLogprobs:
        scored = tuple(scored)
        return CompletionLogprobs(
            [self._text(one.token) for one in scored],
            [one.logprobs.logprob if one.logprobs else None for one in scored],
            [self._map(one.logprobs) if one.logprobs else None for one in scored],
            [one.offset for one in scored],
        )

    def chat(self, scored: Iterable[Scored]) -> ChatLogprobs:
        content = [self._entry(one.logprobs) for one in scored if one.logprobs is not None]
        return ChatLogprobs(content, refusal=None)

    def prompt(self, known: Mapping[int, TokenLogprobs], prompt_tokens: int) -> PromptLogprobs:
        """Write each prompt token as a map from ids to values; nothing foretells the first."""
        return [
            None if (one := known.get(at)) is None else self._decoded(one)
            for at in range(prompt_tokens)
        ]

    def _pairs(self, one: TokenLogprobs) -> Iterable[tuple[int, float]]:
        """Give the likeliest tokens, and the sampled one last."""
        return (*one.top[: self.top], (one.token, one.logprob))

    def _map(self, one: TokenLogprobs) -> dict[str, float]:
        """Map texts to values; ids of one text share the likelier's entry."""
        written: dict[str, float] = {}
        for token, value in self._pairs(one):
            written.setdefault(self._text(token), value)
        return written

    def _decoded(self, one: TokenLogprobs) -> dict[str, PromptLogprob]:
        return {str(id): PromptLogprob(value, self._text(id)) for id, value in self._pairs(one)}

    def _entry(self, one: TokenLogprobs) -> ChatLogprob:
        tops = [TopLogprob(*self._value(token, value)) for token, value in one.top[: self.top]]
        return ChatLogprob(*self._value(one.token, one.logprob), tops)

    def _value(self, token: int, value: float) -> tuple[str, float, list[int]]:
        return self._text(token), value, list(self.token_bytes[token])

    def _text(self, token: int) -> str:
        if self.as_ids:
            return f"token_id:{token}"
        return self.token_bytes[token].decode("utf-8", "replace")
