"""Every field of the inference routes: what it may be, its default, what it does. One place.

A field that is in no table is unknown, and ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from core.settings import HttpSettings
from server.contract.fields import Field, Structure, Table, built, ignored, refused, table_of
from server.contract.grammars import RESPONSE_FORMAT, STRUCTURED_OUTPUTS
from server.contract.kinds import (
    INT64,
    Anything,
    Biases,
    Boolean,
    Integer,
    Kind,
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
_INT32: Final = 2**31


STREAM_OPTIONS: Final = table_of(
    [
        built("include_usage", Boolean(), "a last chunk with usage", False),
        built(
            "continuous_usage_stats", Boolean(), "with usage: running usage on all chunks", False
        ),
        *ignored(["include_obfuscation"], "nothing is obfuscated"),
    ]
)
NO_OPTIONS: Final = {"include_usage": False, "continuous_usage_stats": False}


def _sampling(limits: HttpSettings) -> list[Field]:
    return [
        built("temperature", Number(0, 2), "0 is greedy", 1.0),
        built("top_p", Number(0, 1, above_low=True), "nucleus", 1.0),
        built("top_k", Integer(-1), "-1 and 0: off", 0),
        built("min_p", Number(0, 1), "least probability, relative to the likeliest", 0.0),
        built("seed", Integer(-INT64, INT64 - 1), "the same tokens alone and in any batch"),
        built("n", Integer(1, limits.max_n), "choices per prompt", 1),
        built("frequency_penalty", Number(-2, 2), "per occurrence in the output", 0.0),
        built("presence_penalty", Number(-2, 2), "once for a token of the output", 0.0),
        built(
            "repetition_penalty", Number(0.01, 100), "divides logits of tokens of both sides", 1.0
        ),
        built("logit_bias", Biases(MAX_BIASES), "added to logits, at temperature 0 too", ()),
        built("allowed_token_ids", ListOf(TokenId(), least=1), "no other token is sampled", ()),
        built("bad_words", ListOf(Text(1, 64), MAX_BAD_WORDS), "texts that never come", ()),
        built("min_tokens", Integer(0), "before so many, nothing stops the output", 0),
    ]


def _ends(limits: HttpSettings) -> list[Field]:
    return [
        built("stop", ListOf(Text(1, 4096), limits.max_stop, lone=True), "cut from the text", ()),
        built("stop_token_ids", ListOf(TokenId(), MAX_STOP_TOKEN_IDS), "end the output", ()),
        built("ignore_eos", Boolean(), "go on past the end of sequence", False),
        built("include_stop_str_in_output", Boolean(), "leave the stop in the text", False),
    ]


def _output(limits: HttpSettings) -> list[Field]:
    return [
        built("stream", Boolean(), "server-sent events", False),
        built("stream_options", Structure(STREAM_OPTIONS), "only with stream", NO_OPTIONS),
        built("stream_interval", Integer(1, 1024), "tokens per chunk at least, but the first's", 1),
        built("skip_special_tokens", Boolean(), "leave special tokens out of the text", True),
        built("return_token_ids", Boolean(), "adds prompt_token_ids and token_ids", False),
        built("return_tokens_as_token_ids", Boolean(), "logprobs write token_id:N", False),
        built(
            "prompt_logprobs", Integer(0, limits.max_logprobs), "each prompt token; not streamed"
        ),
        built("response_format", RESPONSE_FORMAT, "text, json_object or json_schema"),
        built("structured_outputs", STRUCTURED_OUTPUTS, "json, regex, choice or grammar (Lark)"),
    ]


def _common(limits: HttpSettings, adds_special_tokens: bool) -> list[Field]:
    whole = Integer(0)
    return [
        built("model", Text(), "absent: the one that is served"),
        built("max_tokens", whole, "at most so many; absent: see the end of this page"),
        *_sampling(limits),
        *_ends(limits),
        *_output(limits),
        built("truncate_prompt_tokens", Integer(-1), "keep so many; -1: what the context holds"),
        built("truncation_side", OneOf(("left", "right")), "which end is cut off", "left"),
        built(
            "add_special_tokens", Boolean(), "the tokenizer's own around it", adds_special_tokens
        ),
        built("priority", Integer(-_INT32, _INT32 - 1), "lower is sooner", 0),
        built("cache_salt", Text(1, 128, r"[^@/\\\x00]+"), "shares no cached prefix", ""),
        refused("logprob_token_ids", Anything(), "logprobs of given tokens"),
        *(
            refused(f"guided_{form}", Anything(), "use structured_outputs")
            for form in ("json", "regex", "choice", "grammar")
        ),
        refused("use_beam_search", Boolean(), "beam search", False),
        refused("length_penalty", Number(-1e9, 1e9), "for beam search", 1),
        *ignored(["user", "request_id", "metadata", "store"], "names the request to its sender"),
        *ignored(["spaces_between_special_tokens"], "for another kind of tokenizer"),
    ]


def completion_table(limits: HttpSettings, prompts: Kind) -> Table:
    return table_of(
        [
            built("prompt", prompts, "text, texts, token ids, or lists of them", required=True),
            *_common(limits, adds_special_tokens=True),
            built("best_of", Integer(0, 20), "as n, or absent"),
            built("echo", Boolean(), "the prompt before the text; scores it, with logprobs", False),
            built("logprobs", Integer(0, limits.max_logprobs), "likeliest tokens beside each"),
            refused("suffix", Text(), "text after the insertion", ""),
        ]
    )


def chat_table(limits: HttpSettings, conversation: Iterable[Field]) -> Table:
    """Take what makes the prompt, such as messages and tools, as `conversation`."""
    return table_of(
        [
            *conversation,
            *_common(limits, adds_special_tokens=False),
            built("max_completion_tokens", Integer(0), "wins over max_tokens"),
            built("logprobs", Boolean(), "tell each token's", False),
            built("top_logprobs", Integer(0, limits.max_logprobs), "needs logprobs"),
            refused("echo", Boolean(), "the last message before the answer", False),
            refused("functions", Anything(list), "use tools", []),
            refused("function_call", Anything(), "use tool_choice", "none"),
            refused("modalities", Anything(list), "text only", ["text"]),
            refused("audio", Anything(), "text only"),
            refused("web_search_options", Anything(), "nothing is searched"),
            refused("documents", Anything(list), "write them into a message", []),
            refused("return_prompt_text", Boolean(), "use /tokenize", False),
            *ignored(
                ["service_tier", "verbosity", "moderation", "safety_identifier", "prediction",
                 "prompt_cache_key", "include_reasoning"],
                "changes no output here",
            ),
        ]
    )  # fmt: skip
