"""Golden bodies and SSE bytes of both routes. The scripted model recites one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from telemetry.telemetry import Telemetry
from tests.contract.conftest import Server
from tests.fakes_engine import EOS

COST_FIELDS = {
    "queue_ms", "ttft_ms", "prefill_ms", "decode_ms", "stalled_ms", "mean_itl_ms",
    "tokens_per_second", "floor_ms", "efficiency", "bytes_read", "bytes_written", "flops",
    "kv_block_seconds", "cached_tokens", "recomputed_tokens", "steps", "mean_batch", "regime",
    "interference_ms", "cost_usd", "spent_ms", "why", "checkpoint_floor_ms",
    "prefill_floor_ms", "decode_floor_ms", "lost_ms", "prefill_lost_ms", "decode_lost_ms",
}  # fmt: skip


def completion(http: httpx.Client, **fields: Any) -> Any:
    response = http.post("/v1/completions", json={"prompt": "hi", **fields})
    assert response.status_code == 200, response.text
    return response.json()


def chat_messages(content: str = "hi") -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def counts(body: Any) -> tuple[int, ...]:
    """Give the usage but for cached tokens, which depend on what was asked before."""
    usage = body["usage"]
    return tuple(usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens"))


def stream(http: httpx.Client, path: str, **fields: Any) -> list[Any]:
    """Read a stream to its end; give its JSON, having checked the framing."""
    response = http.post(path, json={"stream": True, **fields})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: ") and "\n" not in event for event in events[:-1])
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


def test_a_completion_has_the_documented_body(http: httpx.Client) -> None:
    body = completion(http, max_tokens=7, model="tinygpt")
    id, created, cost = body.pop("id"), body.pop("created"), body.pop("cost")
    assert body.pop("system_fingerprint").startswith("fp_")
    assert id.startswith("cmpl-")
    assert isinstance(created, int)
    assert set(cost) == COST_FIELDS
    assert cost["steps"] == 7
    assert cost["floor_ms"] > 0
    assert body == {
        "object": "text_completion",
        "model": "tinygpt",
        "choices": [{"index": 0, "text": "Die Gr\ufffd", "logprobs": None,
                     "finish_reason": "length", "stop_reason": None}],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": 7,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }  # fmt: skip


def test_a_chat_has_the_documented_body(http: httpx.Client) -> None:
    fields = {"messages": chat_messages(), "max_tokens": 3, "cache_salt": "golden"}
    body = http.post("/v1/chat/completions", json=fields).json()
    assert body.pop("id").startswith("chatcmpl-")
    assert isinstance(body.pop("created"), int)
    assert set(body.pop("cost")) == COST_FIELDS
    assert body.pop("system_fingerprint").startswith("fp_")
    prompt_tokens = len("user\nhi\nassistant\n") + 3
    assert body == {
        "object": "chat.completion",
        "model": "tinygpt",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": "Die", "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
        }],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": 3,
            "total_tokens": prompt_tokens + 3,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }  # fmt: skip


def test_an_answer_tells_its_timing_and_its_id(http: httpx.Client) -> None:
    response = http.post("/v1/completions", json={"prompt": "hi"})
    cost, names = response.json()["cost"], ("queue", "prefill", "decode", "floor")
    told = [f"{name};dur={cost[f'{name}_ms']:.3f}" for name in names]
    if cost["why"]:  # this machine may be busy
        told.append(f'why;desc="{cost["why"]["code"]}"')
    assert response.headers["server-timing"] == ", ".join(told)
    assert len(response.headers["x-request-id"]) == 32


def test_a_slow_answer_says_why(start: Callable[..., Server]) -> None:
    """No answer comes within a microsecond."""
    server = start(slo="e2e=0.001ms")
    response = server.client.post("/v1/completions", json={"prompt": "hi", "max_tokens": 3})
    why = response.json()["cost"]["why"]
    assert why["sentence"].startswith("Answer after ")
    assert ", goal 0.00 ms: " in why["sentence"]
    assert f'why;desc="{why["code"]}"' in response.headers["server-timing"]
    last = stream(server.client, "/v1/completions", prompt="hi", max_tokens=3)[-1]
    assert last["cost"]["why"]["code"]
    timeline = server.client.get(f"/debug/requests/{response.json()['id']}").json()
    assert timeline["why"]["sentence"] == why["sentence"]
    assert sum(timeline["why"]["spent_ms"].values()) == pytest.approx(
        timeline["why"]["measured_ms"]
    )


@pytest.mark.parametrize(("given", "echoed"), [("abc-1", True), ("a b", False), ("x" * 129, False)])
def test_a_safe_request_id_is_echoed(http: httpx.Client, given: str, echoed: bool) -> None:
    response = http.get("/health", headers={"x-request-id": given})
    assert (response.headers["x-request-id"] == given) is echoed
    assert len(response.headers.get_list("x-request-id")) == 1


def test_a_streamed_completion_sends_whole_characters_then_its_end_and_cost(
    http: httpx.Client,
) -> None:
    chunks = stream(http, "/v1/completions", prompt="hi", max_tokens=10)
    texts = [chunk["choices"][0]["text"] for chunk in chunks]
    assert "".join(texts) == "Die Größ"
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert texts[-1] == ""
    assert {(chunk["id"], chunk["object"], chunk["model"]) for chunk in chunks} == {
        (chunks[0]["id"], "text_completion", "tinygpt")
    }
    assert ["cost" in chunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert set(chunks[-1]["cost"]) == COST_FIELDS
    assert not any("usage" in chunk for chunk in chunks)


def test_a_streamed_chat_opens_with_its_role_and_ends_with_an_empty_delta(
    http: httpx.Client,
) -> None:
    chunks = stream(http, "/v1/chat/completions", messages=chat_messages(), max_tokens=3)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[-1] == {}
    assert all(set(delta) == {"content"} for delta in deltas[1:-1])
    assert "".join(delta["content"] for delta in deltas[1:-1]) == "Die"
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


def test_usage_comes_in_a_chunk_of_its_own_where_it_was_asked_for(http: httpx.Client) -> None:
    options = {"include_usage": True}
    chunks = stream(
        http, "/v1/completions", prompt=["a", "bc"], max_tokens=2, stream_options=options
    )
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert not any("cost" in chunk for chunk in chunks[:-1])
    last = chunks[-1]
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == 3
    assert last["usage"]["completion_tokens"] == 4
    assert set(last["cost"]) == COST_FIELDS


def test_running_usage_grows_to_the_total(http: httpx.Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    fields = {"messages": chat_messages(), "max_tokens": 5, "stream_options": options}
    chunks = stream(http, "/v1/chat/completions", **fields)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[-1] == 5
    assert len({chunk["usage"]["prompt_tokens"] for chunk in chunks}) == 1


@pytest.mark.parametrize("max_tokens", [1, 6, 7, 8, 20, 60])
@pytest.mark.parametrize("stop", [None, "€", [": 3", "ß"], ["🦊", "zzz"], ["Die"]])
def test_joined_deltas_are_the_whole_text(
    http: httpx.Client, max_tokens: int, stop: object
) -> None:
    fields = {"prompt": "hi", "max_tokens": max_tokens, "stop": stop}
    whole = completion(http, **fields)
    options = {"include_usage": True}
    chunks = stream(http, "/v1/completions", **fields, stream_options=options)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert "".join(choice["text"] for choice in choices) == whole["choices"][0]["text"]
    assert choices[-1]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert counts(chunks[-1]) == counts(whole)


def test_a_stop_string_is_cut_and_its_tokens_are_counted(http: httpx.Client) -> None:
    body = completion(http, max_tokens=50, stop=["ß"])
    assert body["choices"][0]["text"] == "Die Grö"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == len("Die Größ".encode())


def test_an_end_of_sequence_stops_unless_it_is_ignored(http: httpx.Client) -> None:
    body = completion(http, prompt="!", max_tokens=8, return_token_ids=True)
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["choices"][0]["text"] == "Die G"
    assert body["choices"][0]["token_ids"] == [*b"Die G", EOS]
    assert body["choices"][0]["prompt_token_ids"] == [ord("!")]
    assert body["usage"]["completion_tokens"] == 6
    body = completion(http, prompt="!", max_tokens=8, ignore_eos=True)
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 8


def test_streamed_token_ids_join_to_the_whole_ones(http: httpx.Client) -> None:
    fields = {"prompt": [[104, 105], [33]], "max_tokens": 9, "return_token_ids": True}
    whole = completion(http, **fields)
    chunks = stream(http, "/v1/completions", **fields)
    for expected in whole["choices"]:
        parts = [c for chunk in chunks for c in chunk["choices"] if c["index"] == expected["index"]]
        assert [id for part in parts for id in part["token_ids"]] == expected["token_ids"]
        assert parts[0]["prompt_token_ids"] == expected["prompt_token_ids"]
        assert not any("prompt_token_ids" in part for part in parts[1:])


@pytest.mark.parametrize("prompt", [["a", "!b"], [[97], [33, 98]]])
def test_a_list_of_prompts_is_answered_in_its_order(http: httpx.Client, prompt: Any) -> None:
    body = completion(http, prompt=prompt, max_tokens=7)
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert [choice["finish_reason"] for choice in body["choices"]] == ["length", "stop"]
    assert body["usage"]["prompt_tokens"] == 3


def test_no_tokens_are_generated_for_a_max_tokens_of_zero(http: httpx.Client) -> None:
    body = completion(http, max_tokens=0)
    assert body["choices"][0]["text"] == ""
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 0


def test_a_chat_without_max_tokens_fills_the_room(http: httpx.Client) -> None:
    body = http.post("/v1/chat/completions", json={"messages": chat_messages()}).json()
    assert body["usage"]["total_tokens"] == 512


def test_special_tokens_in_a_message_are_text_to_the_model(http: httpx.Client) -> None:
    plain = http.post(
        "/v1/chat/completions", json={"messages": chat_messages("<|im_end|>"), "max_tokens": 1}
    ).json()
    assert plain["usage"]["prompt_tokens"] == len("user\n<|im_end|>\nassistant\n") + 3


def test_the_cost_can_be_left_out(start: Callable[..., Server]) -> None:
    server = start(response_cost="false")
    body = completion(server.client)
    assert "cost" not in body
    chunks = stream(server.client, "/v1/completions", prompt="hi")
    assert not any("cost" in chunk for chunk in chunks)


@pytest.mark.parametrize("method", ["cost", "forget", "on_finish_sent"])
def test_a_bug_in_the_books_costs_no_answer_and_no_end_of_a_stream(
    start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug in the books")

    monkeypatch.setattr(Telemetry, method, broken)
    http = start().client
    fields = {"prompt": "say:hello", "stop": "lo"}
    for _ in range(2):
        assert completion(http, **fields)["choices"][0]["text"] == "hel"
        chunks = stream(http, "/v1/completions", **fields)
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "hel"


GOLDEN_HEAD = (
    '{"id":"ID","object":"%s","created":0,"model":"tinygpt","system_fingerprint":"FP","choices":['
)


def plain(text: str) -> str:
    """Put fixed values where each answer has its own."""
    for pattern, fixed in (
        (r'"id":"(cmpl|chatcmpl)-[0-9a-f]{32}"', '"id":"ID"'),
        (r'"id":"call_[0-9a-f]{24}-0-0"', '"id":"CALL"'),
        (r'"created":[0-9]+', '"created":0'),
        (r'"system_fingerprint":"fp_[0-9a-f]{12}"', '"system_fingerprint":"FP"'),
        (r',"cost":\{.*?\}(?=\}\n)', ""),
    ):
        text = re.sub(pattern, fixed, text)
    return text


def test_the_bytes_of_a_completions_stream(http: httpx.Client) -> None:
    fields = {"prompt": "say:ü\n", "stream": True, "stream_interval": 9, "stop": "\n"}
    text = plain(http.post("/v1/completions", json=fields).content.decode())
    head = "data: " + GOLDEN_HEAD % "text_completion"
    assert text == (
        head + '{"index":0,"text":"ü","logprobs":null,"finish_reason":null}]}\n\n'
        + head + '{"index":0,"text":"","logprobs":null,"finish_reason":"stop",'
        '"stop_reason":"\\n"}]}\n\n'
        "data: [DONE]\n\n"
    )  # fmt: skip


def test_the_bytes_of_a_chats_stream_with_a_call(tool_http: httpx.Client) -> None:
    say = 'say:<tool_call>{"name": "f"}</tool_call>'  # begun and whole with one character
    tools = [{"type": "function", "function": {"name": "f"}}]
    fields = {"messages": chat_messages(say), "tools": tools, "stream": True}
    response = tool_http.post("/v1/chat/completions", json={**fields, "stream_interval": 1024})
    head = "data: " + GOLDEN_HEAD % "chat.completion.chunk"
    deltas = [
        '{"role":"assistant","content":""}',
        '{"tool_calls":[{"index":0,"id":"CALL","type":"function",'
        '"function":{"name":"f","arguments":""}}]}',
        '{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}',
    ]
    events = [
        f'{head}{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null}}]}}\n\n'
        for delta in deltas
    ]
    last = '{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls","stop_reason":null}'
    end = f"{head}{last}]}}\n\ndata: [DONE]\n\n"
    assert plain(response.content.decode()) == "".join(events) + end
