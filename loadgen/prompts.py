"""What is said: prompts of a given token count, from a seed. Nothing is sent here."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from loadgen.observe import Reading

OWN_TOKENS = 8  # of a cold prompt's start: enough that no two first blocks are alike

_COMMON = (
    " time year people way day man thing woman life child world school state family student group"
    " country problem hand part place case week company system program question work night point"
    " home water room mother area money story fact month lot right study book eye job word business"
    " issue side kind head house service friend father power hour game line end member law car city"
    " name team minute idea body back face others level office door health art war party"
)
WORDS = tuple(_COMMON.split())


@dataclass(frozen=True, slots=True)
class Prompts:
    """How prompts are made for one server.

    `pool` holds token ids, or words (each sent with a space before it); `exact` says that a prompt
    of n pieces is known to be n tokens. `nonce` starts each cold prompt.
    """

    pool: Sequence[int] | Sequence[str]
    exact: bool
    label: str
    nonce: int | None = None

    @property
    def as_ids(self) -> bool:
        return isinstance(self.pool[0], int)

    def pieces(self, i: int, seed: int, tokens: int) -> list[Any]:
        """Draw `tokens` pieces. Request `i` of a cold run begins like no other."""
        drawn: list[Any] = random.Random(seed).choices(self.pool, k=tokens)
        if self.nonce is not None:
            own = min(OWN_TOKENS, tokens)
            drawn[:own] = random.Random(f"{self.nonce}:{i}").choices(self.pool, k=own)
        return drawn


def text_of(pieces: Sequence[str]) -> str:
    return "".join(f" {word}" for word in pieces)


@dataclass(frozen=True, slots=True)
class Target:
    """What the preflight learned of the server."""

    url: str
    model: str
    api: str
    prompts: Prompts
    floorline: bool  # its /metrics are Floorline's
    metrics: bool


@dataclass(slots=True)
class Conversation:
    """The prompt of a session's next turn: all turns and answers before it, and what is new.

    Mutates: `say` and `hear` lengthen the history.
    """

    target: Target
    ids: list[int] = field(default_factory=list)
    text: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)
    tokens: int = 0

    def say(self, i: int, seed: int, tokens: int) -> dict[str, Any]:
        """Add a user's turn and give the request fields that carry the conversation."""
        pieces = self.target.prompts.pieces(i, seed, tokens)
        self.tokens += tokens
        if self.target.api == "chat":
            self.messages.append({"role": "user", "content": text_of(pieces)})
            return {"messages": self.messages}
        if self.target.prompts.as_ids:
            self.ids += pieces
            return {"prompt": self.ids}
        self.text += text_of(pieces)
        return {"prompt": self.text}

    def hear(self, answer: Reading) -> None:
        """Add the answer. Without its token ids an id prompt goes on without the answer."""
        text, ids = "".join(answer.texts), answer.token_ids
        self.messages.append({"role": "assistant", "content": text})
        self.text += text
        self.ids += ids
        used = (answer.usage or {}).get("completion_tokens", 0)
        self.tokens += len(ids) if self.target.prompts.as_ids else used
