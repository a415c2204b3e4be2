"""One validator for all routes: from a request body to what to generate. No tokens are made here.

The context limit and the vocabulary are checked in `server/text/prompts.py`, once tokens exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from core.errors import EmptyPrompt, InvalidValue, UnsupportedParameter
from core.request import Grammar, SamplingParams
from core.settings import HttpSettings
from server.contract.conversation import CONVERSATION, Conversation, conversation
from server.contract.fields import Table, built, decode_object, read_fields, table_of
from server.contract.grammars import refuse_conflicts
from server.contract.kinds import Boolean, ListOf, Text, TokenId
from server.contract.prompt_forms import Prompt, PromptForms
from server.contract.table import DEFAULT_COMPLETION_TOKENS, chat_table, completion_table
from server.limits.body_weight import is_long

MAX_DETOKENIZED: Final = 2**18  # ids whose text is asked for
_HUGE: Final = 2**31 - 1  # above any count of tokens; larger ones are read as this

_MODEL: Final = built("model", Text(), "absent: the one that is served")
_TEXTS: Final = built("return_token_strs", Boolean(), "also each token's text", False)
_SPECIAL: Final = "the tokenizer's own around it"
_TOKENIZE_TEXT: Final = (
    built("prompt", Text(), "the text", required=True),
    built("add_special_tokens", Boolean(), _SPECIAL, True),
    *(_MODEL, _TEXTS),
)
_TOKENIZE_CHAT: Final = (
    built("add_special_tokens", Boolean(), _SPECIAL, False),
    *(_MODEL, _TEXTS),
)
_DETOKENIZE: Final = (
    built("tokens", ListOf(TokenId(), MAX_DETOKENIZED), "the ids", required=True),
    _MODEL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationCall:
    """What both routes take. `max_tokens` None fills the room; `seed` None is drawn.

    A default of `max_tokens` shrinks to the room. `sampling` lacks what needs the tokenizer and the
    seed. `logprobs` None tells none.
    """

    model: str | None
    max_tokens: int | None
    max_tokens_field: str | None  # the field that gave it, None where none did
    n: int
    sampling: SamplingParams
    seed: int | None
    bad_words: tuple[str, ...]
    stop: tuple[str, ...]
    stop_token_ids: frozenset[int]
    ignore_eos: bool
    keep_stop: bool  # `include_stop_str_in_output`
    skip_special_tokens: bool
    grammar: Grammar | None
    grammar_param: str  # the field that brought the grammar
    logprobs: int | None
    prompt_logprobs: int | None
    tokens_as_ids: bool
    return_token_ids: bool
    truncate: int | None  # prompt tokens to keep; -1 is what the context holds
    keep_left: bool  # truncation cuts off the right end
    add_special_tokens: bool
    priority: int
    cache_salt: str
    stream: bool
    stream_interval: int
    include_usage: bool
    running_usage: bool  # `continuous_usage_stats`


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionCall(GenerationCall):
    prompts: tuple[Prompt, ...]
    echo: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall(GenerationCall):
    conversation: Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeCall:
    """A text, or a conversation."""

    model: str | None
    prompt: str | Conversation
    add_special_tokens: bool
    with_texts: bool


class Validator:
    """Reads bodies under the operator's limits.

    Raises:
        RequestError: (every reader) one of its subclasses, with the field to blame.
    """

    def __init__(self, limits: HttpSettings) -> None:
        self._depth = limits.max_json_depth
        self.tables: dict[str, Table] = {
            "completion": completion_table(limits, PromptForms(limits.max_prompts)),
            "chat": chat_table(limits, CONVERSATION),
            "tokenize_text": table_of(_TOKENIZE_TEXT),
            "tokenize_chat": table_of([*CONVERSATION, *_TOKENIZE_CHAT]),
            "detokenize": table_of(_DETOKENIZE),
        }

    def completion(self, body: bytes) -> CompletionCall:
        """Read the body of /v1/completions."""
        raw = decode_object(body, self._depth)
        if "prompt" in raw and raw["prompt"] is None:
            raise EmptyPrompt("prompt must not be empty", "prompt")
        values = read_fields(self.tables["completion"], raw)
        if values["best_of"] not in (None, values["n"]):
            raise UnsupportedParameter("best_of is supported only where it equals n", "best_of")
        echo = values["echo"]
        scored = values["logprobs"] if echo else None
        return CompletionCall(
            prompts=values["prompt"],
            echo=echo,
            logprobs=values["logprobs"],
            **_lengths(values, ("max_tokens",), DEFAULT_COMPLETION_TOKENS),
            **_common(raw, values, echoed_logprobs=scored),
        )

    def chat(self, body: bytes) -> ChatCall:
        """Read the body of /v1/chat/completions; `max_completion_tokens` wins over `max_tokens`."""
        raw = decode_object(body, self._depth)
        values = read_fields(self.tables["chat"], raw)
        if values["top_logprobs"] is not None and not values["logprobs"]:
            raise InvalidValue("top_logprobs needs logprobs to be true", "top_logprobs")
        talk = conversation(values, is_long(body))
        return ChatCall(
            conversation=talk,
            logprobs=(values["top_logprobs"] or 0) if values["logprobs"] else None,
            **_lengths(values, ("max_completion_tokens", "max_tokens"), None),
            **_common(raw, values, talk),
        )

    def tokenize(self, body: bytes) -> TokenizeCall:
        """Read the body of /tokenize: the form with `messages`, else the one with `prompt`."""
        raw = decode_object(body, self._depth)
        is_chat = "messages" in raw and "prompt" not in raw
        values = read_fields(self.tables["tokenize_chat" if is_chat else "tokenize_text"], raw)
        return TokenizeCall(
            model=values["model"],
            prompt=conversation(values, is_long(body)) if is_chat else values["prompt"],
            add_special_tokens=values["add_special_tokens"],
            with_texts=values["return_token_strs"],
        )

    def detokenize(self, body: bytes) -> tuple[str | None, tuple[int, ...]]:
        """Read the body of /detokenize: the model's name and the ids."""
        values = read_fields(self.tables["detokenize"], decode_object(body, self._depth))
        return values["model"], values["tokens"]


