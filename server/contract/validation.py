"""One validator for all routes: from a request body to what to generate. No tokens are made here.

The context limit and the vocabulary are checked in `server/text/prompts.py`, once tokens exist.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from core.errors import EmptyPrompt, InvalidValue, UnsupportedParameter
from core.request import Grammar, SamplingParams
from core.settings import HttpSettings
from server.contract.conversation import ChatPrompt, conversation
from server.contract.grammars import BESIDE_TOOLS, refuse_conflicts
from server.contract.prompt_forms import Prompt
from server.contract.schemas import SchemaRules
from server.contract.table import (
    DEFAULT_COMPLETION_TOKENS,
    ChatFields,
    CommonFields,
    CompletionFields,
    DetokenizeFields,
    OutputFields,
    SamplingFields,
    TokenizeChatFields,
    TokenizeTextFields,
)
from server.contract.tools import ToolUse
from server.limits.body_weight import is_long
from server.schema.fields import Field, Table, Values, decode_object, read_fields

_HUGE: Final = 2**31 - 1  # above any count of tokens; larger ones are read as this


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
    conversation: ChatPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeCall:
    """A text, or a conversation."""

    model: str | None
    prompt: str | ChatPrompt
    add_special_tokens: bool
    with_texts: bool


class Validator:
    """Reads bodies under the operator's limits.

    Raises:
        RequestError: (every reader) one of its subclasses, with the field to blame.
    """

    def __init__(self, limits: HttpSettings) -> None:
        self._depth, self._rules = limits.max_json_depth, SchemaRules.of(limits)
        self._completion, self._chat = CompletionFields(limits), ChatFields(limits)
        self._tokenize_text, self._tokenize_chat = TokenizeTextFields(), TokenizeChatFields()
        self._detokenize = DetokenizeFields()
        self.tables: dict[str, Table] = {
            "completion": self._completion.table,
            "chat": self._chat.table,
            "tokenize_text": self._tokenize_text.table,
            "tokenize_chat": self._tokenize_chat.table,
            "detokenize": self._detokenize.table,
        }

    def completion(self, body: bytes) -> CompletionCall:
        """Read the body of /v1/completions."""
        raw = decode_object(body, self._depth)
        if "prompt" in raw and raw["prompt"] is None:
            raise EmptyPrompt("prompt must not be empty", "prompt")
        fields, values = self._completion, read_fields(self.tables["completion"], raw)
        common = fields.common
        if values[fields.best_of] not in (None, values[common.sampling.n]):
            raise UnsupportedParameter("best_of is supported only where it equals n", "best_of")
        lengths = _lengths(values, common, (common.max_tokens,), DEFAULT_COMPLETION_TOKENS)
        echo, logprobs = values[fields.echo], values[fields.logprobs]
        shape = _grammar(values, common.output, None, self._rules)
        call = _common(values, common, lengths, logprobs, shape, scores_prompt=echo)
        return CompletionCall(prompts=values[fields.prompt], echo=echo, **_shared(call))

    def chat(self, body: bytes) -> ChatCall:
        """Read the body of /v1/chat/completions; `max_completion_tokens` wins over `max_tokens`."""
        values = read_fields(self.tables["chat"], decode_object(body, self._depth))
        fields, common = self._chat, self._chat.common
        if values[fields.top] is not None and not values[fields.logprobs]:
            raise InvalidValue("top_logprobs needs logprobs to be true", "top_logprobs")
        talk = conversation(values, values[common.special], is_long(body))
        lengths = _lengths(values, common, (fields.max_tokens, common.max_tokens), None)
        logprobs = (values[fields.top] or 0) if values[fields.logprobs] else None
        shape = _grammar(values, common.output, talk.use, self._rules)
        call = _common(values, common, lengths, logprobs, shape)
        return ChatCall(conversation=talk, **_shared(call))

    def tokenize(self, body: bytes) -> TokenizeCall:
        """Read the body of /tokenize: the form with `messages`, or the one with `prompt`."""
        raw = decode_object(body, self._depth)
        prompt: str | ChatPrompt
        talks = raw.get("messages") is not None
        if talks and raw.get("prompt") is not None:
            raise InvalidValue("prompt cannot be combined with messages", "prompt")
        if talks:
            common = self._tokenize_chat.common
            values = read_fields(self.tables["tokenize_chat"], raw)
            prompt = conversation(values, values[common.special], is_long(body))
        else:
            common = self._tokenize_text.common
            values = read_fields(self.tables["tokenize_text"], raw)
            prompt = values[self._tokenize_text.prompt]
        return TokenizeCall(
            model=values[common.model],
            prompt=prompt,
            add_special_tokens=values[common.special],
            with_texts=values[common.texts],
        )

    def detokenize(self, body: bytes) -> tuple[str | None, tuple[int, ...]]:
        """Read the body of /detokenize: the model's name and the ids."""
        fields = self._detokenize
        values = read_fields(self.tables["detokenize"], decode_object(body, self._depth))
        return values[fields.model], values[fields.tokens]


