"""How many blocks there are and how long a request may be. No tensors live here."""

from __future__ import annotations

from typing import Final

from core.errors import SettingsError
from core.formats import KVFormat
from core.model import ModelConfig
from core.settings import KVSettings, SchedulerSettings, parse_bytes
from costmodel.storage import kv_bytes_per_token
from engine.machine.memory import Room
from scheduler.pace import step_limit

MAX_STEP_TOKENS: Final = 2**20  # far above any use; the kernels index a step with 32 bits


def resolve_num_blocks(
    settings: KVSettings, config: ModelConfig, kv: KVFormat, weight_bytes: int, room: Room
) -> int:
    """Count the blocks of the KV store: as told, or as many as --kv-memory holds.

    Raises:
        SettingsError: not one block, or more than there is room for beside the weights.
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
    """Say that the context limit is less than what was asked for; None where it is not."""
    if asked is None or asked <= limit_tokens:
        return None
    store = f"{_store_flag(settings)} holds no more than {limit_tokens} tokens"
    return f"--max-model-len {asked}: {store}, which is the limit"


def resolve_max_model_len(asked: int | None, config: ModelConfig, pool_tokens: int) -> int:
    """Give the one context limit: the model's, the pool's and the asked one, whichever is least.

    Raises:
        SettingsError: more than the model can, or nothing, is asked for.
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