def _lengths(
    values: Mapping[str, Any], names: Iterable[str], default: int | None
) -> dict[str, Any]:
    """Read how many tokens may come, from the first of the fields `names` that was given.

    Raises:
        InvalidValue: `min_tokens` is above it, or no token of the prompt is to be kept.
    """
    field = next((name for name in names if values[name] is not None), None)
    most = default if field is None else values[field]
    if most is not None and values["min_tokens"] > most:
        words = f"{field or 'max_tokens'}, which is {min(most, _HUGE)}"
        raise InvalidValue(f"min_tokens must be at most {words}", "min_tokens")
    if values["truncate_prompt_tokens"] == 0:
        message = "truncate_prompt_tokens must be -1 or at least 1"
        raise InvalidValue(message, "truncate_prompt_tokens")
    return {"max_tokens": most, "max_tokens_field": field}


def _common(
    raw: Mapping[str, Any],
    values: Mapping[str, Any],
    talk: Conversation | None = None,
    echoed_logprobs: int | None = None,
) -> dict[str, Any]:
    """Read what both routes share; `echoed_logprobs` scores the prompt as well."""
    if not values["stream"] and raw.get("stream_options"):
        raise InvalidValue("stream_options needs stream to be true", "stream_options")
    options = values["stream_options"]
    if values["stream"] and values["prompt_logprobs"] is not None:
        raise InvalidValue("prompt_logprobs cannot be streamed", "prompt_logprobs")
    grammar, param = _grammar(values, talk)
    return {
        "sampling": _sampling(values, echoed_logprobs),
        "stop_token_ids": frozenset(values["stop_token_ids"]),
        "keep_stop": values["include_stop_str_in_output"],
        "grammar": grammar,
        "grammar_param": param,
        "tokens_as_ids": values["return_tokens_as_token_ids"],
        "truncate": values["truncate_prompt_tokens"],
        "keep_left": values["truncation_side"] == "right",
        "include_usage": options["include_usage"],
        "running_usage": options["continuous_usage_stats"] and options["include_usage"],
        **{name: values[name] for name in _AS_READ},
    }


_AS_READ: Final = (
    *("model", "n", "seed", "bad_words", "stop", "ignore_eos", "skip_special_tokens"),
    *("prompt_logprobs", "return_token_ids", "add_special_tokens", "priority", "cache_salt"),
    *("stream", "stream_interval"),
)


def _sampling(values: Mapping[str, Any], echoed_logprobs: int | None) -> SamplingParams:
    asked = values["top_logprobs"] if "top_logprobs" in values else values["logprobs"]
    tells = values["logprobs"] is not None and values["logprobs"] is not False
    prompt = [one for one in (values["prompt_logprobs"], echoed_logprobs) if one is not None]
    return SamplingParams(
        temperature=values["temperature"],
        top_p=values["top_p"],
        top_k=min(max(values["top_k"], 0), _HUGE),
        min_p=values["min_p"],
        frequency_penalty=values["frequency_penalty"],
        presence_penalty=values["presence_penalty"],
        repetition_penalty=values["repetition_penalty"],
        logit_bias=values["logit_bias"],
        min_tokens=min(values["min_tokens"], _HUGE),
        allowed_token_ids=values["allowed_token_ids"],
        logprobs=(asked or 0) if tells else None,
        prompt_logprobs=max(prompt, default=None),
    )


def _grammar(values: Mapping[str, Any], talk: Conversation | None) -> tuple[Grammar | None, str]:
    """Find the one field that shapes the output, if any.

    Raises:
        InvalidValue, UnsupportedParameter: two of them, or a field that does not go with it.
    """
    use = talk.use if talk is not None else None
    sources = {name: values[name] for name in ("response_format", "structured_outputs")}
    asked = [name for name, grammar in sources.items() if grammar is not None]
    if len(asked) > 1:
        message = "response_format and structured_outputs cannot be combined"
        raise InvalidValue(message, "structured_outputs")
    if asked and use is not None:
        raise UnsupportedParameter(f"{asked[0]} cannot be combined with tools", asked[0])
    param = asked[0] if asked else "tools"
    grammar = sources[param] if asked else use.grammar() if use is not None else None
    if grammar is not None:
        refuse_conflicts(values, param)
    return grammar, param
