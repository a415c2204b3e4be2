"""n, seeds, stops, echo and logprobs: what the answers hold, streamed and not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from core.request import SamplingParams
from core.wire import Submit
from server.answers.choice_maker import child_seed
from tests.contract.conftest import Server
from tests.contract.speaker import logprob_of
from tests.contract.test_answers import chat_messages, completion, stream
from tests.fakes_engine import EOS, IM_END


def texts(body: Any) -> list[str]:
    return [choice["text"] for choice in body["choices"]]


def streamed(chunks: list[Any], index: int) -> list[Any]:
    return [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]


def dice(http: httpx.Client, seed: int) -> str:
    return texts(completion(http, prompt="dice:", max_tokens=6, seed=seed))[0]


def test_choices_are_ordered_by_prompt_and_then_by_child(http: httpx.Client) -> None:
    body = completion(http, prompt=["dice:", "say:abc", "!"], n=3, max_tokens=6, seed=7)
    assert [choice["index"] for choice in body["choices"]] == list(range(9))
    assert texts(body)[:3] == [dice(http, child_seed(7, child)) for child in range(3)]
    assert len(set(texts(body)[:3])) == 3
    assert texts(body)[3:6] == ["abc"] * 3
    assert texts(body)[6:] == ["Die G"] * 3
    assert body["usage"]["prompt_tokens"] == 5 + 7 + 1
    assert body["usage"]["completion_tokens"] == 3 * (6 + 4 + 6)


def test_the_first_childs_seed_is_the_requests_own(http: httpx.Client) -> None:
    assert child_seed(-(2**63), 0) == -(2**63)
    seeds = {child_seed(seed, child) for seed in (0, 1, -1) for child in range(128)}
    assert len(seeds) == 3 * 128
    assert all(-(2**63) <= seed < 2**63 for seed in seeds)


def test_streamed_choices_join_to_the_whole_ones(http: httpx.Client) -> None:
    fields = {"prompt": ["dice:", "hi"], "n": 2, "max_tokens": 9, "seed": 3, "logprobs": 1}
    whole = completion(http, **fields)
    chunks = stream(http, "/v1/completions", **fields)
    for expected in whole["choices"]:
        parts = streamed(chunks, expected["index"])
        assert "".join(part["text"] for part in parts) == expected["text"]
        for name, values in expected["logprobs"].items():
            assert [one for part in parts for one in part["logprobs"][name]] == values
        assert [p["finish_reason"] for p in parts if p["finish_reason"]] == ["length"]


def test_best_of_as_many_as_n_is_taken(http: httpx.Client) -> None:
    assert len(completion(http, n=2, best_of=2, max_tokens=1)["choices"]) == 2


def test_a_stop_is_told_and_kept_where_that_is_asked_for(http: httpx.Client) -> None:
    (choice,) = completion(http, prompt="say:one. two.", max_tokens=20, stop=["tw", "zz"])[
        "choices"
    ]
    assert (choice["text"], choice["stop_reason"]) == ("one. ", "tw")
    fields = {"prompt": "say:one. two.", "max_tokens": 20, "include_stop_str_in_output": True}
    (choice,) = completion(http, stop="tw", **fields)["choices"]
    assert choice["text"] == "one. tw"
    (choice,) = completion(http, stop_token_ids=[ord("w")], **fields)["choices"]
    assert (choice["text"], choice["stop_reason"]) == ("one. tw", ord("w"))


def test_a_stop_token_is_cut_from_the_text_and_counted(http: httpx.Client) -> None:
    fields = {"prompt": "say:one. two.", "max_tokens": 20, "stop_token_ids": [ord("w")]}
    body = completion(http, **fields)
    (choice,) = body["choices"]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (
        "one. t", "stop", ord("w"),
    )  # fmt: skip
    assert body["usage"]["completion_tokens"] == 7
    last = stream(http, "/v1/completions", **fields)[-1]["choices"][0]
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", ord("w"))


def test_an_end_of_sequence_has_no_stop_reason(http: httpx.Client) -> None:
    (choice,) = completion(http, prompt="!", max_tokens=9)["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", None)


def test_nothing_stops_before_min_tokens(http: httpx.Client) -> None:
    fields = {"prompt": "say:a.b.c.d", "max_tokens": 9, "stop": "."}
    assert texts(completion(http, **fields)) == ["a"]
    assert texts(completion(http, **fields, min_tokens=4)) == ["a.b.c"]


def test_special_tokens_show_where_they_are_not_skipped(http: httpx.Client) -> None:
    fields = {"prompt": "!", "max_tokens": 9}
    assert texts(completion(http, **fields)) == ["Die G"]
    assert texts(completion(http, **fields, skip_special_tokens=False)) == ["Die G"]
    shown = completion(http, **fields, skip_special_tokens=False, include_stop_str_in_output=True)
    assert texts(shown) == ["Die G<|eos|>"]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"truncate_prompt_tokens": 3}, "cde"),
        ({"truncate_prompt_tokens": 3, "truncation_side": "right"}, "abc"),
        ({"truncate_prompt_tokens": 9}, "abcde"),
    ],
)
def test_a_prompt_is_cut_to_what_is_asked_for(
    http: httpx.Client, fields: dict[str, Any], kept: str
) -> None:
    body = completion(http, prompt="abcde", max_tokens=1, return_token_ids=True, **fields)
    assert body["choices"][0]["prompt_token_ids"] == list(kept.encode())


def test_a_prompt_is_cut_to_what_the_context_holds(http: httpx.Client) -> None:
    body = completion(http, prompt="a" * 600, max_tokens=12, truncate_prompt_tokens=-1)
    assert body["usage"]["prompt_tokens"] == 500


def test_chunks_hold_as_many_tokens_as_asked_for(http: httpx.Client) -> None:
    fields = {"prompt": "say:" + "abcdefghij" * 3, "return_token_ids": True, "max_tokens": 30}
    chunks = stream(http, "/v1/completions", **fields, stream_interval=10)
    sizes = [len(chunk["choices"][0]["token_ids"]) for chunk in chunks]
    assert sum(sizes) == 30
    assert all(size >= 10 for size in sizes[1:-2])
    assert len(sizes) <= 5


# ── logprobs ──────────────────────────────────────────────────────────────────────────────────


def test_logprobs_are_four_lists_of_one_length(http: httpx.Client) -> None:
    body = completion(http, prompt="say:aü", max_tokens=9, logprobs=2)
    logprobs = body["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a", "\ufffd", "\ufffd", "<|eos|>"]
    assert logprobs["text_offset"] == [0, 1, 1, 2]
    at = len("say:aü".encode())
    tokens = [*"aü".encode(), EOS]
    assert logprobs["token_logprobs"] == [logprob_of(t, at + i) for i, t in enumerate(tokens)]
    tops = zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True)
    assert all(token in top and len(top) <= 3 for token, top in tops)


def test_zero_logprobs_tell_the_sampled_token_alone(http: httpx.Client) -> None:
    logprobs = completion(http, prompt="say:a", max_tokens=1, logprobs=0)["choices"][0]["logprobs"]
    assert logprobs["top_logprobs"] == [{"a": logprobs["token_logprobs"][0]}]


def test_tokens_may_be_written_as_ids(http: httpx.Client) -> None:
    fields = {"prompt": "say:a", "max_tokens": 1, "return_tokens_as_token_ids": True}
    logprobs = completion(http, **fields, logprobs=0)["choices"][0]["logprobs"]
    assert logprobs["tokens"] == [f"token_id:{ord('a')}"]


@pytest.mark.parametrize("prompt", ["say:aü", list("say:aü".encode())])
def test_an_echo_with_no_tokens_scores_the_prompt(http: httpx.Client, prompt: Any) -> None:
    fields = {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 1}
    body = completion(http, **fields)
    (choice,) = body["choices"]
    ids = "say:aü".encode()
    assert choice["text"] == "say:aü"
    assert choice["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 0
    logprobs = choice["logprobs"]
    assert logprobs["token_logprobs"] == [
        None, *(logprob_of(token, at) for at, token in enumerate(ids) if at)
    ]  # fmt: skip
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["text_offset"] == [0, 1, 2, 3, 4, 5, 5]
    (chunk,) = [c for c in stream(http, "/v1/completions", **fields) if c["choices"][0]["text"]]
    assert chunk["choices"][0]["logprobs"] == logprobs


def test_an_echo_opens_each_choice(http: httpx.Client) -> None:
    fields = {"prompt": "say:hey", "max_tokens": 4, "echo": True, "logprobs": 0, "n": 2}
    body = completion(http, **fields)
    assert texts(body) == ["say:heyhey"] * 2
    assert body["choices"][0]["logprobs"]["text_offset"] == list(range(11))
    chunks = stream(http, "/v1/completions", **fields)
    for index in (0, 1):
        parts = streamed(chunks, index)
        assert parts[0]["text"].startswith("say:hey")
        assert "".join(part["text"] for part in parts) == "say:heyhey"
        offsets = [at for part in parts for at in part["logprobs"]["text_offset"]]
        assert offsets == list(range(11))


def test_an_echo_needs_no_logprobs(http: httpx.Client) -> None:
    assert texts(completion(http, prompt="say:hey", echo=True)) == ["say:heyhey"]


def test_prompt_logprobs_come_beside_the_choice(http: httpx.Client) -> None:
    body = completion(http, prompt="hi", max_tokens=1, prompt_logprobs=1)
    first, second = body["choices"][0]["prompt_logprobs"]
    assert first is None
    value = {"logprob": logprob_of(ord("i"), 1), "decoded_token": "i"}
    assert second[str(ord("i"))] == value


def test_a_chats_logprobs_spell_their_bytes(http: httpx.Client) -> None:
    fields = {"messages": chat_messages("say:aü"), "logprobs": True, "top_logprobs": 3}
    whole = http.post("/v1/chat/completions", json=fields).json()["choices"][0]
    content = whole["logprobs"]["content"]
    assert bytes(b for one in content[:-1] for b in one["bytes"]).decode() == "aü"
    assert content[-1]["token"] == "<|eos|>"
    for one in content:
        values = [top["logprob"] for top in one["top_logprobs"]]
        assert len(values) == 3
        assert values == sorted(values, reverse=True)
    chunks = stream(http, "/v1/chat/completions", **fields)
    parts = [c["logprobs"]["content"] for c in streamed(chunks, 0) if c["logprobs"]]
    assert [one for part in parts for one in part] == content


def test_a_chat_without_top_logprobs_tells_none(http: httpx.Client) -> None:
    fields = {"messages": chat_messages("say:a"), "logprobs": True}
    choice = http.post("/v1/chat/completions", json=fields).json()["choices"][0]
    assert [one["top_logprobs"] for one in choice["logprobs"]["content"]] == [[], []]


# ── what the engine is told ───────────────────────────────────────────────────────────────────


def test_what_shapes_sampling_reaches_the_engine(start: Callable[..., Server]) -> None:
    server = start()
    fields: dict[str, Any] = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "frequency_penalty": 1,
        "presence_penalty": -1, "repetition_penalty": 1.5, "logit_bias": {"7": -3},
        "min_tokens": 2, "allowed_token_ids": [1, 2], "seed": 9,
    }  # fmt: skip
    others = {"bad_words": ["ab"], "stop_token_ids": [5], "priority": -4, "cache_salt": "salt"}
    completion(server.client, max_tokens=3, logprobs=2, prompt_logprobs=4, **fields, **others)
    (submit,) = [m for m in server.launcher.engine.received if isinstance(m, Submit)]
    assert submit.sampling == SamplingParams(
        **{**fields, "logit_bias": ((7, -3.0),), "allowed_token_ids": (1, 2)},
        bad_words=(tuple(b"ab"), tuple(b" ab")),
        logprobs=2,
        prompt_logprobs=4,
    )
    unsent = {
        field.name
        for field in dataclasses.fields(SamplingParams)
        if getattr(submit.sampling, field.name) == getattr(SamplingParams(), field.name)
    }
    assert not unsent, "send each with a value that is not the default"
    assert submit.stop_token_ids == (5, EOS, IM_END)
    assert (submit.priority, submit.cache_salt, submit.grammar) == (-4, "salt", None)


@pytest.mark.parametrize(
    "fields",
    [
        {"allowed_token_ids": [EOS, IM_END], "min_tokens": 1},
        {"allowed_token_ids": [97, 32], "bad_words": ["a", " "]},
        {"allowed_token_ids": [97, 5], "bad_words": ["a"], "stop_token_ids": [5], "min_tokens": 1},
    ],
)
def test_an_allow_list_of_which_nothing_is_left_is_refused(
    http: httpx.Client, fields: dict[str, Any]
) -> None:
    response = http.post("/v1/completions", json={"prompt": "a", **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "allowed_token_ids"
