"""Every kind of bad input: status, type, code, param; and the next request works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.contract.conftest import Server
from tests.fakes_engine import GatedRunner

JSON = {"content-type": "application/json"}
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]

Case = tuple[str, Any, int, str, str | None]
CASES: list[Case] = [
    (COMPLETIONS, b"{", 400, "invalid_json", None),
    (COMPLETIONS, b"", 400, "invalid_json", None),
    (COMPLETIONS, b"[1]", 400, "invalid_json", None),
    (COMPLETIONS, b'{"prompt":"a","temperature":NaN}', 400, "invalid_json", None),
    (COMPLETIONS, b'{"prompt":"\xff"}', 400, "invalid_json", None),
    (COMPLETIONS, b'{"prompt":"\\ud83d"}', 400, "invalid_json", None),
    (COMPLETIONS, b"[" * 100_000, 400, "invalid_json", None),
    (COMPLETIONS, b'{"prompt":"a","x":' + b"[" * 90_000 + b"]" * 90_000 + b"}", 400,
     "invalid_json", None),
    (COMPLETIONS, b'{"prompt":"a","max_tokens":' + b"9" * 5000 + b"}", 400,
     "invalid_json", None),
    (COMPLETIONS, {}, 400, "missing_required_parameter", "prompt"),
    (CHAT, {}, 400, "missing_required_parameter", "messages"),
    (COMPLETIONS, {"prompt": ""}, 400, "empty_prompt", "prompt"),
    (COMPLETIONS, {"prompt": None}, 400, "empty_prompt", "prompt"),
    (COMPLETIONS, {"prompt": 5}, 400, "invalid_type", "prompt"),
    (COMPLETIONS, {"prompt": "a", "stream": "true"}, 400, "invalid_type", "stream"),
    (COMPLETIONS, {"prompt": "a", "max_tokens": "5"}, 400, "invalid_type", "max_tokens"),
    (COMPLETIONS, {"prompt": "a", "max_tokens": -1}, 400, "invalid_value", "max_tokens"),
    (COMPLETIONS, {"prompt": "a", "max_tokens": 512}, 400, "context_length_exceeded", "max_tokens"),
    (COMPLETIONS, {"prompt": "a", "max_tokens": 10**25}, 400, "context_length_exceeded",
     "max_tokens"),
    (COMPLETIONS, {"prompt": "a" * 512}, 400, "context_length_exceeded", "prompt"),
    (COMPLETIONS, {"prompt": "a" * 512, "stream": True}, 400, "context_length_exceeded", "prompt"),
    (COMPLETIONS, {"prompt": "a" * 100_000}, 400, "context_length_exceeded", "prompt"),
    (CHAT, {"messages": [{"role": "user", "content": "a" * 600}]}, 400, "context_length_exceeded",
     "messages"),
    (COMPLETIONS, {"prompt": [260]}, 400, "invalid_token_id", "prompt"),
    (COMPLETIONS, {"prompt": [-1]}, 400, "invalid_token_id", "prompt"),
    (COMPLETIONS, {"prompt": [2**63]}, 400, "invalid_token_id", "prompt"),
    (COMPLETIONS, {"prompt": ["a", [1]]}, 400, "invalid_type", "prompt"),
    (COMPLETIONS, {"prompt": ["a", ""]}, 400, "empty_prompt", "prompt"),
    (COMPLETIONS, {"prompt": "a", "model": "gpt-4"}, 404, "model_not_found", "model"),
    (COMPLETIONS, {"prompt": "a", "model": "x" * 10_000}, 404, "model_not_found", "model"),
    (COMPLETIONS, {"prompt": "a", "temperature": 3}, 400, "invalid_value", "temperature"),
    (COMPLETIONS, {"prompt": "a", "top_p": 0}, 400, "invalid_value", "top_p"),
    (COMPLETIONS, {"prompt": "a", "stop": [""]}, 400, "invalid_value", "stop"),
    (COMPLETIONS, {"prompt": "a", "suffix": "b"}, 400, "unsupported_parameter", "suffix"),
    (CHAT, {"messages": USER, "audio": {}}, 400, "unsupported_parameter", "audio"),
    (CHAT, {"messages": []}, 400, "invalid_value", "messages"),
    (CHAT, {"messages": USER, "chat_template": "{# #}"}, 400, "empty_prompt", "messages"),
    (CHAT, {"messages": USER, "chat_template": "{% if %}"}, 400, "template_error",
     "chat_template"),
    (CHAT, {"messages": USER, "min_tokens": 3, "max_completion_tokens": 2}, 400, "invalid_value",
     "min_tokens"),
    (CHAT, {"messages": USER, "max_completion_tokens": 512}, 400, "context_length_exceeded",
     "max_completion_tokens"),
    (CHAT, {"messages": USER, "max_tokens": 512}, 400, "context_length_exceeded", "max_tokens"),
    (CHAT, {"messages": USER, "max_tokens": 9, "max_completion_tokens": 512}, 400,
     "context_length_exceeded", "max_completion_tokens"),
    (CHAT, {"messages": [{"role": "usr", "content": "a"}]}, 400, "invalid_value",
     "messages.0.role"),
    (CHAT, {"messages": [{"role": "user"}]}, 400, "missing_required_parameter",
     "messages.0.content"),
]  # fmt: skip


def check(response: httpx.Response, status: int, code: str | None, param: str | None) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    assert len(response.content) < 1000
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert (error["code"], error["param"]) == (code, param)


@pytest.mark.parametrize(("path", "body", "status", "code", "param"), CASES)
def test_bad_input_is_refused_and_the_next_request_works(
    http: httpx.Client, path: str, body: Any, status: int, code: str, param: str | None
) -> None:
    if isinstance(body, bytes):
        response = http.post(path, content=body, headers=JSON)
    else:
        response = http.post(path, json=body)
    check(response, status, code, param)
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_a_wide_body_is_taken(http: httpx.Client) -> None:
    body = b'{"prompt":"a","x":[' + b"[]," * 400_000 + b"7]}"
    assert http.post(COMPLETIONS, content=body, headers=JSON).status_code == 200


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        (COMPLETIONS, {"stop": ""}, "stop must hold at least 1 character"),
        (COMPLETIONS, {"stop": ["b", None]}, "stop must be a string (item 1)"),
        (COMPLETIONS, {"allowed_token_ids": [5, -1]},
         "a token id must be an integer of at least 0 (item 1)"),
        (CHAT, {"tools": [{"type": "function"}]}, "tools.function is required (item 0)"),
    ],
)  # fmt: skip
def test_an_error_in_a_list_says_which_item_it_is(
    http: httpx.Client, path: str, fields: dict[str, Any], message: str
) -> None:
    response = http.post(path, json={"prompt": "a", "messages": USER, **fields})
    assert response.json()["error"]["message"] == message


def test_a_context_error_names_the_limits(http: httpx.Client) -> None:
    body = {"prompt": "abc", "max_tokens": 510}
    message = http.post(COMPLETIONS, json=body).json()["error"]["message"]
    assert "3 tokens" in message
    assert "510" in message
    assert "512" in message


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", COMPLETIONS, 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("GET", "/", 404, "not_found"),
        ("POST", "/v1/complete", 404, "not_found"),
        ("POST", "/completions", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/" + "x" * 5000, 404, "not_found"),
    ],
)
def test_a_wrong_method_or_path_has_the_same_envelope(
    http: httpx.Client, method: str, path: str, status: int, code: str
) -> None:
    check(http.request(method, path), status, code, None)


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_what_is_not_called_json_is_refused(http: httpx.Client, media_type: str | None) -> None:
    headers = {} if media_type is None else {"content-type": media_type}
    response = http.post(COMPLETIONS, content=b'{"prompt":"a"}', headers=headers)
    check(response, 415, "unsupported_media_type", None)


def test_a_charset_is_no_hindrance(http: httpx.Client) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert http.post(COMPLETIONS, content=b'{"prompt":"a"}', headers=headers).status_code == 200


def test_a_body_over_the_limit_is_refused_as_announced_and_as_it_comes(
    start: Callable[..., Server],
) -> None:
    server = start(max_body="1KiB")
    big = b'{"prompt":"' + b"a" * 2000 + b'"}'
    check(server.client.post(COMPLETIONS, content=big, headers=JSON), 413, "body_too_large", None)
    pieces = (big[at : at + 100] for at in range(0, len(big), 100))
    check(
        server.client.post(COMPLETIONS, content=pieces, headers=JSON), 413, "body_too_large", None
    )


def test_only_a_key_opens_what_is_guarded(start: Callable[..., Server]) -> None:
    server = start(api_key="s3cret")
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic s3cret"}):
        for path in ("/v1/models", "/version", "/debug/steps", "/metrics", "/nowhere"):
            response = server.client.get(path, headers=headers)
            check(response, 401, "invalid_api_key", None)
            assert response.headers["www-authenticate"] == "Bearer"
    key = {"authorization": "bearer s3cret"}
    for path in ("/v1/models", "/metrics"):
        assert server.client.get(path, headers=key).status_code == 200
    for path in ("/health", "/ready"):
        assert server.client.get(path).status_code == 200


def test_a_full_queue_refuses_all_prompts_of_a_request_and_says_when_to_come_back(
    start: Callable[..., Server],
) -> None:
    runner = GatedRunner()
    server = start(runner, max_queue="2")
    held = {"prompt": "a", "max_tokens": 9, "stream": True}
    with server.client.stream("POST", COMPLETIONS, json=held) as stream:
        response = server.client.post(COMPLETIONS, json={"prompt": ["a", "b"]})
        check(response, 429, "overloaded", None)
        assert response.json()["error"]["type"] == "rate_limit_error"
        assert int(response.headers["retry-after"]) >= 1
        runner.open()
        stream.read()
    assert server.client.post(COMPLETIONS, json={"prompt": ["a", "b"]}).status_code == 200


def test_more_answers_than_the_queue_ever_takes_are_refused_for_good(
    start: Callable[..., Server],
) -> None:
    server = start(max_queue="3")
    response = server.client.post(COMPLETIONS, json={"prompt": ["a", "b"], "n": 2})
    check(response, 400, "invalid_value", "n")
    assert "prompts times n is 4; the limit is 3" in response.text
    response = server.client.post(COMPLETIONS, json={"prompt": ["a"] * 4})
    check(response, 400, "invalid_value", "prompt")
