"""How likely each token was, in the two shapes that OpenAI has for it, and in vLLM's for prompts.

Values are the engine's: log-softmax of the raw logits, no lower than -9999.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.wire import TokenLogprobs
from server.answers.choice import Scored


@dataclass(frozen=True, slots=True)
class LogprobWriter:
    """Writes tokens as text; `token_bytes` shows special tokens by name.

    `top` is how many of the likeliest tokens are told; `as_ids` writes `token_id:7` for a token.
    """

    token_bytes: Sequence[bytes]
    top: int
    as_ids: bool = False

    def completion(self, scored: Iterable[Scored]) -> dict[str, list[Any]]:
        """Write the completions object: four lists of one length."""
        scored = tuple(scored)
        return {
            "tokens": [self._text(one.token) for one in scored],
            "token_logprobs": [one.logprobs and one.logprobs.logprob for one in scored],
            "top_logprobs": [one.logprobs and self._map(one.logprobs) for one in scored],
            "text_offset": [one.offset for one in scored],
        }

    def chat(self, scored: Iterable[Scored]) -> dict[str, Any]:
        content = [self._entry(one.logprobs) for one in scored if one.logprobs is not None]
        return {"content": content, "refusal": None}

    def prompt(
        self, known: Mapping[int, TokenLogprobs], prompt_tokens: int
    ) -> list[dict[str, Any] | None]:
        """Write each prompt token as a map from ids to values; nothing foretells the first."""
        written: list[dict[str, Any] | None] = []
        for at in range(prompt_tokens):
            one = known.get(at)
            if one is None:
                written.append(None)
                continue
            pairs = (*one.top[: self.top], (one.token, one.logprob))
            written.append({str(id): self._decoded(id, value) for id, value in pairs})
        return written

    def _map(self, one: TokenLogprobs) -> dict[str, float]:
        """Map the likeliest and the sampled token; ids of one text share the likelier's entry."""
        pairs = (*one.top[: self.top], (one.token, one.logprob))
        written: dict[str, float] = {}
        for token, value in pairs:
            written.setdefault(self._text(token), value)
        return written

    def _entry(self, one: TokenLogprobs) -> dict[str, Any]:
        tops = [self._value(token, value) for token, value in one.top[: self.top]]
        return {**self._value(one.token, one.logprob), "top_logprobs": tops}

    def _value(self, token: int, value: float) -> dict[str, Any]:
        spelled = list(self.token_bytes[token])
        return {"token": self._text(token), "logprob": value, "bytes": spelled}

    def _decoded(self, token: int, value: float) -> dict[str, Any]:
        return {"logprob": value, "decoded_token": self._text(token)}

    def _text(self, token: int) -> str:
        if self.as_ids:
            return f"token_id:{token}"
        return self.token_bytes[token].decode("utf-8", "replace")
