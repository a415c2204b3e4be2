"""Builds an engine from its settings: the model prepared, weights mapped, the KV store allocated.

What the settings come to (`engine/load/resolve.py`) is what the loop and the server are told.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import torch

from core.errors import SettingsError
from core.formats import Backend, WeightFormat
from core.machine import Peaks
from core.request import BlockId, Request, RequestId
from core.settings import EngineSettings
from core.step import Slice, StepPlan
from core.wire import Ready
from engine.forward.network import Network
from engine.load.backend import load_network
from engine.load.resolve import (
    ResolvedEngine,
    cut_to_store,
    resolve,
    resolve_step_tokens,
    resolve_threads,
)
from engine.machine.calibrate import resolve_peaks, resolving
from engine.machine.idle_measurement import MeasurePeaks
from engine.machine.memory import least_room
from engine.prepare.prepare import PreparedModel, say
from engine.step.grammar_queue import Compile, grammars_for
from engine.step.runner import ModelRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A loaded model, ready to run steps, and all that others are told about it."""

    runner: ModelRunner
    ready: Ready  # for the server; `ready_ns` is 0 until the engine is warm
    max_step_tokens: int
    compile_grammar: Compile
    measure_peaks: MeasurePeaks

    def warm_up(self) -> None:
        """Run a block of prompt, or a step's worth, so that the first request finds warm pages.

        Mutates: the slots of block 0, which no request owns yet.
        """
        length = min(self.ready.block_size, self.ready.max_model_len, self.max_step_tokens)
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
    network, prepared, resolved = _load(settings, threads, step_tokens, progress)
    if cut := cut_to_store(settings.model.max_model_len, settings.kv, resolved.max_model_len):
        progress(cut)
    peaks = resolve_peaks(settings, threads, resolved.arithmetic)
    torch.set_num_threads(threads if network.backend == Backend.TORCH else 1)

    def measure_again() -> Generator[None, None, Peaks]:
        try:
            return (yield from resolving(settings, threads, resolved.arithmetic, anew=True))
        except (OSError, MemoryError, RuntimeError) as error:  # keep serving with the known peaks
            progress(f"the peaks cannot be measured again: {error}")
            return peaks

    return Engine(
        runner=ModelRunner(network),
        ready=_ready(network, prepared, resolved, peaks),
        max_step_tokens=step_tokens,
        compile_grammar=grammars_for(prepared.dir, prepared.config),
        measure_peaks=measure_again,
    )


def _load(
    settings: EngineSettings, threads: int, step_tokens: int, progress: Callable[[str], None]
) -> tuple[Network, PreparedModel, ResolvedEngine]:
    def resolved(prepared: PreparedModel, weights: WeightFormat) -> ResolvedEngine:
        return resolve(
            settings,
            prepared.config,
            prepared.storage,
            weights=weights,
            threads=threads,
            max_step_tokens=step_tokens,
            room=least_room(),
        )

    try:
        return load_network(settings, resolved, progress)
    except MemoryError as error:
        message = "--kv-memory, --max-num-batched-tokens: model, KV store and step do not fit"
        raise SettingsError(f"{message} into this machine's memory") from error


def _ready(
    network: Network, prepared: PreparedModel, resolved: ResolvedEngine, peaks: Peaks
) -> Ready:
    return Ready(
        ready_ns=0,
        model=prepared.config,
        model_dir=str(prepared.dir),
        weights=resolved.weights,
        storage=prepared.storage,
        kv_dtype=resolved.kv_dtype,
        weight_bytes=network.weight_bytes,
        kv_bytes=network.kv_bytes,
        block_size=resolved.block_size,
        num_blocks=resolved.num_blocks,
        max_model_len=resolved.max_model_len,
        threads=resolved.threads,
        peaks=peaks,
        backend=network.backend,
        isa=network.isa,
        max_num_seqs=resolved.max_num_seqs,
        max_step_tokens=resolved.max_step_tokens,
        checkpoint=prepared.checkpoint,
    )
