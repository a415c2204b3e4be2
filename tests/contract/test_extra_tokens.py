"""A tokenizer that knows ids beyond the model's: the requests that use one are refused, alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.conftest import Server
from tests.contract.test_answers import chat_messages, completion
from tests.fakes_engine import MODEL, write_model_dir

EXTRA_ID = MODEL.vocab_size  # as the library counts on, whatever the file says
SPECIAL_ID = EXTRA_ID + 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = write_model_dir(tmp_path_factory.mktemp("extra"))
    with_extra_tokens(folder)
    server = Server(folder, {})
    yield server
    server.stop()


def with_extra_tokens(folder: Path) -> None:
    path = folder / "tokenizer.json"
    described = json.loads(path.read_text())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    described["added_tokens"] += [
        {"id": EXTRA_ID, "content": "<extra>", **flags, "special": False},
        {"id": SPECIAL_ID, "content": "<|special|>", **flags, "special": True},
    ]
    path.write_text(json.dumps(described))


@pytest.fixture
def http(server: Server) -> httpx.Client:
    return server.client


LAST = [*chat_messages("hi"), {"role": "assistant", "content": "so <extra>"}]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/completions", {"prompt": "a<extra>"}, "prompt"),
        ("/v1/completions", {"prompt": "a<|special|>"}, "prompt"),
        ("/v1/completions", {"prompt": ["good", "a<extra>"]}, "prompt"),
        ("/v1/completions", {"prompt": "a<extra>", "echo": True, "logprobs": 1}, "prompt"),
        ("/v1/completions", {"prompt": "<extra>bc", "truncate_prompt_tokens": 2}, "prompt"),
        ("/v1/completions", {"prompt": "a", "stream": True, "bad_words": ["<extra>"]}, "bad_words"),
        ("/v1/completions", {"prompt": [97, EXTRA_ID]}, "prompt"),
        ("/v1/completions", {"prompt": [[97], [EXTRA_ID]]}, "prompt"),
        ("/v1/completions", {"prompt": "a", "stop_token_ids": [EXTRA_ID]}, "stop_token_ids"),
        ("/v1/chat/completions", {"messages": chat_messages("a<extra>")}, "messages"),
        (
            "/v1/chat/completions",
            {"messages": chat_messages("a<extra>"), "stream": True},
            "messages",
        ),
        (
            "/v1/chat/completions",
            {"messages": LAST, "continue_final_message": True, "add_generation_prompt": False},
            "messages",
        ),
        (
            "/v1/chat/completions",
            {
                "messages": chat_messages("a"),
                "chat_template": "<|special|>{{ messages[0].content }}",
            },
            "messages",
        ),
    ],
)
def test_a_token_that_the_model_lacks_is_refused(
    http: httpx.Client, path: str, fields: dict[str, Any], param: str
) -> None:
    response = http.post(path, json={"max_tokens": 2, **fields})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_token_id", param)
    assert completion(http, prompt="good")["usage"]["prompt_tokens"] == 4


def test_the_error_shows_the_token_and_its_id(http: httpx.Client) -> None:
    body = http.post("/v1/completions", json={"prompt": "a<extra>", "max_tokens": 1}).json()
    message = body["error"]["message"]
    assert f"'<extra>' (id {EXTRA_ID})" in message
    assert f"the model's {MODEL.vocab_size} ids" in message


def test_a_special_token_in_a_message_stays_text(http: httpx.Client) -> None:
    fields = {"messages": chat_messages("a<|special|>"), "max_tokens": 1}
    assert http.post("/v1/chat/completions", json=fields).status_code == 200


def test_tokenize_shows_such_tokens_too(http: httpx.Client) -> None:
    fields = {"prompt": "a<extra><|special|>", "return_token_strs": True}
    body = http.post("/tokenize", json=fields).json()
    assert body["tokens"] == [97, EXTRA_ID, SPECIAL_ID]
    assert body["token_strs"] == ["a", "<extra>", "<|special|>"]


def test_a_stop_string_may_be_such_a_token_s_text(http: httpx.Client) -> None:
    assert completion(http, prompt="good", stop=["<extra>"], max_tokens=3)["choices"]
