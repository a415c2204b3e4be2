"""Bodies that clients send, and what breaks, ages or malice make of them: the same by each seed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any, Final

COMPLETIONS, CHAT, TOKENIZE = "/v1/completions", "/v1/chat/completions", "/tokenize"
USER: Final = [{"role": "user", "content": "hi"}]
PARAMETERS: Final = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 3}, "days": {"type": "integer"}},
    "required": ["city"],
}
TOOL: Final = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
CALL: Final = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "x"}'},
}
TALK: Final = [
    {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "it"}]},
    {"role": "developer", "content": "Do", "name": "dev"},
    *USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"},
    {"role": "tool", "tool_call_id": "c1", "content": "5"},
    {"role": "assistant", "content": None, "reasoning": "hm", "refusal": None},
    *USER,
]
FORM: Final = {"type": "json_schema", "json_schema": {"name": "n", "schema": PARAMETERS}}

BASES: Final[list[tuple[str, dict[str, Any]]]] = [
    (COMPLETIONS, {"prompt": "a"}),
    (COMPLETIONS, {"prompt": ["a", "Größe"], "max_tokens": 2, "n": 2, "best_of": 2}),
    (COMPLETIONS, {"prompt": [97, 98], "echo": True, "logprobs": 2, "max_tokens": 0}),
    (COMPLETIONS, {"prompt": [[97], [98, 258]], "stream": True, "seed": 5, "temperature": 0.5}),
    (COMPLETIONS, {"prompt": "a", "stop": ["b", "c"], "stop_token_ids": [7], "min_tokens": 1,
                   "include_stop_str_in_output": True, "ignore_eos": True, "max_tokens": 4}),
    (COMPLETIONS, {"prompt": "a", "logit_bias": {"97": 5, "98": -100}, "bad_words": ["ab", " c"],
                   "allowed_token_ids": [97, 98, 99], "max_tokens": 3}),
    (COMPLETIONS, {"prompt": "a", "stream": True, "stream_options": {"include_usage": True,
                   "continuous_usage_stats": True}, "stream_interval": 2}),
    (COMPLETIONS, {"prompt": "abcdef", "truncate_prompt_tokens": 3, "truncation_side": "right",
                   "prompt_logprobs": 1, "return_token_ids": True, "max_tokens": 1}),
    (COMPLETIONS, {"prompt": "a", "structured_outputs": {"regex": "[ab]{2}"}}),
    (COMPLETIONS, {"prompt": "a", "structured_outputs": {"choice": ["x", "yy"]}}),
    (COMPLETIONS, {"prompt": "a", "structured_outputs": {"grammar": 'start: "a" | "b"'}}),
    (COMPLETIONS, {"prompt": "a", "response_format": {"type": "json_object"}, "max_tokens": 4}),
    (COMPLETIONS, {"prompt": "a", "frequency_penalty": 1, "presence_penalty": -1, "top_p": 0.5,
                   "repetition_penalty": 1.1, "top_k": 5, "min_p": 0.1, "priority": 3,
                   "cache_salt": "s", "user": "u", "request_id": "r", "metadata": {"a": "b"}}),
    (COMPLETIONS, {"prompt": "a", "model": "tinygpt", "skip_special_tokens": False,
                   "return_tokens_as_token_ids": True, "logprobs": 0, "suffix": ""}),
    (CHAT, {"messages": USER}),
    (CHAT, {"messages": TALK, "max_completion_tokens": 3, "n": 2}),
    (CHAT, {"messages": TALK, "tools": [TOOL], "stream": True}),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": "required", "max_tokens": 90,
            "parallel_tool_calls": False}),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": {"type": "function", "function": {
            "name": "weather"}}, "max_tokens": 90}),
    (CHAT, {"messages": USER, "tools": [TOOL], "response_format": FORM, "max_tokens": 40}),
    (CHAT, {"messages": USER, "response_format": FORM, "stream": True, "max_tokens": 40}),
    (CHAT, {"messages": USER, "response_format": {"type": "json_object", "schema": PARAMETERS},
            "max_tokens": 40}),
    (CHAT, {"messages": USER, "logprobs": True, "top_logprobs": 3, "max_tokens": 2}),
    (CHAT, {"messages": [*USER, {"role": "assistant", "content": "So"}],
            "continue_final_message": True, "add_generation_prompt": False}),
    (CHAT, {"messages": USER, "chat_template_kwargs": {"a": [1]}, "reasoning_effort": "low",
            "functions": [], "function_call": "none", "modalities": ["text"], "store": True}),
    (TOKENIZE, {"prompt": "Größe<|im_end|>", "return_token_strs": True}),
    (TOKENIZE, {"messages": TALK, "tools": [TOOL], "add_generation_prompt": False}),
    (TOKENIZE, {"messages": USER, "add_special_tokens": True, "model": "tinygpt"}),
    ("/detokenize", {"tokens": [97, 98, 258]}),
    ("/detokenize", {"tokens": [], "model": "tinygpt"}),
]  # fmt: skip

ODD: Final[list[Any]] = [
    None, True, False, 0, 1, -1, 2, 20, 1.5, 1.0, -0.0, 1e-320, 1e308, 2**31, 2**63, -(2**63) - 1,
    10**30, "", " ", "a", "0", "true", "null", "\x00", "é🦊", "\ufffd", "\U000f0000", "<|im_end|>",
    "<tool_call>", "{", '{"a": 1', '{"a": 1}', "x" * 700, "auto", "none", "required", "json_object",
    "json_schema", "text", "system", "developer", "assistant", "tool", "(?=a)", "[a-", "a{3000}",
    "start: start", 'start: %json {"type": "string"}', "string", "integer", "#/$defs/a",
    [], [[]], [None], [1, "a"], ["a"] * 200, [97, 260], [{}], ["string", "null"],
    {}, {"": 0}, {"a": {"b": []}}, {"type": "text"}, {"type": "text", "text": "a"},
    {"type": "object"}, {"$ref": "#"}, {"type": "string", "maxLength": 10**9}, {"allOf": [{}, {}]},
    {"type": "object", "propertyNames": {"enum": [1]}}, {"enum": []}, {"not": {}},
    {"role": "assistant", "content": None}, {"type": "integer", "minimum": 1e19},
    {"anyOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"properties": {"y": 5}}}},
]  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the path of each value below the body itself."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from _places(inner, (*path, key))


def _alike(value: Any, rng: random.Random) -> Any:
    """Give an odd value of the same JSON type: it passes the first check, and meets the second."""
    return rng.choice([odd for odd in ODD if type(odd) is type(value)] or ODD)


def _change(body: Any, rng: random.Random) -> Any:
    """Change one value, or what holds it."""
    places = list(_places(body))
    if not places or rng.random() < 0.35:
        _, other = rng.choice(BASES)
        key = rng.choice(list(other))
        return {**body, key: copy.deepcopy(other[key])}  # a field of another request
    *path, key = rng.choice(places)
    holder = body
    for step in path:
        holder = holder[step]
    match rng.randrange(8):
        case 0:
            del holder[key]
        case 1:
            holder[key] = copy.deepcopy(rng.choice(ODD))
        case 2 | 3 | 4:
            holder[key] = copy.deepcopy(_alike(holder[key], rng))
        case 5:
            holder[key] = rng.choice([[holder[key]], {"x": holder[key]}, str(holder[key])])
        case 6 if isinstance(holder, list):
            holder *= rng.choice([2, 3])
        case _:
            found = body
            for step in rng.choice(places):
                found = found[step] if isinstance(found, dict | list) else None
            holder[key] = copy.deepcopy(found)
    return body


def _break(data: bytes, rng: random.Random) -> bytes:
    """Change the text of a body."""
    at, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    match rng.randrange(4):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return (
                data[:at] + bytes(rng.choice(b'{}[]",:0\\\xff\x00e-') for _ in range(3)) + data[at:]
            )
        case _:
            return data[:end] + data[at:]


def mutations(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Give routes and bodies."""
    rng = random.Random(seed)
    for _ in range(count):
        path, base = rng.choice(BASES)
        body: Any = copy.deepcopy(base)
        for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 5])):
            body = _change(body, rng)
        data = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
        yield path, _break(data, rng) if rng.random() < 0.1 else data
