"""Tokens without inference, callers' templates, and the limits of a request in size and time."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.contract.conftest import Server
from tests.contract.test_answers import chat_messages, completion
from tests.fakes_engine import CHAT_TEMPLATE, IM_START
from tests.patience import PATIENCE_S

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HI = chat_messages("hi")


def post(http: httpx.Client, path: str, **fields: Any) -> Any:
    response = http.post(path, json=fields)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_texts_tokens_are_those_of_its_completion(http: httpx.Client) -> None:
    body = post(http, "/tokenize", prompt="Größe<|im_start|>", return_token_strs=True)
    assert body["tokens"] == [*"Größe".encode(), IM_START]
    assert body["count"] == len(body["tokens"])
    assert body["max_model_len"] == 512
    assert body["token_strs"][-1] == "<|im_start|>"
    usage = completion(http, prompt="Größe<|im_start|>")["usage"]
    assert usage["prompt_tokens"] == body["count"]
    assert post(http, "/detokenize", tokens=body["tokens"]) == {"prompt": "Größe<|im_start|>"}


def test_a_conversations_tokens_are_those_of_its_chat(http: httpx.Client) -> None:
    fields: dict[str, Any] = {"messages": chat_messages("<|eos|>")}
    usage = post(http, "/v1/chat/completions", **fields, max_tokens=1)["usage"]
    body = post(http, "/tokenize", **fields)
    assert body["count"] == usage["prompt_tokens"]
    assert body["token_strs"] is None
    assert post(http, "/tokenize", **fields, add_generation_prompt=False)["count"] < body["count"]


def test_an_empty_text_has_no_tokens(http: httpx.Client) -> None:
    assert post(http, "/tokenize", prompt="")["tokens"] == []
    assert post(http, "/detokenize", tokens=[]) == {"prompt": ""}


@pytest.mark.parametrize(
    ("path", "fields", "code", "param"),
    [
        ("/tokenize", {}, "missing_required_parameter", "prompt"),
        ("/tokenize", {"prompt": [1]}, "invalid_type", "prompt"),
        ("/tokenize", {"messages": []}, "invalid_value", "messages"),
        ("/detokenize", {}, "missing_required_parameter", "tokens"),
        ("/detokenize", {"tokens": [260]}, "invalid_token_id", "tokens"),
        ("/detokenize", {"tokens": [2**63]}, "invalid_token_id", "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "invalid_type", "tokens"),
    ],
)
def test_what_cannot_be_tokenized_is_refused(
    http: httpx.Client, path: str, fields: Any, code: str, param: str
) -> None:
    response = http.post(path, json=fields)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"]) == (code, param)


def test_the_tokenizers_special_tokens_and_template_are_told(http: httpx.Client) -> None:
    info = http.get("/tokenizer_info").json()
    assert (info["bos_token"], info["eos_token"]) == ("<|bos|>", "<|im_end|>")
    assert info["pad_token"] is None
    assert info["chat_template"] == CHAT_TEMPLATE
    assert info["model_max_length"] == 512


def test_an_idle_server_has_no_load(start: Callable[..., Server]) -> None:
    assert start().client.get("/load").json() == {"server_load": 0}


def test_a_callers_template_is_rendered_for_a_chat(http: httpx.Client) -> None:
    source = "say:{{ messages[0].content }}{{ extra }}{{ reasoning_effort }}"
    body = post(
        http,
        "/v1/chat/completions",
        messages=chat_messages("ab"),
        chat_template=source,
        chat_template_kwargs={"extra": "-", "messages": []},
        reasoning_effort="low",
    )
    assert body["choices"][0]["message"]["content"] == "ab-low"


def test_a_final_message_is_continued(http: httpx.Client) -> None:
    messages = [*chat_messages(), {"role": "assistant", "content": "say:more"}]
    fields = {"messages": messages, "continue_final_message": True}
    body = post(http, "/v1/chat/completions", **fields)
    assert body["choices"][0]["message"]["content"] == "more"


@pytest.mark.parametrize(
    ("flags", "fields", "param"),
    [
        ({"max_generations": "4"}, {"prompt": ["a"] * 3, "n": 2}, "n"),
        ({"max_generations": "4"}, {"prompt": ["a"] * 5}, "prompt"),
        ({"max_request_tokens": "100"}, {"prompt": "a", "n": 2, "max_tokens": 51}, "max_tokens"),
        ({"max_request_logprobs": "50"}, {"prompt": "a", "logprobs": 4, "max_tokens": 11},
         "logprobs"),
        ({"max_request_logprobs": "50"}, {"prompt": "a" * 51, "prompt_logprobs": 0},
         "prompt_logprobs"),
        ({"max_n": "2"}, {"prompt": "a", "n": 3}, "n"),
        ({"max_stop": "1"}, {"prompt": "a", "stop": ["a", "b"]}, "stop"),
        ({"max_prompts": "1"}, {"prompt": ["a", "b"]}, "prompt"),
        ({"max_logprobs": "1"}, {"prompt": "a", "logprobs": 2}, "logprobs"),
        ({"max_request_tokens": "9"}, {"messages": HI, "max_completion_tokens": 10},
         "max_completion_tokens"),
        ({"max_request_logprobs": "9"}, {"messages": HI, "logprobs": True, "max_tokens": 10},
         "logprobs"),
        ({"max_request_logprobs": "9"}, {"messages": HI, "logprobs": True, "top_logprobs": 9,
         "max_tokens": 5}, "top_logprobs"),
        ({}, {"prompt": "a", "n": 128, "allowed_token_ids": [97] * 20_000}, "allowed_token_ids"),
    ],
)  # fmt: skip
def test_a_request_over_the_operators_limits_is_refused_before_it_is_queued(
    start: Callable[..., Server], flags: dict[str, str], fields: Any, param: str
) -> None:
    server = start(**flags)
    response = server.client.post(CHAT if "messages" in fields else COMPLETIONS, json=fields)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_value", param)
    assert 'requests_received_total{model="tinygpt"} 0.0' in server.client.get("/metrics").text


def test_no_origin_may_call_unless_it_is_named(start: Callable[..., Server]) -> None:
    origin = {"origin": "https://a.example"}
    closed, opened = start(), start(cors_origins="https://a.example, https://b.example")
    assert "access-control-allow-origin" not in closed.client.get("/health", headers=origin).headers
    headers = opened.client.get("/health", headers=origin).headers
    assert headers["access-control-allow-origin"] == origin["origin"]
    assert "access-control-allow-credentials" not in headers
    other = opened.client.get("/health", headers={"origin": "https://c.example"}).headers
    assert "access-control-allow-origin" not in other
    asked = {**origin, "access-control-request-method": "POST"}
    assert opened.client.options(COMPLETIONS, headers=asked).status_code == 200


def receive_all(sock: socket.socket) -> bytes:
    pieces = []
    while piece := sock.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize(
    ("flags", "sent", "code"),
    [
        ({"header_timeout": "1"}, b"", b"head_too_slow"),
        ({"header_timeout": "1"}, b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n",
         b"head_too_slow"),
        ({"body_timeout": "0.2"},
         b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
         b"connection: close\r\ncontent-length: 9\r\n\r\n{", b"body_too_slow"),
    ],
)  # fmt: skip
def test_a_request_that_does_not_come_in_time_is_given_up(
    start: Callable[..., Server], flags: dict[str, str], sent: bytes, code: bytes
) -> None:
    server = start(**flags)
    url = httpx.URL(server.url)
    with socket.create_connection((url.host, url.port), timeout=PATIENCE_S) as sock:
        sock.sendall(sent)
        answer = receive_all(sock)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert code in answer
    assert server.client.get("/health").status_code == 200


def test_the_document_lists_every_route(server: Server) -> None:
    document = server.client.get("/openapi.json").json()
    app = {"/v1/models/{id}", "/debug/requests/{id}", "/v1/models", "/health", "/ready", "/version"}
    app |= {"/load", "/metrics", "/debug/steps", "/openapi.json", "/tokenize", "/detokenize"}
    app |= {"/tokenizer_info", "/debug/why"}
    assert set(document["paths"]) == {*app, "/v1/completions", "/v1/chat/completions"}
