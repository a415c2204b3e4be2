"""A native model, of the default checkpoint or another, and the steps that benchmarks run on it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from core.errors import SettingsError
from core.formats import KVFormat, WeightFormat
from core.model import ModelConfig, TensorRole
from costmodel.sums import ModelSums
from engine.checkpoint.locate import locate
from engine.checkpoint.source import Checkpoint
from engine.forward.rotary import inverse_frequencies
from engine.load.resolve import resolve_threads
from engine.machine.compiled import NATIVE_COMPILED
from engine.prepare.checkpoint_bytes import checkpoint_bytes

if TYPE_CHECKING:
    from kernels import NativeModel

BLOCK_SIZE = 16
NUM_BLOCKS = 16 * 80  # sixteen requests of 1,280 tokens
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True, slots=True)
class Bench:
    """One width of one model. `kv_token_bytes` is what a token of context costs a step to read.

    `step_bytes` is what a step needs of the weights, `checkpoint_bytes` the same in the bytes of
    the checkpoint.
    """

    config: ModelConfig
    model: NativeModel
    step_bytes: int
    checkpoint_bytes: int
    now: Callable[[], float]

    @property
    def kv_token_bytes(self) -> int:
        return self.model.kv_bytes // (NUM_BLOCKS * BLOCK_SIZE)


def load(
    weights: WeightFormat,
    threads: int,
    clock: str = "wall",
    checkpoint: Checkpoint | None = None,
    **options: Any,
) -> Bench:
    """Pack a checkpoint (the default model's) as `weights` says and build it, KV store in fp16.

    Raises:
        ModelError, SettingsError: no model, no kernels, or no such number of threads.
    """
    if not NATIVE_COMPILED:
        raise SettingsError("the native kernels are not compiled here")
    threads = resolve_threads(threads)
    from engine.prepare.packing import PanelPacker
    from kernels import NativeOptions, PackedMatrix, build_model

    checkpoint = checkpoint or locate("smollm2-135m", 0).open()
    config, packer = checkpoint.config, PanelPacker(weights)
    storage = packer.storage_of(checkpoint)
    packed: dict[str, Any] = {}
    for spec in config.tensors():
        if spec.role is TensorRole.VECTOR:
            packed[spec.name] = checkpoint.checked(spec).float().numpy()
            continue
        kind = storage.format_of(spec.name)
        data = np.concatenate(list(packer.runs(spec, checkpoint, kind)))
        packed[spec.name] = PackedMatrix(data, spec.rows, spec.columns, kind)
    frequencies = inverse_frequencies(config.rope, config.head_dim).numpy()
    sizes: dict[str, Any] = {
        "num_blocks": NUM_BLOCKS,
        "block_size": BLOCK_SIZE,
        "max_tokens": 512,
        "max_positions": config.max_position_tokens,
        "threads": threads,
    }
    model = build_model(config, packed, frequencies, NativeOptions(**(sizes | options)))
    needed = checkpoint_bytes(checkpoint, storage).step_bytes
    served = ModelSums.of(config, storage, KVFormat.FP16).step_weight_bytes
    return Bench(config, model, served, needed, CLOCKS[clock])


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


@dataclass(frozen=True, slots=True)
class StepTimes:
    """A step beside its floor and beside a read of the same bytes.

    The floor is the step's bytes over what memory delivered in the same turns, read from the whole
    KV store, which no cache holds. The bare read may beat it: a cache holds some of a small model.

    Units: seconds, medians of the turns.
    """

    step_s: float
    floor_s: float
    read_s: float


def time_step(bench: Bench, requests: int, length: int, context: int, repeats: int) -> StepTimes:
    """Time a step, a read of the bytes it needs, and a read of the whole KV store, in turns.

    Before each timed step runs another one, for a server's caches hold what the last step left.
    """
    arrays = batch(bench.config.vocab_size, requests, length, context)
    model, kv_bytes = bench.model, requests * context * bench.kv_token_bytes
    steps, reads, whole_reads = [], [], []
    for _ in range(repeats):
        model.step(**arrays)
        steps.append(_timed(bench.now, lambda: model.step(**arrays)))
        reads.append(_timed(bench.now, lambda: (model.read_weights(), model.read_kv(kv_bytes))))
        whole_reads.append(_timed(bench.now, lambda: model.read_kv(model.kv_bytes)))
    step_s, read_s, whole_s = map(statistics.median, (steps, reads, whole_reads))
    floor_s = (bench.step_bytes + kv_bytes) / model.kv_bytes * whole_s
    return StepTimes(step_s, floor_s, read_s)


def _timed(now: Callable[[], float], work: Callable[[], object]) -> float:
    start = now()
    work()
    return now() - start
