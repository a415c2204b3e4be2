"""Builds an engine from its settings: the model prepared, weights mapped, the KV store allocated.

What is resolved here ("auto" and None end here) is what the loop and the server are told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from core.errors import SettingsError
from core.formats import Backend, CheckpointBytes, KVFormat, Storage, WeightFormat
from core.machine import Peaks
from core.model import ModelConfig, TensorRole
from core.request import BlockId, Request, RequestId
from core.settings import EngineSettings
from core.step import Slice, StepPlan
from engine.load.backend import Loaded, load_network
from engine.load.limits import cut_to_store, resolve_step_tokens
from engine.machine.calibrate import resolve_peaks, resolving
from engine.machine.idle_measurement import MeasurePeaks
from engine.prepare.prepare import say
from engine.step.grammar_queue import Compile, grammars_for
from engine.step.runner import ModelRunner

MAX_THREADS: Final = 256  # as many as the native kernels start


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A loaded model, ready to run steps, and all that others are told about it."""

    runner: ModelRunner
    config: ModelConfig
    model_dir: Path
    weights: WeightFormat  # as asked for
    storage: Storage  # as they are
    kv_dtype: KVFormat
    weight_bytes: dict[TensorRole, int]  # allocated
    kv_bytes: int  # allocated
    block_size: int
    num_blocks: int
    max_model_len: int
    max_step_tokens: int
    threads: int
    peaks: Peaks
    backend: str
    isa: str
    checkpoint: CheckpointBytes
    compile_grammar: Compile
    measure_peaks: MeasurePeaks

    def warm_up(self) -> None:
        """Run a block of prompt, or a step's worth, so that the first request finds warm pages.

        Mutates: the slots of block 0, which nobody owns yet.
        """
        length = min(self.block_size, self.max_model_len, self.max_step_tokens)
        request = Request(
            id=RequestId("warm-up"),
            prompt_ids=(0,) * length,
            max_tokens=1,
            block_table=[BlockId(0)],
        )
        self.runner.execute(StepPlan((Slice(request, 0, length, samples=True),)))


def load_engine(settings: EngineSettings, progress: Callable[[str], None] = say) -> Engine:
    """Prepare, load and allocate.

    Mutates: the model cache, the peaks' cache, torch's thread count.
    Raises:
        ModelError: the model cannot be read or is not supported.
        SettingsError: a limit that cannot be had; the message names the flag.
    """
    threads = resolve_threads(settings.threads)
    step_tokens = resolve_step_tokens(settings.scheduler)
    torch.set_num_threads(threads)
    loaded = _load(settings, threads, progress)
    network, sizes, prepared = loaded.network, loaded.sizes, loaded.sizes.prepared
    if cut := cut_to_store(settings.model.max_model_len, settings.kv, sizes.max_model_len):
        progress(cut)
    peaks = resolve_peaks(settings, threads, loaded.arithmetic)
    torch.set_num_threads(threads if network.backend == Backend.TORCH else 1)

    def measure_again() -> Generator[None, None, Peaks]:
        try:
            return (yield from resolving(settings, threads, loaded.arithmetic, anew=True))
        except (OSError, MemoryError, RuntimeError) as error:  # it serves on, with what it knows
            progress(f"the peaks cannot be measured again: {error}")
            return peaks

    return Engine(
        runner=ModelRunner(network),
        config=prepared.config,
        model_dir=prepared.dir,
        weights=loaded.weights,
        storage=prepared.storage,
        kv_dtype=sizes.kv_dtype,
        weight_bytes=network.weight_bytes,
        kv_bytes=network.kv_bytes,
        block_size=network.block_size,
        num_blocks=sizes.num_blocks,
        max_model_len=sizes.max_model_len,
        max_step_tokens=step_tokens,
        threads=threads,
        peaks=peaks,
        backend=network.backend,
        isa=network.isa,
        checkpoint=prepared.checkpoint,
        compile_grammar=grammars_for(prepared.dir, prepared.config),
        measure_peaks=measure_again,
    )


def _load(settings: EngineSettings, threads: int, progress: Callable[[str], None]) -> Loaded:
    try:
        return load_network(settings, threads, progress)
    except MemoryError as error:
        message = "--kv-memory, --max-num-batched-tokens: model, KV store and step do not fit"
        raise SettingsError(f"{message} into this machine's memory") from error


def resolve_threads(asked: int | None) -> int:
    """Give the threads to compute with: as told, or the cores that this process may use.

    Raises:
        SettingsError: none, or more than `MAX_THREADS`.
    """
    if asked is not None:
        if not 1 <= asked <= MAX_THREADS:
            raise SettingsError(f"--threads {asked}: must be at least 1 and at most {MAX_THREADS}")
        return asked
    affinity = getattr(os, "sched_getaffinity", None)  # not everywhere
    return min(len(affinity(0)) if affinity else os.cpu_count() or 1, MAX_THREADS)
