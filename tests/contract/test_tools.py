"""Tools and structured output: calls are found in the text, or enforced by a grammar."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.contract.test_answers import chat_messages, completion, stream
from tests.contract.test_choices import streamed

CHAT = "/v1/chat/completions"


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


WEATHER = tool("weather", city={"type": "string"})
TIME = tool("time")
TWO_CALLS = (
    'Sure.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
)


def chat(http: httpx.Client, content: str, **fields: Any) -> Any:
    response = http.post(CHAT, json={"messages": chat_messages(content), **fields})
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def joined(chunks: list[Any]) -> dict[str, Any]:
    """Put a streamed message together as a client does."""
    message: dict[str, Any] = {"content": "", "calls": []}
    for part in streamed(chunks, 0):
        message["content"] += part["delta"].get("content", "")
        for call in part["delta"].get("tool_calls", []):
            if "id" in call:
                assert call["index"] == len(message["calls"])
                assert call["type"] == "function"
                message["calls"].append([call["function"]["name"], ""])
            message["calls"][call["index"]][1] += call["function"]["arguments"]
        message["finish_reason"] = part["finish_reason"]
    return message


def test_calls_are_found_in_the_answer_whole_and_streamed(tool_http: httpx.Client) -> None:
    choice = chat(tool_http, f"say:{TWO_CALLS}", tools=[WEATHER, TIME])
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Sure."
    calls = choice["message"]["tool_calls"]
    assert [call["function"] for call in calls] == [
        {"name": "weather", "arguments": '{"city": "Köln"}'},
        {"name": "time", "arguments": "{}"},
    ]
    assert len({call["id"] for call in calls}) == 2
    fields = {"messages": chat_messages(f"say:{TWO_CALLS}"), "tools": [WEATHER, TIME]}
    assert joined(stream(tool_http, CHAT, **fields)) == {
        "content": "Sure.",
        "calls": [["weather", '{"city": "Köln"}'], ["time", "{}"]],
        "finish_reason": "tool_calls",
    }


@pytest.mark.parametrize("fields", [{}, {"tools": [WEATHER], "tool_choice": "none"}])
def test_without_tools_a_call_is_text(tool_http: httpx.Client, fields: dict[str, Any]) -> None:
    choice = chat(tool_http, f"say:{TWO_CALLS}", **fields)
    assert choice["message"]["content"] == TWO_CALLS
    assert choice["finish_reason"] == "stop"
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize(
    "text", ["<tool_call>no json</tool_call>", "a <tool", "1 < 2 </tool_call>"]
)
def test_what_only_looks_like_a_call_stays_text(tool_http: httpx.Client, text: str) -> None:
    choice = chat(tool_http, f"say:{text}", tools=[WEATHER])
    assert choice["message"]["content"] == text
    assert choice["finish_reason"] == "stop"


def test_an_answer_cut_short_in_a_call_ends_by_length(tool_http: httpx.Client) -> None:
    text = '<tool_call>{"name": "weather", "arguments": {"city": "Kö'
    choice = chat(tool_http, f"say:{text}ln", tools=[WEATHER], max_tokens=len(text.encode()))
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Kö'


@pytest.mark.parametrize(
    ("choice", "names"),
    [("required", {"weather", "time"}), ({"type": "function", "function": {"name": "time"}},
                                         {"time"})],
)  # fmt: skip
def test_an_enforced_call_is_made_whatever_the_model_would_say(
    tool_http: httpx.Client, choice: Any, names: set[str]
) -> None:
    made = chat(tool_http, "say:no", tools=[WEATHER, TIME], tool_choice=choice)
    assert made["finish_reason"] == "tool_calls"
    assert made["message"]["content"] is None
    (call,) = made["message"]["tool_calls"]
    assert call["function"]["name"] in names
    assert isinstance(json.loads(call["function"]["arguments"]), dict)


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream_it", [False, True])
def test_an_answer_follows_its_schema(tool_http: httpx.Client, stream_it: bool) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    if stream_it:
        fields = {"messages": chat_messages(), "response_format": form}
        message = joined(stream(tool_http, CHAT, **fields))
        text, reason = message["content"], message["finish_reason"]
    else:
        choice = chat(tool_http, "hi", response_format=form)
        text, reason = choice["message"]["content"], choice["finish_reason"]
    assert reason == "stop"
    read = json.loads(text)
    assert isinstance(read["a"], int)
    assert read["b"] in ("x", "y")


FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}


@pytest.mark.parametrize("stream_it", [False, True])
def test_with_tools_and_a_schema_the_answer_is_a_call_or_follows_the_schema(
    tool_http: httpx.Client, stream_it: bool
) -> None:
    def answer(said: str) -> tuple[str, list[Any], str]:
        fields = {"tools": [TIME], "response_format": FORM}
        if stream_it:
            messages = chat_messages(f"say:{said}")
            message = joined(stream(tool_http, CHAT, messages=messages, **fields))
            return message["content"], message["calls"], message["finish_reason"]
        choice = chat(tool_http, f"say:{said}", **fields)
        calls = choice["message"].get("tool_calls", [])
        listed = [[call["function"]["name"], call["function"]["arguments"]] for call in calls]
        return choice["message"]["content"] or "", listed, choice["finish_reason"]

    call = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
    assert answer(call) == ("", [["time", "{}"]], "tool_calls")
    text, calls, reason = answer('{"a": 1, "b": "x"}')
    assert (json.loads(text), calls, reason) == ({"a": 1, "b": "x"}, [], "stop")
    assert answer("Sure.")[2] in ("stop", "tool_calls")  # words are not among what may come


@pytest.mark.parametrize(
    ("asked", "answers"),
    [
        ({"choice": ["rot", "grün"]}, {"rot", "grün"}),
        ({"regex": "(ab){3}"}, {"ababab"}),
        ({"grammar": 'start: "x" "y"'}, {"xy"}),
        ({"json": {"const": 5}}, {"5"}),
        ({"json_object": True}, {'{"":""}', '{"": ""}'}),
    ],
)
def test_an_answer_keeps_within_its_structure(
    tool_http: httpx.Client, asked: Any, answers: set[str]
) -> None:
    body = completion(tool_http, prompt="hi", max_tokens=40, structured_outputs=asked)
    assert body["choices"][0]["text"] in answers
    assert body["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("fields", "param", "word"),
    [
        ({"structured_outputs": {"json": {"not": {}}}}, "structured_outputs", "not"),
        ({"structured_outputs": {"regex": "a("}}, "structured_outputs", "unclosed"),
        ({"structured_outputs": {"grammar": "start: nothing"}}, "structured_outputs", "nothing"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {
                "name": "n", "schema": {"type": "array", "uniqueItems": True}}}},
            "response_format",
            "uniqueItems",
        ),
        (
            {"tools": [tool("f", a={"if": {}})], "tool_choice": "required"},
            "tools",
            "if",
        ),
    ],
)  # fmt: skip
def test_what_no_grammar_can_say_is_refused_and_the_keyword_named(
    tool_http: httpx.Client, fields: Any, param: str, word: str
) -> None:
    response = tool_http.post(CHAT, json={"messages": chat_messages(), **fields})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_value", param)
    assert word in error["message"]
