"""Greedy tokens equal `transformers`' own, however requests are batched, chunked or preempted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import Tokenizer

from tests.model.oracle import Oracle, explain
from tests.model.running import NativeModelUnderTest, Outcome, Runs, generate

Record = Callable[[str, object], None]


STEPS = 64
FEW_STEPS = 16


@pytest.fixture(scope="module", params=["tinygpt", pytest.param("smollm2", marks=pytest.mark.slow)])
def oracle(request: pytest.FixtureRequest) -> Oracle:
    found: Oracle = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module", params=["torch", "native"])
def ours(request: pytest.FixtureRequest, oracle: Oracle) -> Runs:
    """Our model, computed by torch or by the native kernels, over the same weights in fp32."""
    if request.param == "torch":
        return oracle.ours
    return NativeModelUnderTest.of(oracle.prepared.config.name, threads=2)


def assert_greedy(
    oracle: Oracle,
    prompts: list[tuple[int, ...]],
    outcome: Outcome,
    steps: int,
    record: Record,
) -> None:
    for prompt, tokens in zip(prompts, outcome.outputs, strict=True):
        excuse = explain(tokens, oracle.greedy(prompt, steps))
        if excuse is not None:
            print(f"prompt of {len(prompt)} tokens: {excuse}")
            record("near_tie", f"{len(prompt)} tokens: {excuse}")


def test_each_prompt_alone(oracle: Oracle, ours: Runs, record_property: Record) -> None:
    runs = [generate(ours, [prompt], STEPS) for prompt in oracle.prompts]
    together = Outcome([tokens for run in runs for tokens in run.outputs])
    assert_greedy(oracle, oracle.prompts, together, STEPS, record_property)


def test_all_prompts_in_one_batch(oracle: Oracle, ours: Runs, record_property: Record) -> None:
    outcome = generate(ours, oracle.prompts, STEPS, budget=512)
    assert outcome.largest_batch == len(oracle.prompts)
    assert_greedy(oracle, oracle.prompts, outcome, STEPS, record_property)


def test_prefill_in_chunks_of_16(oracle: Oracle, ours: Runs, record_property: Record) -> None:
    outcome = generate(ours, oracle.prompts, STEPS, budget=16)
    assert_greedy(oracle, oracle.prompts, outcome, STEPS, record_property)


def test_a_pool_so_small_that_requests_are_preempted(
    oracle: Oracle, ours: Runs, record_property: Record
) -> None:
    outcome = generate(ours, oracle.prompts, STEPS, num_blocks=24)
    assert outcome.preemptions > 0
    assert_greedy(oracle, oracle.prompts, outcome, STEPS, record_property)


def test_the_real_model_on_three_prompts(smollm2: Oracle, record_property: Record) -> None:
    """The quick form of the above: in one batch, in chunks."""
    prompts = smollm2.prompts[2:5]
    outcome = generate(smollm2.ours, prompts, FEW_STEPS, budget=16)
    assert_greedy(smollm2, prompts, outcome, FEW_STEPS, record_property)


def test_the_real_model_knows_the_capital_of_france(smollm2: Oracle) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2.prepared.dir / "tokenizer.json"))
    prompt = tuple(tokenizer.encode("The capital of France is").ids)
    (tokens,) = generate(smollm2.ours, [prompt], 2).outputs
    assert "Paris" in tokenizer.decode(tokens)
