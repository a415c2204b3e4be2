"""One request's text does not hold up the others: `/health` answers while it is being read."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.conftest import Server
from tests.fakes_engine import MAX_MODEL_LEN, write_model_dir

JSON = {"content-type": "application/json"}
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
LONGEST_TOKEN = len("<|im_start|>")
HELD_BYTES = MAX_MODEL_LEN * LONGEST_TOKEN
MAX_TEXT = 2**20  # --max-text
FOREVER = "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}"


def health_answers_during(server: Server, path: str, fields: Any) -> tuple[int, httpx.Response]:
    """Send a request, and count the answers of /health before its own."""
    body, answers = json.dumps(fields).encode(), 0
    with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=server.url, timeout=None) as other:
        assert other.get("/health").status_code == 200
        sent = pool.submit(server.client.post, path, content=body, headers=JSON)
        while not sent.done():
            assert other.get("/health").status_code == 200
            answers += not sent.done()
        return answers, sent.result()


def test_health_answers_while_the_longest_text_is_encoded(start: Callable[..., Server]) -> None:
    text = "a word, " * (MAX_TEXT // 8)
    answers, response = health_answers_during(start(), "/tokenize", {"prompt": text})
    assert response.json()["count"] == MAX_TEXT
    assert answers >= 5


def test_a_template_of_the_model_that_never_ends_holds_up_nobody(tmp_path: Path) -> None:
    write_model_dir(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(FOREVER)
    server = Server(tmp_path, {"template_timeout": "0.5"})
    try:
        answers, response = health_answers_during(server, CHAT, {"messages": HI})
        error = response.json()["error"]
        shown = (response.status_code, error["code"], error["param"])
        assert shown == (400, "template_error", "messages")
        assert answers >= 5
    finally:
        server.stop()  # which a frozen server would not hear


@pytest.mark.parametrize(
    ("path", "fields", "param", "code", "limit"),
    [
        (COMPLETIONS, {"prompt": "a" * (HELD_BYTES + 1)}, "prompt",
         "context_length_exceeded", HELD_BYTES),
        (COMPLETIONS, {"prompt": ["a", "é" * HELD_BYTES]}, "prompt",
         "context_length_exceeded", HELD_BYTES),
        (COMPLETIONS, {"prompt": "a" * (MAX_TEXT + 1), "truncate_prompt_tokens": 5}, "prompt",
         "invalid_value", MAX_TEXT),
        (COMPLETIONS, {"prompt": [1] * (2**20 + 1)}, "prompt", "invalid_value", 2**20),
        (COMPLETIONS, {"prompt": "a", "stop": "a" * 4097}, "stop", "invalid_value", 4096),
        (COMPLETIONS, {"prompt": "a", **{f"k{at}": 1 for at in range(2**16)}}, None,
         "invalid_value", 2**16),
        (CHAT, {"messages": [{"role": "user", "content": "a" * HELD_BYTES}]}, "messages",
         "context_length_exceeded", HELD_BYTES),
        (CHAT, {"messages": [{"role": "user", "content": "<|eos|>" * HELD_BYTES}]}, "messages",
         "context_length_exceeded", HELD_BYTES),
        (CHAT, {"messages": HI * 10_001}, "messages", "invalid_value", 10_000),
        (CHAT, {"messages": HI, "tools": [{"type": "function", "function":
         {"name": "f", "description": "d" * HELD_BYTES}}]}, "messages",
         "context_length_exceeded", HELD_BYTES),
        (CHAT, {"messages": HI, "chat_template":
         "{% for i in range(3000) %}{{ 'x' * 10000 }}{% endfor %}"}, "chat_template",
         "context_length_exceeded", HELD_BYTES),
        ("/tokenize", {"prompt": "a" * (MAX_TEXT + 1)}, "prompt", "invalid_value", MAX_TEXT),
        ("/tokenize", {"messages": [{"role": "user", "content": "a" * MAX_TEXT}]}, "messages",
         "invalid_value", MAX_TEXT),
        ("/detokenize", {"tokens": [1] * (2**18 + 1)}, "tokens", "invalid_value", 2**18),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_too_long_is_refused_with_its_field_and_the_limit(
    http: httpx.Client, path: str, fields: Any, param: str | None, code: str, limit: int
) -> None:
    response = http.post(path, json=fields)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)
    assert str(limit) in error["message"]


def test_a_text_that_fits_is_taken_whatever_its_bytes(http: httpx.Client) -> None:
    longest = "<|im_start|>" * (MAX_MODEL_LEN - 1)
    fields: dict[str, Any] = {"prompt": longest, "max_tokens": 1}
    usage = http.post(COMPLETIONS, json=fields).json()["usage"]
    assert usage["prompt_tokens"] == MAX_MODEL_LEN - 1


def test_a_long_text_may_be_truncated(http: httpx.Client) -> None:
    fields = {"prompt": "a" * (2 * HELD_BYTES), "truncate_prompt_tokens": 5, "max_tokens": 1}
    assert http.post(COMPLETIONS, json=fields).json()["usage"]["prompt_tokens"] == 5


def test_numbers_that_json_libraries_do_not_write_reach_a_template(http: httpx.Client) -> None:
    fields = {
        "messages": HI,
        "chat_template": "say:{{ x }}",
        "chat_template_kwargs": {"x": 2**70},
        "max_tokens": 30,
    }
    answer = http.post(CHAT, json=fields).json()
    assert answer["choices"][0]["message"]["content"] == str(2**70)
