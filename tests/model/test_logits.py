"""What requests ask of their logits, against a twin that goes token by token in numpy."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
import torch

from core.request import Request, RequestId, SamplingParams
from engine.step.logits import adjust

VOCAB = 40


def request(
    params: SamplingParams,
    prompt: tuple[int, ...] = (1, 2, 3),
    output: tuple[int, ...] = (),
    stop: tuple[int, ...] = (),
) -> Request:
    return Request(
        id=RequestId("r"),
        prompt_ids=prompt,
        max_tokens=100,
        sampling=params,
        stop_token_ids=frozenset(stop),
        output_ids=list(output),
    )


def twin(logits: np.ndarray, request: Request) -> np.ndarray:
    """Apply the rules to one row, a token at a time, in the order that they are documented."""
    p, row = request.sampling, logits.astype(np.float32).copy()
    generated = Counter(request.output_ids)
    for token in range(len(row)):
        if token in generated or token in request.prompt_ids:
            positive = row[token] > 0
            factor = 1 / p.repetition_penalty if positive else p.repetition_penalty
            row[token] *= np.float32(factor)
        if token in generated:
            row[token] -= p.presence_penalty + p.frequency_penalty * generated[token]
    for token, bias in p.logit_bias:
        row[token] += bias
    known = [*request.prompt_ids, *request.output_ids]
    for token in range(len(row)):
        early = token in request.stop_token_ids and len(request.output_ids) < p.min_tokens
        alien = bool(p.allowed_token_ids) and token not in p.allowed_token_ids
        bad = any(
            [*known, token][-len(word) :] == list(word)
            for word in p.bad_words
            if len(word) <= len(known) + 1
        )
        if early or alien or bad:
            row[token] = -np.inf
    return row


def random_request(rng: random.Random) -> Request:
    def tokens(most: int) -> tuple[int, ...]:
        return tuple(rng.randrange(VOCAB) for _ in range(rng.randint(0, most)))

    def some(value: object, neutral: object) -> object:
        return value if rng.random() < 0.4 else neutral

    prompt, output = (0, *tokens(20)), tokens(20)
    tail = [*prompt, *output][-2:]
    bias = tuple((token, rng.uniform(-100, 100)) for token in set(tokens(5)))
    bad = ((rng.randrange(VOCAB),), (*tail, 5), (*tail[1:], 6), (7, 8), (*prompt, *output, 9))
    params = SamplingParams(
        frequency_penalty=some(rng.uniform(-2, 2), 0.0),
        presence_penalty=some(rng.uniform(-2, 2), 0.0),
        repetition_penalty=some(rng.uniform(0.2, 3), 1.0),
        logit_bias=some(bias, ()),
        min_tokens=some(rng.randint(0, 25), 0),
        allowed_token_ids=some((0, *tokens(30)), ()),
        bad_words=some(bad, ()),
    )
    return request(params, prompt, output, stop=tokens(3))


def test_every_rule_alone_and_together_gives_what_the_twin_gives() -> None:
    rng = random.Random(5)
    requests = [random_request(rng) for _ in range(400)]
    logits = torch.randn(400, VOCAB, generator=torch.Generator().manual_seed(5)) * 4
    kept = logits.clone()
    found = adjust(logits, requests).numpy()
    assert torch.equal(logits, kept), "the raw logits changed"
    for row, each in enumerate(requests):
        np.testing.assert_allclose(found[row], twin(kept[row].numpy(), each), rtol=1e-5, atol=1e-5)


def test_a_row_is_the_same_alone_and_in_any_order() -> None:
    rng = random.Random(6)
    requests = [random_request(rng) for _ in range(50)]
    logits = torch.randn(50, VOCAB, generator=torch.Generator().manual_seed(6)) * 4
    together = adjust(logits, requests)
    order = rng.sample(range(50), 50)
    assert torch.equal(adjust(logits[order], [requests[i] for i in order]), together[order])
    for row, each in enumerate(requests):
        assert torch.equal(adjust(logits[row : row + 1], [each]), together[row : row + 1])


def test_rows_that_ask_for_nothing_are_handed_back_untouched() -> None:
    logits = torch.randn(2, VOCAB)
    plain = request(SamplingParams(), output=(1, 1), stop=(3,))
    assert adjust(logits, [plain, plain]) is logits
    asking = request(SamplingParams(logit_bias=((4, 1.0),)))
    mixed = adjust(logits, [plain, asking])
    assert torch.equal(mixed[0], logits[0])
    assert mixed[1, 4] == logits[1, 4] + 1


@pytest.mark.parametrize("output", [(), (9,), (9, 9), (9, 9, 9)])
def test_stop_tokens_are_masked_until_enough_were_sampled(output: tuple[int, ...]) -> None:
    early = request(SamplingParams(min_tokens=2), output=output, stop=(3, 4))
    masked = torch.isneginf(adjust(torch.zeros(1, VOCAB), [early]))[0].nonzero().flatten().tolist()
    assert masked == ([3, 4] if len(output) < 2 else [])


def test_a_bad_word_may_begin_in_the_prompt_and_only_its_last_token_is_masked() -> None:
    word = SamplingParams(bad_words=((2, 3, 7), (11,)))
    masked = torch.isneginf(adjust(torch.zeros(1, VOCAB), [request(word, prompt=(1, 2, 3))]))
    assert masked[0].nonzero().flatten().tolist() == [7, 11]


def test_a_bias_on_a_token_given_twice_is_added_twice() -> None:
    twice = request(SamplingParams(logit_bias=((4, 1.0), (4, 2.0))))
    assert adjust(torch.zeros(1, VOCAB), [twice])[0, 4] == 3


def test_a_mask_hides_no_fault_of_the_model() -> None:
    logits = torch.zeros(3, VOCAB)
    logits[0, 5], logits[1, 5] = torch.nan, torch.inf
    only = request(SamplingParams(allowed_token_ids=(6,)))
    finite = torch.isfinite(adjust(logits, [only] * 3).amax(dim=-1))
    assert finite.tolist() == [False, False, True]
