"""What the settings come to for a model on this machine: "auto" and None end here.

No tensors live here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from core.errors import SettingsError
from core.formats import KVFormat, MatrixFormat, Storage, WeightFormat
from core.inputs.quantities import parse_bytes
from core.model import ModelConfig
from core.settings import EngineSettings, KVSettings, SchedulerSettings
from costmodel.storage import kv_bytes_per_token, weight_bytes
from engine.machine.memory import Room
from scheduler.pace import step_limit

MAX_STEP_TOKENS: Final = 2**20  # far above any use; the kernels index a step with 32 bits
MAX_THREADS: Final = 256  # as many as the native kernels start


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedEngine:
    """The numbers that an engine is built with."""

    weights: WeightFormat  # as asked for
    kv_dtype: KVFormat
    block_size: int
    num_blocks: int
    max_model_len: int  # prompt and output together
    max_num_seqs: int
    max_step_tokens: int
    threads: int
    arithmetic: str  # the fastest that its products use: what its peak is measured in


def resolve(
    settings: EngineSettings,
    config: ModelConfig,
    storage: Storage,
    *,
    weights: WeightFormat,
    threads: int,
    max_step_tokens: int,
    room: Room,
) -> ResolvedEngine:
    """Resolve what depends on the model; what does not comes resolved already.

    Raises:
        SettingsError: a limit that cannot be had; the message names the flag.
    """
    kv, kv_dtype = settings.kv, settings.model.kv_dtype or storage.usual_kv
    beside = sum(weight_bytes(config, storage).values())
    num_blocks = resolve_num_blocks(kv, config, kv_dtype, beside, room)
    pool_tokens = num_blocks * kv.block_size
    return ResolvedEngine(
        weights=weights,
        kv_dtype=kv_dtype,
        block_size=kv.block_size,
        num_blocks=num_blocks,
        max_model_len=resolve_max_model_len(settings.model.max_model_len, config, pool_tokens),
        max_num_seqs=settings.scheduler.max_num_seqs,
        max_step_tokens=max_step_tokens,
        threads=threads,
        arithmetic=_arithmetic(storage),
    )


_FOUR_BITS: Final = frozenset(
    {
        MatrixFormat.INT4_G32,
        MatrixFormat.Q4_0,
        MatrixFormat.Q4_K,
        MatrixFormat.IQ4_NL,
        MatrixFormat.IQ4_XS,
        MatrixFormat.MXFP4,
    }
)
_FLOATS: Final = frozenset({MatrixFormat.FP32, MatrixFormat.FP16})


def _arithmetic(storage: Storage) -> str:
    if storage.formats & _FOUR_BITS:
        return "int4"
    return "fp32" if storage.formats <= _FLOATS else "int8"


def resolve_num_blocks(
    settings: KVSettings, config: ModelConfig, kv: KVFormat, weight_bytes: int, room: Room
) -> int:
    """Count the blocks of the KV store: as told, or as many as --kv-memory holds.

    Raises:
        SettingsError: less than one block, or more than fits beside the weights.
    """
    if settings.block_size < 1:
        raise SettingsError(f"--block-size {settings.block_size}: must be at least 1")
    block_bytes = settings.block_size * kv_bytes_per_token(config, kv)
    flag = _store_flag(settings)
    if settings.num_kv_blocks is not None:
        blocks = settings.num_kv_blocks
        if blocks < 1:
            raise SettingsError(f"{flag}: must be at least 1")
    else:
        blocks = parse_bytes(settings.kv_memory, "--kv-memory") // block_bytes
        if blocks < 1:
            least = f"{block_bytes} bytes, which a block of {config.name} takes"
            raise SettingsError(f"{flag}: must be at least {least}")
    if blocks * block_bytes + weight_bytes > room.available_bytes:
        asked = f"{flag}: {blocks * block_bytes} bytes beside {weight_bytes} of weights"
        raise SettingsError(f"{asked}, and {room.owner} has {room.available_bytes} available")
    return blocks


def _store_flag(settings: KVSettings) -> str:
    """Write the flag that sizes the KV store."""
    if settings.num_kv_blocks is not None:
        return f"--num-kv-blocks {settings.num_kv_blocks}"
    return f"--kv-memory {settings.kv_memory}"


def cut_to_store(asked: int | None, settings: KVSettings, limit_tokens: int) -> str | None:
    """Say that the context limit is below what was asked for; None if it is not."""
    if asked is None or asked <= limit_tokens:
        return None
    store = f"{_store_flag(settings)} holds no more than {limit_tokens} tokens"
    return f"--max-model-len {asked}: {store}, which is the limit"


def resolve_max_model_len(asked: int | None, config: ModelConfig, pool_tokens: int) -> int:
    """Give the one context limit: the model's, the pool's and the asked one, whichever is least.

    Raises:
        SettingsError: less than 1, or more than the model can.
    """
    longest = config.max_position_tokens
    if asked is not None and asked < 1:
        raise SettingsError(f"--max-model-len {asked}: must be at least 1")
    if asked is not None and asked > longest:
        raise SettingsError(
            f"--max-model-len {asked}: {config.name} was made for at most {longest} tokens"
        )
    return min(asked or longest, longest, pool_tokens)


def resolve_step_tokens(settings: SchedulerSettings) -> int:
    """Give the most tokens of a step.

    Raises:
        SettingsError: more than `MAX_STEP_TOKENS`.
    """
    tokens = step_limit(settings)
    if tokens > MAX_STEP_TOKENS:
        message = f"--max-num-batched-tokens {tokens}: must be at most {MAX_STEP_TOKENS}"
        raise SettingsError(message)
    return tokens


def resolve_threads(asked: int | None) -> int:
    """Give the threads to compute with: as told, or the cores that this process may use.

    Raises:
        SettingsError: less than 1, or more than `MAX_THREADS`.
    """
    if asked is not None:
        if not 1 <= asked <= MAX_THREADS:
            raise SettingsError(f"--threads {asked}: must be at least 1 and at most {MAX_THREADS}")
        return asked
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return min(len(affinity(0)) if affinity else os.cpu_count() or 1, MAX_THREADS)
