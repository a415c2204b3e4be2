"""Random texts, stops, seeds and chunk sizes: a stream says what the whole answer says."""

from __future__ import annotations

import json
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.test_answers import chat_messages, counts
from tests.contract.test_tools import TWO_CALLS, WEATHER

fuzz = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
characters = st.sampled_from('abAB .\n<>{}"\\öß€🦊é\u200d\u0301')
texts = st.text(characters, min_size=1, max_size=40)


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Draw a text, and stops of which most are pieces of it."""
    text = draw(texts)
    starts = draw(st.lists(st.integers(0, len(text) - 1), max_size=3))
    stops = [text[at : at + draw(st.integers(1, 4))] for at in starts]
    return text, [*stops, draw(texts)]


def whole(http: httpx.Client, path: str, fields: dict[str, Any]) -> Any:
    response = http.post(path, json=fields)
    assert response.status_code == 200, response.text
    return response.json()


def events(http: httpx.Client, path: str, fields: dict[str, Any]) -> list[Any]:
    """Read a stream; each network chunk's events must be UTF-8 by themselves."""
    options = {"stream": True, "stream_options": {"include_usage": True}}
    body = b""
    with http.stream("POST", path, json={**fields, **options}) as response:
        assert response.status_code == 200
        for piece in response.iter_raw():
            piece.decode("utf-8")
            body += piece
    lines = [line for line in body.decode().split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def cut(text: str, stops: list[str]) -> str:
    """Cut where the first stop string is complete, by looking at every prefix."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - len(max(found, key=len))]
    return text


@fuzz
@given(cut=cut_texts(), seed=st.integers(-(2**63), 2**63 - 1), interval=st.integers(1, 9),
       max_tokens=st.integers(0, 120), n=st.integers(1, 3))  # fmt: skip
def test_a_stream_joins_to_the_whole_answer_and_leaks_no_stop(
    http: httpx.Client, cut: Any, seed: int, interval: int, max_tokens: int, n: int
) -> None:
    text, stops = cut
    fields = {
        "prompt": [f"say:{text}", "dice:", "🦊"],
        "stop": stops,
        "seed": seed,
        "n": n,
        "max_tokens": max_tokens,
        "stream_interval": interval,
        "logprobs": 0,
    }
    answer = whole(http, "/v1/completions", fields)
    chunks = events(http, "/v1/completions", fields)
    assert counts(chunks[-1]) == counts(answer)
    for choice in answer["choices"]:
        parts = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
        assert "".join(part["text"] for part in parts) == choice["text"]
        assert parts[-1]["finish_reason"] == choice["finish_reason"]
        assert parts[-1]["stop_reason"] == choice["stop_reason"]
        for name, values in choice["logprobs"].items():
            assert [one for part in parts for one in part["logprobs"][name]] == values
        assert not any(stop in choice["text"] for stop in stops)


@fuzz
@given(cut_texts())
def test_a_text_is_cut_where_its_first_stop_is_complete(http: httpx.Client, drawn: Any) -> None:
    text, stops = drawn
    fields = {"prompt": f"say:{text}", "stop": stops, "max_tokens": 200}
    assert whole(http, "/v1/completions", fields)["choices"][0]["text"] == cut(text, stops)


@fuzz
@given(before=texts, after=texts, interval=st.integers(1, 30), max_tokens=st.integers(1, 160))
def test_streamed_calls_join_to_the_whole_ones(
    tool_http: httpx.Client, before: str, after: str, interval: int, max_tokens: int
) -> None:
    fields = {
        "messages": chat_messages(f"say:{before}{TWO_CALLS}{after}"),
        "tools": [WEATHER],
        "max_tokens": max_tokens,
        "stream_interval": interval,
    }
    answer = whole(tool_http, "/v1/chat/completions", fields)
    message = answer["choices"][0]["message"]
    chunks = events(tool_http, "/v1/chat/completions", fields)
    deltas = [c["delta"] for chunk in chunks for c in chunk["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == (message["content"] or "")
    calls: list[Any] = []
    for delta in deltas:
        for call in delta.get("tool_calls", []):
            if "id" in call:
                calls.append([call["function"]["name"], ""])
            calls[call["index"]][1] += call["function"]["arguments"]
    wanted = [
        [call["function"]["name"], call["function"]["arguments"]]
        for call in message.get("tool_calls", [])
    ]
    assert calls == wanted
    assert counts(chunks[-1]) == counts(answer)
