"""What the model cannot run ends the request that asks for it, and nobody else's."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from core.request import FinishReason, SamplingParams
from core.wire import Fault, Submit
from engine.submits import fault_in
from tests.unit.engine.test_loop import Harness, submit

VOCAB_SIZE, MAX_MODEL_LEN = 50, 16
CHECK = partial(fault_in, vocab_size=VOCAB_SIZE, max_model_len=MAX_MODEL_LEN)

WRONG_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"prompt_ids": (1, 50)}, "the prompt holds token id 50; the vocabulary has 50 ids"),
    ({"prompt_ids": (1, -1, 2)}, "the prompt holds token id -1"),
    ({"prompt_ids": ()}, "the prompt has no tokens"),
    ({"prompt_ids": (1,) * 15}, "prompt and output have 17 tokens; the limit is 16"),
    ({"max_tokens": -1}, "max_tokens is -1"),
    ({"stop_token_ids": (3, 2**63)}, f"stop_token_ids holds token id {2**63}"),
    ({"stop_token_ids": (-2,)}, "stop_token_ids holds token id -2"),
]
WRONG_SAMPLING: list[tuple[dict[str, Any], str]] = [
    ({"allowed_token_ids": (50,)}, "allowed_token_ids holds token id 50"),
    ({"allowed_token_ids": (-1,)}, "allowed_token_ids holds token id -1"),
    ({"logit_bias": ((50, 1.0),)}, "logit_bias holds token id 50"),
    ({"logit_bias": ((-1, 1.0),)}, "logit_bias holds token id -1"),
    ({"logit_bias": ((1, math.nan),)}, "logit_bias is out of range"),
    ({"bad_words": ((1, 2), (50,))}, "bad_words holds token id 50"),
    ({"bad_words": ((1,), ())}, "bad_words holds a word of no tokens"),
    ({"temperature": math.inf}, "temperature is out of range"),
    ({"temperature": -1.0}, "temperature is out of range"),
    ({"top_p": math.nan}, "top_p is out of range"),
    ({"top_k": -1}, "top_k is out of range"),
    ({"min_p": 1.5}, "min_p is out of range"),
    ({"repetition_penalty": math.nan}, "repetition_penalty is out of range"),
    ({"presence_penalty": math.inf}, "presence_penalty is out of range"),
    ({"logprobs": -1}, "logprobs is out of range"),
    ({"prompt_logprobs": -1}, "prompt_logprobs is out of range"),
]
WRONG = [
    *WRONG_FIELDS,
    *(
        ({"sampling": replace(SamplingParams(), **fields)}, words)
        for fields, words in WRONG_SAMPLING
    ),
]


@pytest.mark.parametrize(("fields", "words"), WRONG, ids=lambda value: str(value)[:60])
def test_a_request_that_the_model_cannot_run_fails_alone(
    fields: dict[str, Any], words: str
) -> None:
    harness = Harness(fault_in=CHECK)
    bad: Submit = msgspec.structs.replace(submit("bad"), **fields)
    sent = harness.run(submit("before"), bad, submit("after"))
    assert harness.ended() == {
        "before": FinishReason.LENGTH,
        "bad": FinishReason.FAILED,
        "after": FinishReason.LENGTH,
    }
    assert not [message for message in sent if isinstance(message, Fault)]
    (message,) = [
        event.message
        for message in sent
        for event in message.ended  # type: ignore[union-attr]
        if event.id == "bad"
    ]
    assert words in message


def test_what_is_at_the_edge_is_run() -> None:
    sampling = SamplingParams(
        allowed_token_ids=(0, 49), logit_bias=((49, -100.0),), bad_words=((49,),), min_p=1.0
    )
    edge = msgspec.structs.replace(
        submit("edge"), prompt_ids=(0, 49) * 7, stop_token_ids=(49,), sampling=sampling
    )
    assert CHECK(edge) == ""
