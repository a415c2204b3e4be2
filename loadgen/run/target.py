"""The server that is measured: what is known of it before the clock starts, and what is said to it.

Prompts have a given token count and come from a seed. One small request is sent.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from httpx import Response

from core.errors import SettingsError
from loadgen.load.plan import Plan, Planned
from loadgen.load.spec import RunSpec
from loadgen.run.client import Client
from loadgen.run.record import Reading

PROBE = Planned(i=-1, t_s=0.0, prompt_tokens=8, output_tokens=1, prompt_seed=0)
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
class PromptSource:
    """How prompts are made for one server."""

    pool: Sequence[int] | Sequence[str]  # token ids, or words (each sent with a space before it)
    exact: bool  # a prompt of n pieces is known to be n tokens
    label: str
    nonce: int | None = None  # seeds the start of each cold prompt

    @property
    def as_ids(self) -> bool:
        return isinstance(self.pool[0], int)

    def pieces(self, of: Planned) -> list[Any]:
        """Draw a request's pieces. In a cold run each begins like no other."""
        drawn: list[Any] = random.Random(of.prompt_seed).choices(self.pool, k=of.prompt_tokens)
        if self.nonce is not None:
            own = min(OWN_TOKENS, of.prompt_tokens)
            drawn[:own] = random.Random(f"{self.nonce}:{of.i}").choices(self.pool, k=own)
        return drawn


def text_of(pieces: Sequence[str]) -> str:
    return "".join(f" {word}" for word in pieces)


@dataclass(frozen=True, slots=True)
class Target:
    """What the preflight learned of the server."""

    url: str
    model: str
    api: str
    prompts: PromptSource
    floorline: bool  # its /metrics are Floorline's
    metrics: bool  # it has /metrics

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.api == "chat" else "/v1/completions"


@dataclass(slots=True)
class Dialogue:
    """The prompt of a session's next turn: all turns and answers before it, and what is new.

    Mutates: `say` and `hear` lengthen the history.
    """

    target: Target
    ids: list[int] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)
    tokens: int = 0

    def say(self, turn: Planned) -> dict[str, Any]:
        """Add a user's turn and give the request fields that carry the conversation."""
        pieces = self.target.prompts.pieces(turn)
        self.tokens += turn.prompt_tokens
        if self.target.prompts.as_ids:
            self.ids += pieces
            return {"model": self.target.model, "prompt": self.ids}
        self.messages.append({"role": "user", "content": text_of(pieces)})
        if self.target.api == "chat":
            return {"model": self.target.model, "messages": self.messages}
        text = "".join(message["content"] for message in self.messages)
        return {"model": self.target.model, "prompt": text}

    def hear(self, answer: Reading) -> None:
        """Add the answer. Without its token ids an id prompt goes on without the answer."""
        self.messages.append({"role": "assistant", "content": "".join(answer.texts)})
        self.ids += answer.token_ids
        used = (answer.usage or {}).get("completion_tokens", 0)
        self.tokens += len(answer.token_ids) if self.target.prompts.as_ids else used


APPROXIMATE = PromptSource(WORDS, False, "words, approximate")


async def inspect(client: Client, spec: RunSpec, plan: Plan) -> Target:
    """Ask the server what it is and try one token.

    Raises:
        SettingsError: unreachable, a wrong key, another model, a context too small for the plan.
    """
    model, card = await _model(client, spec)
    metrics = await client.metrics()
    prompts = await _prompts(client, spec, model, card)
    if spec.cache == "cold":
        prompts = replace(prompts, nonce=secrets.randbits(64))
    limit = card.get("max_model_len")
    longest = max(turn.prompt_tokens + turn.output_tokens for turn in plan.requests)
    if isinstance(limit, int) and longest > limit:
        raise SettingsError(
            f"the plan needs {longest} tokens of context; {model} has {limit}: "
            "lower --prompt or --output"
        )
    known, floorline = metrics is not None, "floorline_" in (metrics or "")
    target = Target(client.url, model, spec.api, prompts, floorline=floorline, metrics=known)
    return await _try_one(client, spec, target)


async def _model(client: Client, spec: RunSpec) -> tuple[str, dict[str, Any]]:
    answer = await client.ask("/v1/models")
    if answer.status_code in (401, 403):
        raise SettingsError(f"{client.url} refuses the API key ({answer.status_code})")
    cards: dict[str, Any] = {}
    with suppress(ValueError, KeyError, TypeError):
        cards = {card["id"]: card for card in answer.json()["data"]}
    if not spec.model and answer.status_code != 200:
        raise SettingsError(f"{_told(client, '/v1/models', answer)}; or name a model with --model")
    if not spec.model and not cards:
        raise SettingsError(f"{client.url}/v1/models lists no model; name one with --model")
    model = spec.model or next(iter(cards))
    if cards and model not in cards:
        raise SettingsError(f"--model {model}: the server has {', '.join(cards)}")
    return model, cards.get(model, {})


async def _prompts(client: Client, spec: RunSpec, model: str, card: dict[str, Any]) -> PromptSource:
    """Choose the most exact prompts that the server can take; vLLM and llama.cpp can tokenize."""
    vocab_size, text = card.get("vocab_size"), text_of(WORDS)
    if spec.api == "completions" and isinstance(vocab_size, int):
        return PromptSource(range(vocab_size), True, "token ids, exact")
    fields = {"model": model, "prompt": text, "content": text, "add_special_tokens": False}
    answer = await client.ask("/tokenize", fields)
    ids: list[Any] = []
    with suppress(ValueError, KeyError, TypeError):
        ids = [token for token in answer.json()["tokens"] if isinstance(token, int)]
    if spec.api == "completions" and ids:
        return PromptSource(list(dict.fromkeys(ids)), True, "token ids from /tokenize, exact")
    if len(ids) == len(WORDS):
        label = "words of one token by /tokenize; the template adds its own"
        return replace(APPROXIMATE, label=label)
    return APPROXIMATE


async def _try_one(client: Client, spec: RunSpec, target: Target) -> Target:
    """Generate one token, and fall back to words where the server takes no token ids."""
    body = {"max_tokens": 1, **Dialogue(target).say(PROBE), **(spec.body or {})}
    answer = await client.ask(target.path, body, spec.timeout)
    if answer.status_code == 200:
        return target
    if answer.status_code in (400, 422) and target.prompts.as_ids:
        words = replace(APPROXIMATE, nonce=target.prompts.nonce)
        return await _try_one(client, spec, replace(target, prompts=words))
    raise SettingsError(_told(client, target.path, answer))


def _told(client: Client, path: str, answer: Response) -> str:
    text = " ".join(answer.text.split())[:200] or answer.reason_phrase
    return f"{client.url}{path} answers {answer.status_code}: {text}"
