"""What both routes take, and what they refuse, before any token exists."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from core import errors
from core.request import Grammar, GrammarKind, SamplingParams
from core.settings import HttpSettings
from server.contract.validation import Validator
from server.limits.text_bound import ContextLimit
from server.schema.fields import Support, Table
from server.text.prompts import room_for

VALIDATOR = Validator(HttpSettings())
COMPLETION, CHAT = VALIDATOR.tables["completion"], VALIDATOR.tables["chat"]
LIMIT, OF_STORE = ContextLimit(16, of_store=False), ContextLimit(16, of_store=True)
USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def completion(**fields: Any) -> Any:
    return VALIDATOR.completion(msgspec.json.encode({"prompt": "hi", **fields}))


def chat(**fields: Any) -> Any:
    return VALIDATOR.chat(msgspec.json.encode({"messages": USER, **fields}))


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"1", b"null", b'{"prompt":NaN}', b'{"prompt":Infinity}',
     b'{"prompt":"\xff"}', b'{"prompt":"\\ud83d"}', b'{"prompt":"\\ud83dabcdef"}',
     b'{"prompt":"\\udc00\\ud83d"}', b'{"prompt":1e999}', b"[" * 100_000,
     b'{"a":' * 65 + b"1" + b"}" * 65],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(errors.InvalidJson):
        VALIDATOR.completion(body)


def test_nesting_within_the_limit_is_taken() -> None:
    inner = b'{"a":' * 62 + b"1" + b"}" * 62
    VALIDATOR.completion(b'{"prompt":"a","wat":' + inner + b"}")


def test_the_defaults_of_a_completion() -> None:
    call = completion()
    assert (call.prompts, call.max_tokens, call.max_tokens_field) == (("hi",), 16, None)
    assert call.sampling == SamplingParams()
    assert (call.seed, call.stop, call.stream, call.ignore_eos) == (None, (), False, False)


def test_null_means_the_default() -> None:
    optional = [name for name in COMPLETION if name != "prompt"]
    assert completion(**dict.fromkeys(optional)) == completion()
    optional = [name for name in CHAT if name != "messages"]
    assert chat(**dict.fromkeys(optional)) == chat()


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2.0], ((1, 2),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
    ],
)
def test_the_four_forms_of_a_prompt(prompt: Any, prompts: Any) -> None:
    assert completion(prompt=prompt).prompts == prompts


@pytest.mark.parametrize("prompt", [None, "", [], [""], [[]], ["a", ""], [[1], []]])
def test_an_empty_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(errors.EmptyPrompt) as caught:
        completion(prompt=prompt)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    "prompt", [1, {}, True, ["a", 1], [1, "a"], [[1], "a"], [1, [2]], [True], [None], [["a"]]]
)
def test_a_prompt_of_another_form_is_refused(prompt: Any) -> None:
    with pytest.raises(errors.InvalidType):
        completion(prompt=prompt)


@pytest.mark.parametrize("prompt", [[-1], [1.5], [2**63], [1, 2**70], [[3], [-3]]])
def test_what_is_no_token_id_is_refused(prompt: Any) -> None:
    with pytest.raises(errors.InvalidTokenId):
        completion(prompt=prompt)


def test_too_many_prompts_are_refused() -> None:
    with pytest.raises(errors.InvalidValue):
        completion(prompt=["a"] * 129)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", "5"), ("max_tokens", 1.5), ("max_tokens", True), ("temperature", "1"),
        ("temperature", True), ("top_p", []), ("top_k", 1.5), ("stream", "true"), ("stream", 1),
        ("seed", "1"), ("stop", 1), ("stop", ["a", 1]), ("ignore_eos", "yes"), ("model", 1),
        ("stream_options", []), ("n", "test"), ("echo", 1), ("frequency_penalty", "x"),
        ("logit_bias", []), ("stop_token_ids", ["a"]), ("bad_words", "a"), ("logprobs", True),
        ("response_format", "json"), ("use_beam_search", 0), ("cache_salt", 1),
    ],
)  # fmt: skip
def test_a_wrong_type_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(errors.InvalidType) as caught:
        completion(**{field: value})
    assert caught.value.param == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", -1), ("temperature", -0.1), ("temperature", 2.1), ("top_p", 0),
        ("top_p", 1.1), ("top_k", -2), ("min_p", -0.1), ("min_p", 1.1), ("seed", 2**63),
        ("seed", -(2**63) - 1), ("stop", [""]), ("stop", ["a"] * 5), ("n", 0), ("n", 129),
        ("stream_options", {"include_usage": True}), ("presence_penalty", 3),
        ("stream_options", {"include_usage": False}), ("repetition_penalty", 0),
        ("logit_bias", {"a": 1}), ("logit_bias", {"1": 101}), ("logit_bias", {"-1": 1}),
        ("allowed_token_ids", []), ("bad_words", [""]), ("logprobs", 21), ("logprobs", -1),
        ("min_tokens", -1), ("cache_salt", ""), ("cache_salt", "a@b"), ("stream_interval", 0),
        ("truncate_prompt_tokens", 0), ("min_tokens", 17),
        ("truncate_prompt_tokens", -2), ("truncation_side", "top"), ("priority", 2**31),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(errors.InvalidValue) as caught:
        completion(**{field: value})
    assert caught.value.param == field


def test_the_edges_of_the_ranges_are_taken() -> None:
    call = completion(max_tokens=0, temperature=0, top_p=1e-9, top_k=-1, seed=-(2**63), n=1)
    assert (call.max_tokens, call.max_tokens_field) == (0, "max_tokens")
    assert (call.sampling.temperature, call.sampling.top_k) == (0.0, 0)
    assert completion(seed=2**63 - 1, temperature=2, top_k=7.0).sampling.top_k == 7
    assert completion(top_k=10**30).sampling.top_k == 2**31 - 1


def test_usage_on_every_chunk_needs_usage() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    call = completion(stream=True, stream_options=options)
    assert (call.include_usage, call.running_usage) == (True, True)
    call = completion(stream=True, stream_options={"continuous_usage_stats": True})
    assert (call.include_usage, call.running_usage) == (False, False)


@pytest.mark.parametrize("options", [None, {}])
def test_empty_stream_options_need_no_stream(options: Any) -> None:
    assert not completion(stream_options=options).include_usage


SAMPLES: dict[str, Any] = {
    "use_beam_search": True, "length_penalty": 0.5, "suffix": "x", "echo": True,
    "functions": [{}], "modalities": ["audio"], "documents": [{}], "return_prompt_text": True,
}  # fmt: skip


def refused(table: Table) -> list[str]:
    return [field.name for field in table.values() if field.support is Support.REFUSED]


@pytest.mark.parametrize(
    ("make", "table", "name"),
    [
        *((completion, COMPLETION, name) for name in refused(COMPLETION)),
        *((chat, CHAT, name) for name in refused(CHAT)),
    ],
)
def test_what_is_not_built_is_refused_by_name_and_its_neutral_values_taken(
    make: Any, table: Table, name: str
) -> None:
    with pytest.raises(errors.UnsupportedParameter) as caught:
        make(**{name: SAMPLES.get(name, {"x": 1})})
    assert caught.value.param == name
    for neutral in table[name].neutral:
        assert make(**{name: neutral}) == make()


@pytest.mark.parametrize(("best_of", "n"), [(2, 1), (1, 2), (3, 2)])
def test_only_as_many_as_asked_for_are_made(best_of: int, n: int) -> None:
    with pytest.raises(errors.UnsupportedParameter) as caught:
        completion(best_of=best_of, n=n)
    assert caught.value.param == "best_of"
    assert completion(best_of=2, n=2).n == 2


def test_logprobs_of_both_routes_read_alike() -> None:
    assert completion().logprobs is completion().sampling.logprobs is None
    assert (completion(logprobs=0).logprobs, completion(logprobs=3).sampling.logprobs) == (0, 3)
    assert chat(logprobs=False).logprobs is chat().sampling.logprobs is None
    call = chat(logprobs=True, top_logprobs=2)
    assert (call.logprobs, call.sampling.logprobs) == (2, 2)
    assert chat(logprobs=True).sampling.logprobs == 0
    with pytest.raises(errors.InvalidValue) as caught:
        chat(top_logprobs=2)
    assert caught.value.param == "top_logprobs"


def test_an_echoed_prompt_is_scored_where_logprobs_are_asked_for() -> None:
    assert completion(echo=True).sampling.prompt_logprobs is None
    assert completion(echo=True, logprobs=2).sampling.prompt_logprobs == 2
    assert completion(echo=True, logprobs=2, prompt_logprobs=5).sampling.prompt_logprobs == 5
    with pytest.raises(errors.InvalidValue):
        completion(prompt_logprobs=1, stream=True)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}}


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Grammar(GrammarKind.JSON_OBJECT)),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA)),
        ),
        (
            {"response_format": {"type": "json_object", "schema": SCHEMA}},
            Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA)),
        ),
        (
            {"response_format": {"type": "json_schema", "schema": SCHEMA}},
            Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA)),
        ),
        ({"structured_outputs": {"regex": "a+"}}, Grammar(GrammarKind.REGEX, "a+")),
        ({"structured_outputs": {"choice": ["ü", "b"]}}, Grammar(GrammarKind.CHOICE, '["ü", "b"]')),
        ({"structured_outputs": {"grammar": "start: /a/"}}, Grammar(GrammarKind.LARK,
                                                                    "start: /a/")),
    ],
)  # fmt: skip
def test_the_forms_of_structured_output(fields: Any, grammar: Grammar | None) -> None:
    assert completion(**fields).grammar == chat(**fields).grammar == grammar


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "json": {}}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "structured_outputs",
        ),
        ({"response_format": {"type": "json_object"}, "stop": "a"}, "stop"),
        ({"response_format": {"type": "json_object"}, "min_tokens": 1}, "min_tokens"),
        ({"tools": [TOOL], "structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"response_format": {"type": "text", "schema": {}}}, "response_format.schema"),
        (
            {"response_format": {"type": "json_object", "json_schema": {"schema": {}}}},
            "response_format.json_schema",
        ),
        (
            {"response_format": {"type": "json_schema", "schema": {}, "json_schema": {
                "schema": {}}}},
            "response_format.json_schema",
        ),
        ({"tools": [TOOL], "tool_choice": "required", "ignore_eos": True}, "ignore_eos"),
        ({"tools": [{}]}, "tools.type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.function.name"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tool_choice": "required"}, "tools"),
        ({"tool_choice": "auto", "tools": []}, "tools"),
        ({"tools": [TOOL], "tool_choice": "f"}, "tool_choice"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice",
        ),
        ({"add_generation_prompt": True, "continue_final_message": True},
         "continue_final_message"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused_by_name(fields: Any, param: str) -> None:
    with pytest.raises(errors.RequestError) as caught:
        chat(**fields)
    assert caught.value.param == param


def test_tools_are_enforced_by_a_grammar_only_where_they_must_be_called() -> None:
    assert chat(tools=[TOOL]).grammar is None
    assert chat(tools=[TOOL], tool_choice="none").conversation.use is None
    assert chat(tools=[]).conversation.use is None
    assert '"f"' in chat(tools=[TOOL], tool_choice="required").grammar.text.replace("\\", "")
    other = {"type": "function", "function": {"name": "other"}}
    named = {"type": "function", "function": {"name": "f"}}
    assert "other" not in chat(tools=[TOOL, other], tool_choice=named).grammar.text


def test_unknown_and_harmless_fields_are_ignored() -> None:
    assert chat(user="u", store=True, metadata={"a": "b"}, wat=[1]) == chat()


def test_max_completion_tokens_wins() -> None:
    assert chat(max_tokens=5, max_completion_tokens=7).max_tokens == 7
    assert chat(max_tokens=5).max_tokens == 5
    assert chat().max_tokens is None


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_least_above_the_most_is_told_by_the_name_that_was_sent(name: str) -> None:
    with pytest.raises(errors.InvalidValue, match=f"at most {name}, which is 2"):
        chat(**{"min_tokens": 3, name: 2})


def test_parts_of_text_are_joined_by_line_breaks() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    call = chat(messages=[{"role": "user", "content": parts, "name": "x"}])
    (message,) = call.conversation.messages
    assert message == {"role": "user", "content": "a\nb", "name": "x"}


def test_null_tool_calls_are_as_absent() -> None:
    messages = [{"role": "assistant", "content": "a", "tool_calls": None}]
    (message,) = chat(messages=messages).conversation.messages
    assert message == {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("arguments", "read"), [('{"a": 1}', {"a": 1}), ("", {}), ("null", {}), (None, {}), ({}, {})]
)
def test_the_arguments_of_earlier_calls_reach_the_template_as_objects(
    arguments: Any, read: Any
) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "assistant", "tool_calls": [call]}]
    (message,) = chat(messages=messages).conversation.messages
    assert message["tool_calls"][0]["function"]["arguments"] == read
    assert "content" not in message


CUT = '{"city": "Kö'


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({"content": None}, {"content": ""}),
        ({}, {"content": ""}),
        ({"content": None, "tool_calls": [], "refusal": None}, {"content": ""}),
        ({"content": None, "reasoning_content": "hm"},
         {"content": "", "reasoning_content": "hm", "thinking": "hm"}),
        ({"content": "a", "reasoning": "hm"},
         {"content": "a", "reasoning": "hm", "reasoning_content": "hm", "thinking": "hm"}),
        ({"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": CUT}}]},
         {"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": CUT}}]}),
    ],
)  # fmt: skip
def test_what_the_server_said_itself_is_taken_back(said: Any, read: Any) -> None:
    (message,) = chat(messages=[{"role": "assistant", **said}]).conversation.messages
    assert message == {"role": "assistant", **read}


def test_a_text_beside_a_conversation_is_refused() -> None:
    body = msgspec.json.encode({"prompt": "a", "messages": USER})
    with pytest.raises(errors.InvalidValue) as caught:
        VALIDATOR.tokenize(body)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("messages", "kind", "param"),
    [
        (None, errors.MissingParameter, "messages"),
        ([], errors.InvalidValue, "messages"),
        ("hi", errors.InvalidType, "messages"),
        (["hi"], errors.InvalidType, "messages.0"),
        ([{}], errors.MissingParameter, "messages.0.role"),
        ([{"role": 1, "content": "a"}], errors.InvalidType, "messages.0.role"),
        ([*USER, {"role": "usr", "content": "a"}], errors.InvalidValue, "messages.1.role"),
        ([{"role": "User", "content": "a"}], errors.InvalidValue, "messages.0.role"),
        ([{"role": "", "content": "a"}], errors.InvalidValue, "messages.0.role"),
        ([{"role": "user"}], errors.MissingParameter, "messages.0.content"),
        ([{"role": "user", "content": 1}], errors.InvalidType, "messages.0.content"),
        ([{"role": "user", "content": "a", "name": 5}], errors.InvalidType, "messages.0.name"),
        ([{"role": "assistant", "reasoning": {}}], errors.InvalidType, "messages.0.reasoning"),
        ([{"role": "user", "content": []}], errors.InvalidType, "messages.0.content"),
        ([{"role": "user", "content": ["a"]}], errors.InvalidType, "messages.0.content.0"),
        (
            [{"role": "user", "content": [{"type": "image_url"}]}],
            errors.InvalidValue,
            "messages.0.content.0.type",
        ),
        ([{"role": "tool", "content": "a"}], errors.MissingParameter, "messages.0.tool_call_id"),
        (
            [{"role": "assistant", "tool_calls": [{}]}],
            errors.MissingParameter,
            "messages.0.tool_calls.0.function",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "["}}]}],
            errors.InvalidValue,
            "messages.0.tool_calls.0.function.arguments",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": 1}]}],
            errors.InvalidType,
            "messages.0.content.0.text",
        ),
    ],
)
def test_a_bad_message_is_refused_by_its_path(
    messages: Any, kind: type[errors.RequestError], param: str
) -> None:
    with pytest.raises(kind) as caught:
        chat(messages=messages)
    assert caught.value.param == param


def test_every_role_of_the_api_is_taken_and_an_unknown_one_is_told_them_all() -> None:
    roles = ("system", "developer", "user", "assistant", "tool", "function")
    messages = [{"role": role, "content": "a", "tool_call_id": "1"} for role in roles]
    assert tuple(one["role"] for one in chat(messages=messages).conversation.messages) == roles
    with pytest.raises(errors.InvalidValue, match=f"one of {', '.join(roles)}$"):
        chat(messages=[{"role": "wat", "content": "a"}])


def test_the_room_is_what_the_context_leaves() -> None:
    assert room_for(10, chat(), LIMIT, "messages") == 6
    assert room_for(10, completion(max_tokens=6), LIMIT, "prompt") == 6
    assert room_for(10, completion(), LIMIT, "prompt") == 6
    assert room_for(10, completion(max_tokens=0), LIMIT, "prompt") == 0
    assert room_for(16, completion(max_tokens=0), LIMIT, "prompt") == 0


@pytest.mark.parametrize(
    ("prompt_tokens", "call", "param"),
    [
        (16, completion(), "prompt"),
        (17, completion(max_tokens=0), "prompt"),
        (10, completion(max_tokens=7), "max_tokens"),
        (1, completion(max_tokens=10**30), "max_tokens"),
        (10, chat(max_tokens=7), "max_tokens"),
        (10, chat(max_completion_tokens=7), "max_completion_tokens"),
        (10, chat(max_completion_tokens=7, max_tokens=1), "max_completion_tokens"),
    ],
)
def test_what_exceeds_the_context_is_refused_by_the_field_that_was_sent_and_told_the_limit(
    prompt_tokens: int, call: Any, param: str
) -> None:
    with pytest.raises(errors.ContextLengthExceeded, match="context length is 16 tokens") as caught:
        room_for(prompt_tokens, call, LIMIT, "prompt")
    assert caught.value.param == param
    assert param in str(caught.value)


@pytest.mark.parametrize(("prompt_tokens", "limit"), [(16, LIMIT), (10, LIMIT), (16, OF_STORE)])
def test_a_context_error_says_where_the_kv_store_is_what_sets_the_limit(
    prompt_tokens: int, limit: ContextLimit
) -> None:
    with pytest.raises(errors.ContextLengthExceeded) as caught:
        room_for(prompt_tokens, completion(max_tokens=7), limit, "prompt")
    message = str(caught.value)
    assert message.startswith("This model's maximum context length is 16 tokens. However, ")
    assert message.endswith("16 tokens are all that the KV store holds") == limit.of_store
