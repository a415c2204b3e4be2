"""Drives the real scheduler, pool and runner, as the engine loop does, without a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import torch

from core.formats import KVFormat, WeightFormat
from core.model import ModelConfig
from core.request import BlockId, FinishReason, Request, RequestId, SamplingParams
from core.settings import ModelSettings, SchedulerSettings
from core.step import Slice, StepPlan
from core.wire import TokenLogprobs
from engine.forward.attention import KVStore, allocate_kv
from engine.forward.batch import build_batch
from engine.forward.decoder import Decoder
from engine.forward.native_network import NativeNetwork
from engine.forward.torch_network import TorchNetwork
from engine.forward.weights import Weights, load_weights
from engine.prepare.packing import PanelPacker
from engine.prepare.prepare import PreparedModel, prepare
from engine.step.runner import ModelRunner
from kernels import NativeOptions
from kvcache.pool import BlockPool
from scheduler.scheduler import Scheduler

GREEDY = SamplingParams(temperature=0)
BLOCK_SIZE = 16


@dataclass
class Model:
    """A decoder; KV stores are made as they are needed."""

    config: ModelConfig
    decoder: Decoder

    @classmethod
    def of(cls, config: ModelConfig, weights: Weights) -> Model:
        return cls(config, Decoder(config, weights))

    def kv(self, num_blocks: int, kv: KVFormat = KVFormat.FP32) -> KVStore:
        return allocate_kv(self.config, kv, num_blocks, BLOCK_SIZE)

    def runner(self, kv: KVStore) -> ModelRunner:
        return ModelRunner(TorchNetwork(self.decoder, kv, {}))

    def fresh_runner(self, num_blocks: int) -> ModelRunner:
        return self.runner(self.kv(num_blocks))

    @torch.inference_mode()
    def logits(self, plan: StepPlan, kv: KVStore) -> torch.Tensor:
        network = TorchNetwork(self.decoder, kv, {})
        return network.forward(network.prepare(build_batch(plan, kv.block_size))).logits


@dataclass
class NativeModelUnderTest:
    """The same model in the native kernels, in fp32, so that only the order of sums differs."""

    prepared: PreparedModel
    weights: Weights
    threads: int = 1
    activations: str = "int8"  # of integer weights

    @classmethod
    def of(
        cls,
        name: str,
        threads: int = 1,
        weights: WeightFormat = WeightFormat.FP32,
        activations: str = "int8",
    ) -> NativeModelUnderTest:
        packer = PanelPacker(weights)
        prepared = prepare(ModelSettings(model=name), packer, progress=lambda _: None)
        loaded = load_weights(prepared.dir, prepared.config)
        return cls(prepared, loaded, threads, activations)

    def network(self, num_blocks: int) -> NativeNetwork:
        options = NativeOptions(
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            max_tokens=512,
            max_positions=min(num_blocks * BLOCK_SIZE, self.prepared.config.max_position_tokens),
            threads=self.threads,
            kv_format=KVFormat.FP32,
            activations=self.activations,
        )
        config, storage = self.prepared.config, self.prepared.storage
        return NativeNetwork(config, self.weights, storage, options)

    def fresh_runner(self, num_blocks: int) -> ModelRunner:
        return ModelRunner(self.network(num_blocks))


class Runs(Protocol):
    def fresh_runner(self, num_blocks: int) -> ModelRunner: ...


@dataclass
class Outcome:
    """What a run gave: output tokens by request, and how it went."""

    outputs: list[list[int]] = field(default_factory=list)
    ends: dict[RequestId, FinishReason] = field(default_factory=dict)
    preemptions: int = 0
    largest_batch: int = 0
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)


def generate(
    model: Runs,
    prompts: Iterable[tuple[int, ...]],
    max_tokens: int,
    num_blocks: int = 256,
    budget: int = 128,
    sampling: Callable[[int], SamplingParams] = lambda index: GREEDY,
) -> Outcome:
    """Run all prompts together to `max_tokens` each."""
    requests = [
        Request(
            id=RequestId(f"r{index}"),
            prompt_ids=prompt,
            max_tokens=max_tokens,
            sampling=sampling(index),
        )
        for index, prompt in enumerate(prompts)
    ]
    return run(model, requests, num_blocks, budget)


def run(model: Runs, requests: list[Request], num_blocks: int = 256, budget: int = 128) -> Outcome:
    """Run all requests together to their ends."""
    runner = model.fresh_runner(num_blocks)
    pool = BlockPool(num_blocks, BLOCK_SIZE)
    scheduler = Scheduler(pool, SchedulerSettings(max_num_batched_tokens=budget))
    for request in requests:
        scheduler.add(request)
    outcome = Outcome()
    while scheduler.has_work:
        plan = scheduler.plan()
        result = runner.execute(plan)
        ends = scheduler.commit(plan, result)
        outcome.ends |= {end.id: end.reason for end in ends}
        outcome.preemptions += len(plan.preempted)
        outcome.largest_batch = max(outcome.largest_batch, len(plan.slices))
        outcome.logprobs += result.logprobs
        outcome.prompt_logprobs += result.prompt_logprobs
    outcome.outputs = [request.output_ids for request in requests]
    return outcome


def sliced(
    tokens: tuple[int, ...], first_block: int, start: int, length: int, samples: bool = True
) -> Slice:
    """One slice of a request whose blocks follow each other from `first_block` on."""
    blocks = -(-len(tokens) // BLOCK_SIZE)
    request = Request(
        id=RequestId(f"at {first_block}"),
        prompt_ids=tokens,
        max_tokens=1,
        block_table=[BlockId(first_block + index) for index in range(blocks)],
    )
    return Slice(request, start, length, samples)
