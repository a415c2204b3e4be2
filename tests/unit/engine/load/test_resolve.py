"""What the settings come to: the KV store's size, the one context limit, the arithmetic."""

from __future__ import annotations

import pytest

from core.errors import SettingsError
from core.formats import KVFormat, MatrixFormat, Storage, WeightFormat
from core.settings import EngineSettings, KVSettings, ModelSettings, SchedulerSettings
from engine.load.resolve import (
    ResolvedEngine,
    cut_to_store,
    resolve,
    resolve_max_model_len,
    resolve_num_blocks,
    resolve_step_tokens,
)
from engine.machine.memory import Room
from tests.unit.costmodel.models import model

CONFIG = model(name="a-model")  # 3,072 KV bytes per token in fp32
ROOM = Room(2**30, "this machine")


@pytest.mark.parametrize(
    ("settings", "kv", "blocks"),
    [
        (KVSettings(kv_memory="3MiB"), KVFormat.FP32, 64),
        (KVSettings(kv_memory="3MiB"), KVFormat.FP16, 128),
        (KVSettings(kv_memory="3MiB", block_size=32), KVFormat.FP32, 32),
        (KVSettings(kv_memory="49151"), KVFormat.FP16, 1),
        (KVSettings(kv_memory="1KiB", num_kv_blocks=7), KVFormat.FP32, 7),
    ],
    ids=str,
)
def test_blocks_are_told_or_what_the_memory_holds(
    settings: KVSettings, kv: KVFormat, blocks: int
) -> None:
    assert resolve_num_blocks(settings, CONFIG, kv, 0, ROOM) == blocks


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (KVSettings(kv_memory="49151"), "--kv-memory 49151: must be at least 49152 bytes, "),
        (KVSettings(num_kv_blocks=0), "--num-kv-blocks 0"),
        (KVSettings(block_size=0), "--block-size 0"),
        (KVSettings(kv_memory="much"), "--kv-memory"),
    ],
    ids=str,
)
def test_a_store_without_a_block_is_refused(settings: KVSettings, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        resolve_num_blocks(settings, CONFIG, KVFormat.FP32, 0, ROOM)


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        (KVSettings(kv_memory="3MiB"), "--kv-memory 3MiB"),
        (KVSettings(num_kv_blocks=64), "--num-kv-blocks 64"),
    ],
)
def test_a_store_that_has_no_room_beside_the_weights_is_refused(
    settings: KVSettings, flag: str
) -> None:
    room = Room(4 * 2**20, "this container")
    assert resolve_num_blocks(settings, CONFIG, KVFormat.FP32, 2**20, room) == 64
    with pytest.raises(SettingsError) as caught:
        resolve_num_blocks(settings, CONFIG, KVFormat.FP32, 2**20 + 1, room)
    asked = f"{flag}: 3145728 bytes beside 1048577 of weights"
    assert str(caught.value) == f"{asked}, and this container has 4194304 available"


@pytest.mark.parametrize(
    ("asked", "pool_tokens", "limit"),
    [
        (None, 100_000, 8192),
        (None, 512, 512),
        (300, 512, 300),
        (600, 512, 512),
        (8192, 9000, 8192),
    ],
)
def test_the_context_limit_is_the_least_of_model_pool_and_wish(
    asked: int | None, pool_tokens: int, limit: int
) -> None:
    assert resolve_max_model_len(asked, CONFIG, pool_tokens) == limit


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        (KVSettings(kv_memory="1MiB"), "--kv-memory 1MiB"),
        (KVSettings(kv_memory="1MiB", num_kv_blocks=21), "--num-kv-blocks 21"),
    ],
)
def test_a_wish_that_the_pool_cuts_is_told_with_both_flags_and_numbers(
    settings: KVSettings, flag: str
) -> None:
    said = cut_to_store(8000, settings, 336)
    assert said == (
        f"--max-model-len 8000: {flag} holds no more than 336 tokens, which is the limit"
    )
    assert cut_to_store(336, settings, 336) is None
    assert cut_to_store(None, settings, 336) is None, "nobody wished for more"


@pytest.mark.parametrize("asked", [8193, 0, -1])
def test_a_wish_that_the_model_cannot_meet_is_refused(asked: int) -> None:
    with pytest.raises(SettingsError, match=f"--max-model-len {asked}"):
        resolve_max_model_len(asked, CONFIG, 100_000)


def test_a_wish_above_the_models_limit_names_both() -> None:
    with pytest.raises(SettingsError, match=r"9000.*a-model.*8192"):
        resolve_max_model_len(9000, CONFIG, 100_000)


def test_a_step_beyond_what_the_kernels_index_is_refused() -> None:
    assert resolve_step_tokens(SchedulerSettings(max_num_batched_tokens=2**20)) == 2**20
    with pytest.raises(SettingsError, match=r"--max-num-batched-tokens 1048577: .* 1048576"):
        resolve_step_tokens(SchedulerSettings(max_num_batched_tokens=2**20 + 1))


def resolved(settings: EngineSettings, storage: Storage) -> ResolvedEngine:
    return resolve(
        settings,
        CONFIG,
        storage,
        weights=WeightFormat.NATIVE,
        threads=3,
        max_step_tokens=128,
        room=ROOM,
    )


def test_what_is_left_open_is_resolved_by_model_and_pool() -> None:
    found = resolved(EngineSettings(kv=KVSettings(kv_memory="3MiB")), Storage(MatrixFormat.FP32))
    assert (found.kv_dtype, found.num_blocks, found.max_model_len) == (KVFormat.FP32, 64, 1024)
    assert (found.block_size, found.threads, found.max_step_tokens) == (16, 3, 128)


def test_what_is_asked_for_is_kept() -> None:
    asked = EngineSettings(
        model=ModelSettings(kv_dtype=KVFormat.FP16, max_model_len=300),
        kv=KVSettings(num_kv_blocks=40, block_size=32),
    )
    found = resolved(asked, Storage(MatrixFormat.FP32))
    assert (found.kv_dtype, found.num_blocks, found.max_model_len) == (KVFormat.FP16, 40, 300)


@pytest.mark.parametrize(
    ("matrices", "arithmetic"),
    [
        (MatrixFormat.FP32, "fp32"),
        (MatrixFormat.FP16, "fp32"),
        (MatrixFormat.INT8, "int8"),
        (MatrixFormat.INT8_G32, "int8"),
        (MatrixFormat.INT4_G32, "int4"),
        (MatrixFormat.Q4_K, "int4"),
        (MatrixFormat.IQ4_XS, "int4"),
        (MatrixFormat.Q5_K, "int8"),
        (MatrixFormat.Q6_K, "int8"),
    ],
)
def test_the_arithmetic_is_the_fastest_that_the_matrices_use(
    matrices: MatrixFormat, arithmetic: str
) -> None:
    assert resolved(EngineSettings(), Storage(matrices, panels=True)).arithmetic == arithmetic
