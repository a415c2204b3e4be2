"""What both routes take, and what they refuse, before any token exists."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core import errors
from server.prompts import room_for
from server.unbuilt import CHAT_UNBUILT, COMPLETION_UNBUILT
from server.validation import chat_call, completion_call


def completion(**fields: Any) -> Any:
    return completion_call(msgspec.json.encode({"prompt": "hi", **fields}))


def chat(**fields: Any) -> Any:
    messages = [{"role": "user", "content": "hi"}]
    return chat_call(msgspec.json.encode({"messages": messages, **fields}))


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"1", b"null", b'{"prompt":NaN}', b'{"prompt":Infinity}',
     b'{"prompt":"\xff"}', b'{"prompt":"\\ud83d"}', b'{"prompt":"\\ud83dabcdef"}',
     b'{"prompt":"\\udc00\\ud83d"}', b'{"prompt":1e999}', b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(errors.InvalidJson):
        completion_call(body)


def test_the_defaults_of_a_completion() -> None:
    call = completion()
    assert (call.prompts, call.max_tokens, call.clamp) == (("hi",), 16, True)
    assert (call.temperature, call.top_p, call.top_k, call.min_p) == (1.0, 1.0, 0, 0.0)
    assert (call.seed, call.stop, call.stream, call.ignore_eos) == (None, (), False, False)


def test_null_means_the_default() -> None:
    names = ["max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stream"]
    names += ["stream_options", "ignore_eos", "return_token_ids", "model", *COMPLETION_UNBUILT]
    assert completion(**dict.fromkeys(names)) == completion()


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
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(errors.InvalidValue) as caught:
        completion(**{field: value})
    assert caught.value.param == field


def test_the_edges_of_the_ranges_are_taken() -> None:
    call = completion(max_tokens=0, temperature=0, top_p=1e-9, top_k=-1, seed=-(2**63), n=1)
    assert (call.max_tokens, call.clamp, call.temperature, call.top_k) == (0, False, 0.0, 0)
    assert completion(seed=2**63 - 1, temperature=2, top_k=7.0).top_k == 7


def test_usage_on_every_chunk_needs_usage() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    call = completion(stream=True, stream_options=options)
    assert (call.include_usage, call.running_usage) == (True, True)
    call = completion(stream=True, stream_options={"continuous_usage_stats": True})
    assert (call.include_usage, call.running_usage) == (False, False)


@pytest.mark.parametrize("options", [None, {}])
def test_empty_stream_options_need_no_stream(options: Any) -> None:
    assert not completion(stream_options=options).include_usage


SAMPLES: dict[str, Any] = {"integer": 2, "number": 0.5, "any": {"x": 1}}


@pytest.mark.parametrize("name", COMPLETION_UNBUILT)
def test_an_unbuilt_field_of_completions_is_refused_by_name(name: str) -> None:
    rule = COMPLETION_UNBUILT[name]
    value = SAMPLES.get(rule.kind, not (rule.neutral and rule.neutral[0]))
    with pytest.raises(errors.UnsupportedParameter) as caught:
        completion(**{name: value})
    assert caught.value.param == name


@pytest.mark.parametrize("name", CHAT_UNBUILT)
def test_an_unbuilt_field_of_chat_is_refused_by_name_and_its_neutral_value_taken(name: str) -> None:
    rule = CHAT_UNBUILT[name]
    value = SAMPLES.get(rule.kind, not (rule.neutral and rule.neutral[0]))
    with pytest.raises(errors.UnsupportedParameter) as caught:
        chat(**{name: value})
    assert caught.value.param == name
    for neutral in rule.neutral:
        assert chat(**{name: neutral}) == chat()


def test_unknown_and_harmless_fields_are_ignored() -> None:
    assert chat(user="u", store=True, metadata={"a": "b"}, wat=[1]) == chat()


def test_max_completion_tokens_wins() -> None:
    assert chat(max_tokens=5, max_completion_tokens=7).max_tokens == 7
    assert chat(max_tokens=5).max_tokens == 5
    assert chat().max_tokens is None


def test_parts_of_text_are_joined_by_line_breaks() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    call = chat(messages=[{"role": "user", "content": parts, "name": "x"}])
    assert call.messages == ({"role": "user", "content": "a\nb", "name": "x"},)


def test_null_tool_calls_are_as_absent() -> None:
    messages = [{"role": "assistant", "content": "a", "tool_calls": None}]
    assert chat(messages=messages).messages == ({"role": "assistant", "content": "a"},)


@pytest.mark.parametrize(
    ("messages", "kind", "param"),
    [
        (None, errors.MissingParameter, "messages"),
        ([], errors.InvalidValue, "messages"),
        ("hi", errors.InvalidType, "messages"),
        (["hi"], errors.InvalidType, "messages.0"),
        ([{}], errors.MissingParameter, "messages.0.role"),
        ([{"role": 1, "content": "a"}], errors.InvalidType, "messages.0.role"),
        ([{"role": "user"}], errors.MissingParameter, "messages.0.content"),
        ([{"role": "user", "content": 1}], errors.InvalidType, "messages.0.content"),
        ([{"role": "user", "content": []}], errors.InvalidType, "messages.0.content"),
        ([{"role": "user", "content": ["a"]}], errors.InvalidType, "messages.0.content.0"),
        (
            [{"role": "user", "content": [{"type": "image_url"}]}],
            errors.InvalidValue,
            "messages.0.content.0.type",
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


def test_the_room_is_what_the_context_leaves() -> None:
    assert room_for(10, None, 16, "messages", clamp=False) == 6
    assert room_for(10, 6, 16, "prompt", clamp=False) == 6
    assert room_for(10, 16, 16, "prompt", clamp=True) == 6
    assert room_for(10, 0, 16, "prompt", clamp=False) == 0


@pytest.mark.parametrize(
    ("prompt_tokens", "wanted", "param"),
    [(16, None, "prompt"), (17, 0, "prompt"), (10, 7, "max_tokens"), (1, 10**30, "max_tokens")],
)
def test_what_exceeds_the_context_is_refused_and_told_the_limit(
    prompt_tokens: int, wanted: int | None, param: str
) -> None:
    with pytest.raises(errors.ContextLengthExceeded, match="16") as caught:
        room_for(prompt_tokens, wanted, 16, "prompt", clamp=False)
    assert caught.value.param == param
