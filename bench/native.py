"""A native model of the default checkpoint, and the steps that benchmarks run on it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.formats import WeightFormat
from core.model import ModelConfig, TensorRole
from engine.checkpoint.locate import locate
from engine.packing import PanelPacker
from engine.rotary import inverse_frequencies
from kernels import NativeModel, NativeOptions, PackedMatrix, build_model

BLOCK_SIZE = 16
NUM_BLOCKS = 16 * 80  # sixteen requests of 1,280 tokens
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True, slots=True)
class Bench:
    """One width of one model. `kv_token_bytes` is what a token of context costs a step to read."""

    config: ModelConfig
    model: NativeModel
    now: Callable[[], float]

    @property
    def kv_token_bytes(self) -> int:
        return self.model.kv_bytes // (NUM_BLOCKS * BLOCK_SIZE)


def load(weights: WeightFormat, threads: int, clock: str = "wall", **options: Any) -> Bench:
    """Pack the default model as `weights` says and build it, KV store in fp16."""
    checkpoint = locate("smollm2-135m", 0).open()
    config, packer = checkpoint.config, PanelPacker(weights)
    stored = {spec.name: packer.store(spec, checkpoint).numpy() for spec in config.tensors()}
    storage = packer.storage
    packed = {
        spec.name: stored[spec.name]
        if spec.role is TensorRole.VECTOR
        else PackedMatrix(stored[spec.name], spec.rows, spec.columns, storage.format_of(spec.name))
        for spec in config.tensors()
    }
    frequencies = inverse_frequencies(config.rope, config.head_dim).numpy()
    sizes: dict[str, Any] = {
        "num_blocks": NUM_BLOCKS,
        "block_size": BLOCK_SIZE,
        "max_tokens": 512,
        "max_positions": config.max_position_tokens,
        "threads": threads,
    }
    model = build_model(config, packed, frequencies, NativeOptions(**(sizes | options)))
    return Bench(config, model, CLOCKS[clock])


def batch(vocab_size: int, requests: int, length: int, context: int) -> dict[str, Any]:
    """Describe a step: `length` tokens of each request after `context`, one row of logits each."""
    rng = np.random.default_rng(context + requests)
    width = -(-(context + length) // BLOCK_SIZE)
    tables = rng.permutation(NUM_BLOCKS)[: requests * width].reshape(requests, width)
    positions = np.arange(context, context + length)
    slots = tables[:, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
    ends = np.arange(requests + 1) * length
    arrays = {
        "tokens": rng.integers(0, vocab_size, requests * length),
        "positions": np.tile(positions, requests),
        "slots": slots.reshape(-1),
        "block_tables": tables,
        "query_starts": ends,
        "logit_rows": ends[1:] - 1,
    }
    logits = np.empty((requests, vocab_size), np.float32)
    given = {name: array.astype(np.int32) for name, array in arrays.items()}
    return given | {"logits": logits, "greatest": np.empty(requests, np.int32)}


def step_and_floor_s(
    bench: Bench, requests: int, length: int, context: int, repeats: int
) -> tuple[float, float]:
    """Time a step and a bare read of the bytes it needs, in turns. Returns: both medians."""
    arrays = batch(bench.config.vocab_size, requests, length, context)
    kv_bytes = requests * context * bench.kv_token_bytes
    bench.model.step(**arrays)
    steps, reads = [], []
    for _ in range(repeats):
        steps.append(_timed(bench.now, lambda: bench.model.step(**arrays)))
        reads.append(_timed(bench.now, lambda: _read(bench.model, kv_bytes)))
    return statistics.median(steps), statistics.median(reads)


def _read(model: NativeModel, kv_bytes: int) -> None:
    model.read_weights()
    model.read_kv(kv_bytes)


def _timed(now: Callable[[], float], work: Callable[[], None]) -> float:
    start = now()
    work()
    return now() - start
