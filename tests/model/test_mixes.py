"""Random mixes on a real model: what is kept, found, lost or put off changes no token."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from core.request import Request, RequestId, SamplingParams
from core.settings import Batching, SchedulerSettings, Switch
from core.wire import TokenLogprobs
from kvcache.pool import BlockPool
from scheduler.scheduler import Scheduler
from tests.model.oracle import Oracle
from tests.model.running import BLOCK_SIZE, NativeModelUnderTest, Runs

ROOMY, TIGHT = 256, 8  # blocks
NEAR_TIE = 1e-3
CONTINUOUS = SchedulerSettings(max_num_batched_tokens=64)


def mix(seed: int, vocab_size: int) -> list[Request]:
    """A few requests: most begin with one of two beginnings, some are twins."""
    draw = random.Random(seed)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(vocab_size) for _ in range(count))

    beginnings = [tokens(2 * BLOCK_SIZE), tokens(BLOCK_SIZE + 3), ()]
    prompts = [draw.choice(beginnings) + tokens(draw.randint(1, 20)) for _ in range(4)]
    return [
        Request(
            id=RequestId(f"{seed}-{number}"),
            prompt_ids=prompt,
            max_tokens=draw.randint(1, 12),
            sampling=SamplingParams(temperature=0.0, logprobs=2),
            priority=draw.randint(0, 1),
        )
        for number, prompt in enumerate([*prompts, *draw.choices(prompts, k=2)])
    ]


class Mixes:
    """Runs mixes in turn on one pool, so that each may find what the ones before left."""

    def __init__(
        self,
        model: Runs,
        num_blocks: int = ROOMY,
        limits: SchedulerSettings = CONTINUOUS,
        prefix_caching: bool = False,
    ) -> None:
        self._scheduler = Scheduler(BlockPool(num_blocks, BLOCK_SIZE, prefix_caching), limits)
        self._runner = model.fresh_runner(num_blocks)
        self.cached_tokens = self.preemptions = self.recomputed_tokens = 0

    def outputs(self, requests: list[Request]) -> Iterator[list[TokenLogprobs]]:
        told: dict[RequestId, list[TokenLogprobs]] = {request.id: [] for request in requests}
        for request in requests:
            self._scheduler.add(request)
        while self._scheduler.has_work:
            plan = self._scheduler.plan()
            self.preemptions += len(plan.preempted)
            self.recomputed_tokens += sum(
                piece.recomputed for piece in self._scheduler.record(plan).slices
            )
            result = self._runner.execute(plan)
            for each in result.logprobs:
                told[each.id].append(each)
            self._scheduler.commit(plan, result)
        self.cached_tokens += sum(request.cached_tokens for request in requests)
        yield from told.values()


def assert_same(ours: list[TokenLogprobs], plain: list[TokenLogprobs]) -> None:
    """Equal to the end, or to a near-tie, after which nothing can be said."""
    for one, other in zip(ours, plain, strict=True):
        if one.token != other.token:
            (_, best), (_, second) = other.top[:2]
            assert best - second < NEAR_TIE, f"{one.id} at {one.position}"
            return


def assert_no_token_changes(model: Runs, vocab_size: int, mixes: int) -> None:
    static = SchedulerSettings(max_num_batched_tokens=64, batching=Batching.STATIC)
    without_kv = SchedulerSettings(max_num_batched_tokens=64, kv_cache=Switch.OFF)
    plain = Mixes(model)
    found, lost = Mixes(model, prefix_caching=True), Mixes(model, TIGHT)
    both, batches = Mixes(model, TIGHT, prefix_caching=True), Mixes(model, limits=static)
    recomputes = Mixes(model, limits=without_kv)
    for seed in range(mixes):
        expected = list(plain.outputs(mix(seed, vocab_size)))
        for variant in (found, lost, both, batches, recomputes):
            ours = variant.outputs(mix(seed, vocab_size))
            for one, other in zip(ours, expected, strict=True):
                assert_same(one, other)
    assert (plain.cached_tokens, plain.preemptions) == (0, 0)
    assert found.cached_tokens > 0
    assert lost.preemptions > 0
    assert both.cached_tokens > 0
    assert both.preemptions > 0
    assert recomputes.recomputed_tokens > 0


def test_no_token_changes_in_a_few_mixes(tinygpt: Oracle) -> None:
    assert_no_token_changes(tinygpt.ours, 256, mixes=8)


@pytest.mark.slow
def test_no_token_changes_in_two_hundred_mixes_on_the_kernels() -> None:
    assert_no_token_changes(NativeModelUnderTest.of("tinygpt"), 256, mixes=200)


@pytest.mark.slow
def test_no_token_changes_on_the_real_model(smollm2: Oracle) -> None:
    assert_no_token_changes(smollm2.ours, 40_000, mixes=4)
