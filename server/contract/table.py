"""Every field of every route: what it may be, its default, what it does. One place.

A field that is in no table is unknown, and ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from core.settings import HttpSettings
from server.contract.conversation import CONVERSATION
from server.contract.grammars import ResponseFormatKind, StructuredOutputsKind
from server.contract.prompt_forms import PromptForms
from server.contract.schemas import SchemaRules
from server.schema.fields import FieldGroup, Structure, Values, built, ignored, refused
from server.schema.kinds import (
    INT64,
    Anything,
    Biases,
    Boolean,
    Integer,
    ListOf,
    Number,
    OneOf,
    Text,
    TokenId,
)

DEFAULT_COMPLETION_TOKENS: Final = 16  # what OpenAI documents for /v1/completions
MAX_BIASES: Final = 1024
MAX_BAD_WORDS: Final = 128
MAX_STOP_TOKEN_IDS: Final = 128
MAX_ALLOWED_IDS: Final = 2**18  # as many as the largest vocabularies have
MAX_DETOKENIZED: Final = 2**18  # ids whose text is asked for
_INT32: Final = 2**31


@dataclass(frozen=True, slots=True)
class StreamOptions:
    include_usage: bool = False
    continuous_usage_stats: bool = False


class _StreamOptionFields(FieldGroup):
    def __init__(self) -> None:
        self.usage = built("include_usage", Boolean(), "a last chunk with usage", False)
        note = "with usage: running usage on all chunks"
        self.running = built("continuous_usage_stats", Boolean(), note, False)
        self.others = ignored("nothing is obfuscated", "include_obfuscation")

    def read(self, values: Values) -> StreamOptions:
        return StreamOptions(values[self.usage], values[self.running])


_STREAM_OPTIONS: Final = _StreamOptionFields()
STREAM_OPTIONS: Final = Structure(_STREAM_OPTIONS.table, _STREAM_OPTIONS.read)


class SamplingFields(FieldGroup):
    def __init__(self, limits: HttpSettings) -> None:
        self.temperature = built("temperature", Number(0, 2), "0 is greedy", 1.0)
        self.top_p = built("top_p", Number(0, 1, above_low=True), "nucleus", 1.0)
        self.top_k = built("top_k", Integer(-1), "-1 and 0: off", 0)
        note = "least probability, relative to the likeliest"
        self.min_p = built("min_p", Number(0, 1), note, 0.0)
        note = "the same tokens alone and in any batch"
        self.seed = built("seed", Integer(-INT64, INT64 - 1), note)
        self.n = built("n", Integer(1, limits.max_n), "choices per prompt", 1)
        note = "per occurrence in the output"
        self.frequency_penalty = built("frequency_penalty", Number(-2, 2), note, 0.0)
        note = "once for a token of the output"
        self.presence_penalty = built("presence_penalty", Number(-2, 2), note, 0.0)
        note = "divides logits of tokens of both sides"
        self.repetition_penalty = built("repetition_penalty", Number(0.01, 100), note, 1.0)
        note = "added to logits, at temperature 0 too"
        self.logit_bias = built("logit_bias", Biases(MAX_BIASES), note, ())
        ids = ListOf(TokenId(), MAX_ALLOWED_IDS, least=1)
        self.allowed = built("allowed_token_ids", ids, "no other token is sampled", ())
        words = ListOf(Text(1, 64), MAX_BAD_WORDS)
        self.bad_words = built(
            "bad_words", words, "texts that never come, as tokens spell them", ()
        )
        note = "before so many, nothing stops the output"
        self.min_tokens = built("min_tokens", Integer(0), note, 0)


class EndFields(FieldGroup):
    def __init__(self, limits: HttpSettings) -> None:
        texts = ListOf(Text(1, 4096), limits.max_stop, lone=True)
        self.stop = built("stop", texts, "cut from the text", ())
        ids = ListOf(TokenId(), MAX_STOP_TOKEN_IDS)
        self.stop_token_ids = built("stop_token_ids", ids, "end the output", ())
        self.ignore_eos = built("ignore_eos", Boolean(), "go on past the end of sequence", False)
        note = "leave the stop in the text"
        self.keep_stop = built("include_stop_str_in_output", Boolean(), note, False)


class OutputFields(FieldGroup):
    def __init__(self, limits: HttpSettings) -> None:
        self.stream = built("stream", Boolean(), "server-sent events", False)
        options = StreamOptions()
        self.options = built("stream_options", STREAM_OPTIONS, "only with stream", options)
        note = "tokens per chunk at least, but the first's"
        self.interval = built("stream_interval", Integer(1, 1024), note, 1)
        note = "leave special tokens out of the text"
        self.skip_special_tokens = built("skip_special_tokens", Boolean(), note, True)
        note = "adds prompt_token_ids and token_ids"
        self.token_ids = built("return_token_ids", Boolean(), note, False)
        note = "logprobs write token_id:N"
        self.tokens_as_ids = built("return_tokens_as_token_ids", Boolean(), note, False)
        top = Integer(0, limits.max_logprobs)
        self.prompt_logprobs = built("prompt_logprobs", top, "each prompt token; not streamed")
        note = "text, json_object or json_schema"
        rules = SchemaRules.of(limits)
        self.response_format = built("response_format", ResponseFormatKind(rules), note)
        note = "json, regex, choice or grammar (Lark)"
        kind = StructuredOutputsKind(rules)
        self.structured_outputs = built("structured_outputs", kind, note)


class CommonFields(FieldGroup):
    """What both inference routes take."""

    def __init__(self, limits: HttpSettings, adds_special_tokens: bool) -> None:
        self.model = built("model", Text(), "absent: the one that is served")
        note = "at most so many; absent: see the end of this page"
        self.max_tokens = built("max_tokens", Integer(0), note)
        self.sampling = SamplingFields(limits)
        self.ends = EndFields(limits)
        self.output = OutputFields(limits)
        note = "keep so many; -1: what the context holds"
        self.truncate = built("truncate_prompt_tokens", Integer(-1), note)
        sides = OneOf(("left", "right"))
        self.truncation_side = built("truncation_side", sides, "which end is cut off", "left")
        note = "the tokenizer's own around it"
        self.special = built("add_special_tokens", Boolean(), note, adds_special_tokens)
        self.priority = built("priority", Integer(-_INT32, _INT32 - 1), "lower is sooner", 0)
        salt = Text(1, 128, r"[^@/\\\x00]+")
        self.cache_salt = built("cache_salt", salt, "shares no cached prefix", "")
        self.others = [
            refused("logprob_token_ids", Anything(), "logprobs of given tokens"),
            *(
                refused(f"guided_{form}", Anything(), "use structured_outputs")
                for form in ("json", "regex", "choice", "grammar")
            ),
            refused("use_beam_search", Boolean(), "beam search", False),
            refused("length_penalty", Number(-1e9, 1e9), "for beam search", 1),
            *ignored("names the request to its sender", "user", "request_id", "metadata", "store"),
            *ignored("for another kind of tokenizer", "spaces_between_special_tokens"),
        ]


class CompletionFields(FieldGroup):
    def __init__(self, limits: HttpSettings) -> None:
        forms = PromptForms(limits.max_prompts)
        note = "text, texts, token ids, or lists of them"
        self.prompt = built("prompt", forms, note, required=True)
        self.common = CommonFields(limits, adds_special_tokens=True)
        self.best_of = built("best_of", Integer(0, 20), "as n, or absent")
        note = "the prompt before the text; scores it, with logprobs"
        self.echo = built("echo", Boolean(), note, False)
        top = Integer(0, limits.max_logprobs)
        self.logprobs = built("logprobs", top, "likeliest tokens beside each")
        self.others = [refused("suffix", Text(), "text after the insertion", "")]


class ChatFields(FieldGroup):
    def __init__(self, limits: HttpSettings) -> None:
        self.conversation = CONVERSATION
        self.common = CommonFields(limits, adds_special_tokens=False)
        self.max_tokens = built("max_completion_tokens", Integer(0), "wins over max_tokens")
        self.logprobs = built("logprobs", Boolean(), "tell each token's", False)
        self.top = built("top_logprobs", Integer(0, limits.max_logprobs), "needs logprobs")
        self.others = [
            refused("echo", Boolean(), "the last message before the answer", False),
            refused("functions", Anything(list), "use tools", []),
            refused("function_call", Anything(), "use tool_choice", "none"),
            refused("modalities", Anything(list), "text only", ["text"]),
            refused("audio", Anything(), "text only"),
            refused("web_search_options", Anything(), "nothing is searched"),
            refused("documents", Anything(list), "write them into a message", []),
            refused("return_prompt_text", Boolean(), "use /tokenize", False),
            *ignored(
                "changes no output here",
                *("service_tier", "verbosity", "moderation", "safety_identifier", "prediction"),
                *("prompt_cache_key", "include_reasoning"),
            ),
        ]


class TokenizeFields(FieldGroup):
    """What both forms of /tokenize take beside the text or the conversation."""

    def __init__(self, adds_special_tokens: bool) -> None:
        note = "the tokenizer's own around it"
        self.special = built("add_special_tokens", Boolean(), note, adds_special_tokens)
        self.model = built("model", Text(), "absent: the one that is served")
        self.texts = built("return_token_strs", Boolean(), "also each token's text", False)


class TokenizeTextFields(FieldGroup):
    def __init__(self) -> None:
        self.prompt = built("prompt", Text(), "the text", required=True)
        self.common = TokenizeFields(adds_special_tokens=True)


class TokenizeChatFields(FieldGroup):
    def __init__(self) -> None:
        self.conversation = CONVERSATION
        self.common = TokenizeFields(adds_special_tokens=False)


class DetokenizeFields(FieldGroup):
    def __init__(self) -> None:
        self.tokens = built("tokens", ListOf(TokenId(), MAX_DETOKENIZED), "the ids", required=True)
        self.model = built("model", Text(), "absent: the one that is served")
