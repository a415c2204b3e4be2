"""Logprobs against Hugging Face's log-softmax, for sampled tokens and for prompts in chunks."""

from __future__ import annotations

import math

import pytest
import torch

from core.request import Request, RequestId, SamplingParams
from core.step import Slice, StepPlan
from core.wire import TokenLogprobs
from engine.forward.network import Forward
from engine.step.logprobs import LEAST, Ask, logprobs
from engine.step.runner import NOT_FINITE, NOTHING_ALLOWED, outcome_of
from tests.model.oracle import Oracle
from tests.model.running import generate, run

TOLERANCE = 2e-3


@torch.inference_mode()
def reference(oracle: Oracle, tokens: tuple[int, ...]) -> torch.Tensor:
    """Give the oracle's log-softmax [T, V] over a whole text; row i is about token i + 1."""
    return oracle.theirs(torch.tensor([tokens])).logits[0].log_softmax(dim=-1)


def check(found: TokenLogprobs, expected: torch.Tensor, top: int) -> None:
    assert found.logprob == pytest.approx(expected[found.token].item(), abs=TOLERANCE)
    values = [value for _, value in found.top]
    assert values == sorted(values, reverse=True)
    assert values == pytest.approx(expected.topk(top).values.tolist(), abs=TOLERANCE)
    for token, value in found.top:
        assert value == pytest.approx(expected[token].item(), abs=TOLERANCE)


@pytest.mark.parametrize("preset", ["tinygpt", pytest.param("smollm2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("top", [0, 5])
def test_sampled_tokens_tell_what_the_oracle_tells_of_them(
    preset: str, top: int, request: pytest.FixtureRequest
) -> None:
    """Penalties and temperature change the draw, never what is told."""
    oracle: Oracle = request.getfixturevalue(preset)
    params = SamplingParams(
        temperature=1.3, top_k=40, frequency_penalty=0.5, logit_bias=((11, 3.0),), logprobs=top
    )
    prompts = oracle.prompts[:5]
    outcome = generate(oracle.ours, prompts, 8, sampling=lambda _: params)
    assert len(outcome.logprobs) == 5 * 8
    for index, prompt in enumerate(prompts):
        text = (*prompt, *outcome.outputs[index])
        expected = reference(oracle, text)
        own = [each for each in outcome.logprobs if each.id == f"r{index}"]
        assert [each.position for each in own] == list(range(len(prompt), len(text)))
        assert [each.token for each in own] == outcome.outputs[index]
        for each in own:
            check(each, expected[each.position - 1], top)


@pytest.mark.parametrize("preset", ["tinygpt", pytest.param("smollm2", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("budget", "num_blocks"), [(128, 256), (16, 256), (16, 17)])
def test_prompts_are_scored_whole_in_chunks_and_once_under_preemption(
    preset: str, budget: int, num_blocks: int, request: pytest.FixtureRequest
) -> None:
    oracle: Oracle = request.getfixturevalue(preset)
    params = SamplingParams(temperature=0, prompt_logprobs=2)
    outcome = generate(
        oracle.ours, oracle.prompts, 24, num_blocks, budget, sampling=lambda _: params
    )
    assert (outcome.preemptions > 0) == (num_blocks == 17)
    assert not outcome.logprobs
    for index, prompt in enumerate(oracle.prompts):
        expected = reference(oracle, prompt)
        own = [each for each in outcome.prompt_logprobs if each.id == f"r{index}"]
        assert [each.position for each in own] == list(range(1, len(prompt)))
        assert [each.token for each in own] == list(prompt[1:])
        for each in own:
            check(each, expected[each.position - 1], 2)


def test_a_prompt_is_scored_where_no_token_is_wanted(tinygpt: Oracle) -> None:
    prompt = tinygpt.prompts[4]
    only = Request(
        id=RequestId("r0"),
        prompt_ids=prompt,
        max_tokens=0,
        sampling=SamplingParams(prompt_logprobs=0),
    )
    outcome = run(tinygpt.ours, [only], budget=16)
    assert outcome.outputs == [[]]
    assert len(outcome.prompt_logprobs) == len(prompt) - 1


def test_no_value_is_infinite_or_below_the_least() -> None:
    logits = torch.tensor([[0.0, -1e30, -torch.inf]])
    (told,) = logprobs(logits, [Ask(0, RequestId("r"), 1, 2, 3)])
    assert told == TokenLogprobs("r", 1, 2, LEAST, ((0, 0.0), *told.top[1:]))
    assert {value for _, value in told.top[1:]} == {LEAST}


def test_rows_are_told_the_same_in_any_order() -> None:
    logits = torch.randn(30, 501, generator=torch.Generator().manual_seed(2)) * 5
    asks = [Ask(row, RequestId(f"r{row}"), row, row, row % 4) for row in range(30)]
    together = logprobs(logits, asks)
    assert logprobs(logits, asks[::-1]) == together[::-1]
    assert [logprobs(logits, [ask])[0] for ask in asks] == list(together)
    assert all(math.isfinite(each.logprob) for each in together)


def scored(name: str, params: SamplingParams) -> Slice:
    """A whole prompt of three tokens, all of it scored."""
    request = Request(id=RequestId(name), prompt_ids=(1, 2, 3), max_tokens=4, sampling=params)
    return Slice(request, 0, 3, samples=True, scored=range(2))


def test_a_prompt_row_that_is_not_finite_fails_its_request_alone() -> None:
    params = SamplingParams(temperature=0, logprobs=1, prompt_logprobs=1)
    plan = StepPlan((scored("sick", params), scored("well", params)))
    logits = torch.zeros(6, 10)  # two that sample, then two scored of each
    logits[3, 4] = torch.nan
    result = outcome_of(plan, Forward(logits), 0)
    assert result.failed == {"sick": NOT_FINITE}
    assert result.tokens == {"well": 0}
    assert {each.id for each in (*result.logprobs, *result.prompt_logprobs)} == {"well"}


def test_a_request_that_masks_every_token_fails_alone_and_is_told_so() -> None:
    none = SamplingParams(allowed_token_ids=(1,), bad_words=((1,),), prompt_logprobs=0)
    plan = StepPlan((scored("none", none), scored("well", SamplingParams(prompt_logprobs=0))))
    result = outcome_of(plan, Forward(torch.zeros(6, 10)), 0)
    assert result.failed == {"none": NOTHING_ALLOWED}
    assert list(result.tokens) == ["well"]
