"""What must be known before the clock starts: model, prompts, limits. One small request is sent."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace
from typing import Any

from core.errors import SettingsError
from loadgen.client import PATHS, Client
from loadgen.plan import Plan
from loadgen.prompts import WORDS, Conversation, Prompts, Target, text_of
from loadgen.spec import RunSpec

PROBE_TOKENS = 8


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
        raise SettingsError(f"the plan needs {longest} tokens of context; {model} has {limit}")
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
    if spec.model is None and not cards:
        raise SettingsError(f"{client.url}/v1/models lists no model; name one with --model")
    model = spec.model or next(iter(cards))
    if cards and model not in cards:
        raise SettingsError(f"--model {model}: the server has {', '.join(cards)}")
    return model, cards.get(model, {})


async def _prompts(client: Client, spec: RunSpec, model: str, card: dict[str, Any]) -> Prompts:
    """Choose the most exact prompts that the server can take."""
    vocab_size = card.get("vocab_size")
    if spec.api == "completions" and isinstance(vocab_size, int):
        return Prompts(range(vocab_size), True, "token ids, exact")
    ids = await _tokenize(client, model, text_of(WORDS))
    if spec.api == "completions" and ids:
        return Prompts(list(dict.fromkeys(ids)), True, "token ids from /tokenize, exact")
    if len(ids) == len(WORDS):
        return Prompts(WORDS, False, "words of one token by /tokenize; the template adds its own")
    return Prompts(WORDS, False, "words, approximate")


async def _tokenize(client: Client, model: str, text: str) -> list[int]:
    """Ask vLLM's or llama.cpp's /tokenize; empty where the server has none."""
    fields = {"model": model, "prompt": text, "content": text, "add_special_tokens": False}
    answer = await client.ask("/tokenize", fields)
    with suppress(ValueError, KeyError, TypeError):
        tokens = answer.json()["tokens"]
        if all(isinstance(token, int) for token in tokens):
            return list(tokens)
    return []


async def _try_one(client: Client, spec: RunSpec, target: Target) -> Target:
    """Generate one token, and fall back to words where the server takes no token ids."""
    prompt = Conversation(target).say(-1, 0, PROBE_TOKENS)
    fields = {"model": target.model, "max_tokens": 1, **prompt, **(spec.body or {})}
    answer = await client.ask(PATHS[target.api], fields, spec.timeout)
    if answer.status_code == 200:
        return target
    if answer.status_code in (400, 422) and target.prompts.as_ids:
        words = Prompts(WORDS, False, "words, approximate", target.prompts.nonce)
        return await _try_one(client, spec, replace(target, prompts=words))
    text = " ".join(answer.text.split())[:200]
    raise SettingsError(f"{client.url}{PATHS[target.api]} answers {answer.status_code}: {text}")
