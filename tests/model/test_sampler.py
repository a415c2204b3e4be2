"""Sampling: the right distribution, and the same token whatever else is in the step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core.request import SamplingParams
from engine.step.sampler import sample, uniforms
from tests.model.oracle import Oracle
from tests.model.running import GREEDY, generate

DRAWS = 20_000
LOGITS = torch.tensor([2.0, 0.5, 1.0, -1.0, 0.0, 3.0])


def frequencies(params: SamplingParams, logits: torch.Tensor = LOGITS) -> np.ndarray:
    """Draw at many positions of one seed."""
    drawn = sample(logits.repeat(DRAWS, 1), [params] * DRAWS, range(DRAWS), None)
    return np.bincount(drawn, minlength=len(logits)) / DRAWS


def probabilities(temperature: float, keep: set[int]) -> np.ndarray:
    """Give the softmax over the tokens in `keep`, from the definition."""
    weights = np.array([np.exp(v / temperature) for v in LOGITS.tolist()])
    weights[[i for i in range(len(weights)) if i not in keep]] = 0
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("params", "keep"),
    [
        (SamplingParams(temperature=1.0), {0, 1, 2, 3, 4, 5}),
        (SamplingParams(temperature=0.5), {0, 1, 2, 3, 4, 5}),
        (SamplingParams(temperature=2.0), {0, 1, 2, 3, 4, 5}),
        (SamplingParams(top_k=3), {5, 0, 2}),
        (SamplingParams(top_k=99), {0, 1, 2, 3, 4, 5}),
        (SamplingParams(top_p=0.8), {5, 0}),  # .602 + .221 = .823
        (SamplingParams(top_p=0.6), {5}),
        (SamplingParams(top_p=0.83), {5, 0, 2}),
        (SamplingParams(top_p=1e-9), {5}),
        (SamplingParams(min_p=0.13), {5, 0, 2}),  # e^-2 = .135
        (SamplingParams(min_p=0.14), {5, 0}),
        (SamplingParams(min_p=1.0), {5}),
        (SamplingParams(top_k=2, top_p=0.74), {5, 0}),  # of the two, the first has .731
        (SamplingParams(top_k=2, top_p=0.72), {5}),
        (SamplingParams(temperature=2.0, top_k=4, top_p=0.9, min_p=0.3), {5, 0, 2}),
    ],
    ids=str,
)
def test_tokens_come_as_often_as_the_definition_says(
    params: SamplingParams, keep: set[int]
) -> None:
    expected = probabilities(params.temperature, keep)
    found = frequencies(params)
    assert set(np.nonzero(found)[0]) == keep
    spread = np.sqrt(expected * (1 - expected) / DRAWS)  # standard deviation of a frequency
    assert (np.abs(found - expected) <= 4 * spread + 1e-12).all()


@pytest.mark.parametrize(
    ("params", "kept"), [(SamplingParams(top_p=0.5), 1901), (SamplingParams(top_k=3000), 3000)]
)
def test_more_tokens_than_are_presorted_can_stay(params: SamplingParams, kept: int) -> None:
    """1,024 candidates are presorted; here more than that share the nucleus almost evenly.

    Of weights e^(-i/20,000), i < 4,000, the first 1,901 hold half the mass: 1 - e^-.095 is half of
    1 - e^-.2.
    """
    logits = -torch.arange(4000) / 20_000
    tokens = np.array(sample(logits.repeat(1000, 1), [params] * 1000, range(1000), None))
    assert kept * 0.98 < tokens.max() < kept
    assert np.mean(tokens > 1024) == pytest.approx(1 - 1024 / kept, abs=0.06)


def test_greedy_takes_the_first_of_the_greatest() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0], [5.0, 1.0, 1.0, 5.0]])
    assert sample(logits, [GREEDY, GREEDY], [0, 0], None) == [1, 0]


def test_what_the_network_found_greatest_is_not_looked_for_again() -> None:
    params = [GREEDY, SamplingParams(seed=3), GREEDY]
    found = sample(LOGITS.repeat(3, 1), params, [7, 7, 7], [2, 5, -1, 0])
    assert found[:2] == [2, *sample(LOGITS[None], params[1:2], [7], None)]
    assert found[2] < 0


def test_a_hair_above_zero_is_as_good_as_greedy() -> None:
    cold = SamplingParams(temperature=1e-300)
    assert sample(LOGITS[None], [cold], [3], None) == [5]


def test_a_row_is_the_same_alone_and_in_any_batch() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(24, 5000, generator=generator) * 3
    kinds = [
        GREEDY,
        SamplingParams(seed=11),
        SamplingParams(top_p=0.9, seed=12),
        SamplingParams(top_p=0.999, temperature=3.0, seed=13),
        SamplingParams(top_k=50, min_p=0.05, seed=14),
        SamplingParams(top_k=2000, seed=-15),
    ]
    params = [kinds[row % len(kinds)] for row in range(24)]
    positions = list(range(100, 124))
    together = sample(logits, params, positions, None)
    alone = [sample(logits[i : i + 1], [params[i]], [positions[i]], None)[0] for i in range(24)]
    order = torch.randperm(24, generator=generator).tolist()
    shuffled = sample(
        logits[order], [params[i] for i in order], [positions[i] for i in order], None
    )
    assert alone == together
    assert shuffled == [together[i] for i in order]


def test_a_row_with_nan_or_infinity_is_reported_and_harms_no_other() -> None:
    logits = LOGITS.repeat(4, 1)
    logits[1, 2], logits[2, 0] = torch.nan, torch.inf
    for params in (GREEDY, SamplingParams(seed=3), SamplingParams(top_p=0.9, seed=3)):
        drawn = sample(logits, [params] * 4, [7, 7, 7, 7], None)
        (clean,) = sample(LOGITS[None], [params], [7], None)
        assert [token >= 0 for token in drawn] == [True, False, False, True]
        assert (drawn[0], drawn[3]) == (clean, clean)


def test_random_numbers_are_even_and_differ_by_seed_and_position() -> None:
    numbers = uniforms([seed for seed in range(200) for _ in range(200)], [*range(200)] * 200)
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert len(set(numbers.tolist())) == len(numbers)
    counts = np.histogram(numbers, bins=50, range=(0, 1))[0]
    chi_squared = ((counts - 800) ** 2 / 800).sum()
    assert chi_squared < 94  # 49 degrees of freedom: exceeded once in 10,000
    by_seed = numbers.reshape(200, 200)
    assert abs(np.corrcoef(by_seed[:-1].ravel(), by_seed[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(by_seed[:, :-1].ravel(), by_seed[:, 1:].ravel())[0, 1]) < 0.02


def test_negative_and_huge_seeds_are_seeds_like_any_other() -> None:
    seeds = [-(2**63), -1, 0, 2**63 - 1]
    assert len(set(uniforms(seeds, [5] * 4).tolist())) == 4


def test_a_seeded_request_gives_the_same_tokens_alone_batched_and_preempted(
    tinygpt: Oracle,
) -> None:
    def seeded(index: int) -> SamplingParams:
        return SamplingParams(temperature=0.9, top_p=0.95, seed=1000 + index)

    prompts = tinygpt.prompts
    batched = generate(tinygpt.ours, prompts, 32, sampling=seeded)
    squeezed = generate(tinygpt.ours, prompts, 32, num_blocks=17, budget=64, sampling=seeded)
    alone = [
        generate(tinygpt.ours, [prompt], 32, sampling=lambda _, i=i: seeded(i)).outputs[0]
        for i, prompt in enumerate(prompts)
    ]
    assert batched.outputs == alone
    assert squeezed.outputs == alone
    assert squeezed.preemptions > 0
    assert len({tuple(tokens) for tokens in alone}) == len(prompts)