def _shared(call: GenerationCall) -> dict[str, Any]:
    """Give the checked fields of a call to a call of one route, which has them all."""
    return {field.name: getattr(call, field.name) for field in dataclasses.fields(GenerationCall)}


def _lengths(
    values: Values, common: CommonFields, fields: Iterable[Field[int | None]], default: int | None
) -> tuple[int | None, str | None]:
    """Read how many tokens may come, and the name of the first of `fields` that was given.

    Raises:
        InvalidValue: `min_tokens` is above it, or no token of the prompt is to be kept.
    """
    field = next((field for field in fields if values[field] is not None), None)
    most, name = (default, None) if field is None else (values[field], field.name)
    if most is not None and values[common.sampling.min_tokens] > most:
        words = f"{name or 'max_tokens'}, which is {min(most, _HUGE)}"
        raise InvalidValue(f"min_tokens must be at most {words}", "min_tokens")
    if values[common.truncate] == 0:
        message = "truncate_prompt_tokens must be -1 or at least 1"
        raise InvalidValue(message, "truncate_prompt_tokens")
    return most, name


def _common(
    values: Values,
    common: CommonFields,
    lengths: tuple[int | None, str | None],
    logprobs: int | None,
    shape: tuple[Grammar | None, str],
    scores_prompt: bool = False,
) -> GenerationCall:
    """Read what both routes share; `shape` is the grammar, and the field that brought it.

    `scores_prompt` scores an echoed prompt as the answer is.
    """
    sampling, ends, output = common.sampling, common.ends, common.output
    stream, options = values[output.stream], values[output.options]
    if not stream and values.sent(output.options):
        raise InvalidValue("stream_options needs stream to be true", "stream_options")
    prompt_logprobs = values[output.prompt_logprobs]
    if stream and prompt_logprobs is not None:
        raise InvalidValue("prompt_logprobs cannot be streamed", "prompt_logprobs")
    scored = [prompt_logprobs, logprobs if scores_prompt else None]
    return GenerationCall(
        model=values[common.model],
        max_tokens=lengths[0],
        max_tokens_field=lengths[1],
        n=values[sampling.n],
        sampling=_sampling(values, sampling, logprobs, scored),
        seed=values[sampling.seed],
        bad_words=values[sampling.bad_words],
        stop=values[ends.stop],
        stop_token_ids=frozenset(values[ends.stop_token_ids]),
        ignore_eos=values[ends.ignore_eos],
        keep_stop=values[ends.keep_stop],
        skip_special_tokens=values[output.skip_special_tokens],
        grammar=shape[0],
        grammar_param=shape[1],
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        tokens_as_ids=values[output.tokens_as_ids],
        return_token_ids=values[output.token_ids],
        truncate=values[common.truncate],
        keep_left=values[common.truncation_side] == "right",
        add_special_tokens=values[common.special],
        priority=values[common.priority],
        cache_salt=values[common.cache_salt],
        stream=stream,
        stream_interval=values[output.interval],
        include_usage=options.include_usage,
        running_usage=options.continuous_usage_stats and options.include_usage,
    )


def _sampling(
    values: Values, fields: SamplingFields, logprobs: int | None, scored: Iterable[int | None]
) -> SamplingParams:
    """Read the parameters; `scored` asks for logprobs of the prompt's tokens, the most of them."""
    return SamplingParams(
        temperature=values[fields.temperature],
        top_p=values[fields.top_p],
        top_k=min(max(values[fields.top_k], 0), _HUGE),
        min_p=values[fields.min_p],
        frequency_penalty=values[fields.frequency_penalty],
        presence_penalty=values[fields.presence_penalty],
        repetition_penalty=values[fields.repetition_penalty],
        logit_bias=values[fields.logit_bias],
        min_tokens=min(values[fields.min_tokens], _HUGE),
        allowed_token_ids=values[fields.allowed],
        logprobs=logprobs,
        prompt_logprobs=max((one for one in scored if one is not None), default=None),
    )


def _grammar(
    values: Values, output: OutputFields, use: ToolUse | None, rules: SchemaRules
) -> tuple[Grammar | None, str]:
    """Find what shapes the output, and the field to blame for it.

    Raises:
        InvalidValue, UnsupportedParameter: two of them, or a field that does not go with it.
    """
    sources = (output.response_format, output.structured_outputs)
    asked = [(field.name, values[field]) for field in sources if values[field] is not None]
    if len(asked) > 1:
        message = "response_format and structured_outputs cannot be combined"
        raise InvalidValue(message, "structured_outputs")
    param, grammar = asked[0] if asked else ("tools", None)
    if use is not None:
        if grammar is not None and grammar.kind not in BESIDE_TOOLS:
            raise UnsupportedParameter(f"{param} of this kind cannot be combined with tools", param)
        param, grammar = "tools" if use.enforced else param, use.grammar(rules, grammar)
    if grammar is not None:
        refuse_conflicts(values, param)
    return grammar, param
