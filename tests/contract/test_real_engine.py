"""The contract's promises about numbers, with the real engine and tinygpt's random weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from server.answers.choice_maker import child_seed
from tests.contract.test_answers import completion, stream
from tests.contract.test_process import Process
from tests.contract.test_tools import WEATHER

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    process = Process("--threads", "1")
    yield process.client
    process.client.close()
    process.popen.terminate()
    process.end()


def token_ids(body: Any) -> list[list[int]]:
    return [choice["token_ids"] for choice in body["choices"]]


def test_each_choice_is_what_its_seed_gives_alone(http: httpx.Client) -> None:
    fields = {"max_tokens": 12, "return_token_ids": True, "ignore_eos": True}
    together = token_ids(completion(http, n=4, seed=5, **fields))
    alone = [
        token_ids(completion(http, seed=child_seed(5, child), **fields))[0] for child in range(4)
    ]
    assert together == alone
    assert len({tuple(ids) for ids in together}) == 4


def test_greedy_choices_are_equal_and_streamed_alike(http: httpx.Client) -> None:
    fields = {"max_tokens": 12, "n": 2, "temperature": 0, "logprobs": 3, "prompt": "hi"}
    whole = completion(http, **fields)
    first, second = whole["choices"]
    assert first["text"] == second["text"]
    chunks = stream(http, "/v1/completions", **fields)
    parts = [c for chunk in chunks for c in chunk["choices"] if c["index"] == 1]
    assert "".join(part["text"] for part in parts) == second["text"]
    values = [one for part in parts for one in part["logprobs"]["token_logprobs"]]
    assert values == pytest.approx(second["logprobs"]["token_logprobs"], abs=2e-3)


def test_a_text_scores_the_same_as_it_was_generated(http: httpx.Client) -> None:
    fields = {"max_tokens": 8, "temperature": 0, "logprobs": 0, "ignore_eos": True}
    fields |= {"allowed_token_ids": list(range(97, 123))}
    made = completion(http, prompt="hello", **fields)["choices"][0]
    text = "hello" + made["text"]
    scored = completion(http, prompt=text, echo=True, logprobs=0, max_tokens=0)["choices"][0]
    generated = made["logprobs"]["token_logprobs"]
    assert scored["text"] == text
    assert scored["logprobs"]["token_logprobs"][-8:] == pytest.approx(generated, abs=2e-3)


@pytest.mark.parametrize("temperature", [0, 1])
def test_what_must_follow_a_schema_does(http: httpx.Client, temperature: float) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}, "b": {"type": "string", "maxLength": 5}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    fields = {"messages": MESSAGES, "max_tokens": 200, "temperature": temperature, "seed": 1}
    answer = http.post(CHAT, json={**fields, "response_format": form}).json()["choices"][0]
    assert answer["finish_reason"] == "stop"
    read = json.loads(answer["message"]["content"])
    assert read["a"] in (1, 2)
    assert len(read["b"]) <= 5


def test_a_random_model_calls_the_tool_that_it_must(http: httpx.Client) -> None:
    tool = json.loads(json.dumps(WEATHER))
    tool["function"]["parameters"]["properties"]["city"]["maxLength"] = 8
    fields = {"messages": MESSAGES, "tools": [tool], "max_tokens": 400, "seed": 2}
    body = {**fields, "tool_choice": {"type": "function", "function": {"name": "weather"}}}
    response = http.post(CHAT, json=body)
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert set(json.loads(call["function"]["arguments"])) == {"city"}


def test_what_is_biased_away_or_bad_never_comes(http: httpx.Client) -> None:
    fields = {"max_tokens": 40, "return_token_ids": True, "ignore_eos": True, "temperature": 0}
    (ids,) = token_ids(completion(http, **fields))
    often = max(set(ids), key=ids.count)
    (biased,) = token_ids(completion(http, logit_bias={str(often): -100}, **fields))
    assert often not in biased
    (penalised,) = token_ids(completion(http, frequency_penalty=2, **fields))
    assert penalised.count(often) <= ids.count(often)
    (letters,) = token_ids(
        completion(http, allowed_token_ids=[97, 98], bad_words=["aa", "bb"], **fields)
    )
    assert letters in ([97, 98] * 20, [98, 97] * 20)
