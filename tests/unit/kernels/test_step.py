"""Whole native steps against the plain decoder in float64."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from core.formats import FILE_OWN, KVFormat, MatrixFormat
from core.model import Activation, ModelConfig, RopeConfig, TensorRole
from costmodel.storage import kv_bytes_per_token
from kernels import PackedMatrix, isas
from tests.unit.kernels.file_blocks import drawn
from tests.unit.kernels.oracle import forward, random_weights
from tests.unit.kernels.plain import int8_kv, stands_for
from tests.unit.kernels.world import World, native

Array = npt.NDArray[Any]


def tiny(**changes: Any) -> ModelConfig:
    fields: dict[str, Any] = {
        "name": "tiny",
        "vocab_size": 61,
        "hidden_size": 48,
        "intermediate_size": 72,
        "num_layers": 2,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 16,
        "max_position_tokens": 1024,
        "norm_eps": 1e-5,
        "rope": RopeConfig(theta=10_000.0),
        "tied_embeddings": True,
    }
    fields |= changes
    fields.setdefault("sliding_window", (None,) * fields["num_layers"])
    return ModelConfig(**fields)


SHAPES = {
    "grouped heads": tiny(),
    "one head of each": tiny(num_heads=1, num_kv_heads=1, head_dim=64, tied_embeddings=False),
    "more heads than a tile": tiny(num_heads=20, num_kv_heads=1, head_dim=10),
    "every option": tiny(
        qk_norm=True,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        activation=Activation.GELU_TANH,
        sliding_window=(9, None),
        tied_embeddings=False,
    ),
    "no size is a multiple": tiny(
        vocab_size=53, hidden_size=23, intermediate_size=41, head_dim=6, sliding_window=(150, 3)
    ),
    "windows over several spans": tiny(sliding_window=(300, 150)),
    "wide heads": tiny(head_dim=130, num_heads=2, num_kv_heads=1, num_layers=1),
}

CUTS = (0, 50, 51, 255, 256, 257, 500, 540)  # around partitions of 128 and spans of 256 positions


def tokens_of(config: ModelConfig, count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, config.vocab_size, count).tolist()


@functools.cache
def long_sequence(
    shape: str, stored: Callable[[Array], Array] = lambda x: x
) -> tuple[dict[str, Array], list[int], Array]:
    """Give a shape's weights, its tokens, and what the plain decoder makes of them.

    It is computed once for all block sizes and instruction sets.
    """
    config = SHAPES[shape]
    weights, tokens = random_weights(config, 1, spread=0.1), tokens_of(config, CUTS[-1])
    return weights, tokens, forward(config, weights, tokens, stored)


def relative(found: Array, expected: Array) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("block_size", [1, 5, 16, 40])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_computes_the_plain_decoder(shape: str, block_size: int, isa: str) -> None:
    config = SHAPES[shape]
    weights, tokens, expected = long_sequence(shape)
    blocks = -(-CUTS[-1] // block_size)
    model = native(config, weights, isa=isa, block_size=block_size, num_blocks=blocks)
    world = World(model, config.vocab_size, blocks, block_size)
    pieces = [tokens[begin:end] for begin, end in itertools.pairwise(CUTS)]
    logits = np.concatenate([world.step([(0, piece)]) for piece in pieces])
    assert relative(logits, expected) < 1e-5


@pytest.mark.parametrize("target", [MatrixFormat.FP16, MatrixFormat.INT8, MatrixFormat.INT4_G32])
@pytest.mark.parametrize("isa", isas())
def test_narrow_weights_with_fp32_activations_are_exact(target: MatrixFormat, isa: str) -> None:
    config = SHAPES["every option"]
    weights, tokens = random_weights(config, 2, spread=0.1), tokens_of(config, 40)
    model = native(config, weights, target, isa=isa, activations="fp32")
    dequantised = {
        name: stands_for(values, target) if values.ndim == 2 else values
        for name, values in weights.items()
    }
    logits = World(model, config.vocab_size).step([(0, tokens)])
    assert relative(logits, forward(config, dequantised, tokens)) < 1e-5


def drawn_matrices(
    config: ModelConfig, weights: dict[str, Array], kinds: list[MatrixFormat]
) -> dict[str, PackedMatrix]:
    """Draw all matrices, their formats by turns, and put what they stand for into `weights`."""
    given = {}
    matrices = [spec for spec in config.tensors() if spec.role is not TensorRole.VECTOR]
    for seed, (spec, kind) in enumerate(zip(matrices, itertools.cycle(kinds), strict=False)):
        given[spec.name], weights[spec.name] = drawn(kind, spec.rows, spec.columns, seed)
    return given


@pytest.mark.parametrize(
    "kinds", [[kind] for kind in sorted(FILE_OWN)] + [sorted(FILE_OWN)], ids=str
)
@pytest.mark.parametrize("isa", isas())
def test_a_file_s_own_blocks_with_fp32_activations_are_exact(
    kinds: list[MatrixFormat], isa: str
) -> None:
    config = SHAPES["every option"]
    weights, tokens = random_weights(config, 2), tokens_of(config, 40)
    given = drawn_matrices(config, weights, kinds)
    model = native(config, weights, given=given, isa=isa, activations="fp32")
    world = World(model, config.vocab_size)
    logits = np.concatenate([world.step([(0, piece)]) for piece in (tokens[:38], tokens[38:])])
    assert relative(logits, forward(config, weights, tokens)) < 1e-5


@pytest.mark.parametrize("isa", isas())
def test_a_file_s_mix_gives_the_same_to_the_bit_in_any_batch(isa: str) -> None:
    config, rng = SHAPES["every option"], np.random.default_rng(7)
    weights = random_weights(config, 4)
    given = drawn_matrices(config, weights, [MatrixFormat.Q4_K, MatrixFormat.Q6_K])
    prompts = {request: tokens_of(config, n, request) for request, n in enumerate((9, 50, 130))}
    alone = {}
    for request, tokens in prompts.items():
        model = native(config, weights, given=given, isa=isa, threads=1 + request)
        alone[request] = chunked(World(model, config.vocab_size), request, tokens, rng)
    model = native(config, weights, given=given, isa=isa, threads=2)
    together = mixed(World(model, config.vocab_size), prompts, rng)
    for request in prompts:
        np.testing.assert_array_equal(together[request], alone[request])


@pytest.mark.parametrize("isa", isas())
def test_gate_and_up_may_differ_in_format(isa: str) -> None:
    config = SHAPES["no size is a multiple"]
    weights, tokens = random_weights(config, 13, spread=0.1), tokens_of(config, 20)
    formats = {"gate_proj": MatrixFormat.INT4_G32, "up_proj": MatrixFormat.FP16}
    model = native(config, weights, isa=isa, activations="fp32", formats=formats)
    stored = weights | {
        name: stands_for(weights[name], target)
        for kind, target in formats.items()
        for name in weights
        if name.endswith(kind)
    }
    logits = World(model, config.vocab_size).step([(0, tokens)])
    assert relative(logits, forward(config, stored, tokens)) < 1e-5


def test_a_half_kv_store_stays_within_its_rounding() -> None:
    config = SHAPES["grouped heads"]
    weights, tokens = random_weights(config, 3, spread=0.1), tokens_of(config, 100)
    for isa in isas():
        model = native(config, weights, isa=isa, kv_format="fp16")
        logits = World(model, config.vocab_size).step([(0, tokens)])
        assert 1e-7 < relative(logits, forward(config, weights, tokens)) < 1e-3


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("block_size", [1, 5, 16, 40])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_int8_kv_store_loses_what_rounding_to_its_scales_loses(
    shape: str, block_size: int, isa: str
) -> None:
    config = SHAPES[shape]
    weights, tokens, exact = long_sequence(shape)
    _, _, rounded = long_sequence(shape, int8_kv)
    blocks = -(-CUTS[-1] // block_size)
    sizes = {"block_size": block_size, "num_blocks": blocks, "kv_format": "int8"}
    world = World(native(config, weights, isa=isa, **sizes), config.vocab_size, blocks, block_size)
    pieces = [tokens[begin:end] for begin, end in itertools.pairwise(CUTS)]
    logits = np.concatenate([world.step([(0, piece)]) for piece in pieces])
    lost = relative(rounded, exact)
    # A value halfway between two steps may fall to either side; all others fall to the same.
    assert relative(logits, rounded) < 0.1 * lost < 2e-3


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-6, 1e3])
def test_keys_and_values_of_any_size_are_rounded_without_overflow(size: float) -> None:
    config = SHAPES["grouped heads"]
    weights, tokens = random_weights(config, 2, spread=0.1), tokens_of(config, 20)
    for layer in range(config.num_layers):
        weights[f"layers.{layer}.v_proj"] *= np.float32(size)
    for isa in isas():
        model = native(config, weights, isa=isa, kv_format="int8")
        logits = World(model, config.vocab_size).step([(0, tokens)])
        assert relative(logits, forward(config, weights, tokens)) < 1e-2


@pytest.mark.parametrize("kv", KVFormat)
@pytest.mark.parametrize("isa", isas())
def test_a_bad_key_spoils_its_own_request_and_not_the_next_in_its_blocks(
    isa: str, kv: KVFormat
) -> None:
    config = SHAPES["one head of each"]
    weights = random_weights(config, 3, spread=0.1)
    weights["embed"][7] = np.nan
    model = native(config, weights, isa=isa, kv_format=kv, num_blocks=1)
    spoilt = World(model, config.vocab_size, num_blocks=1).step([(0, [1, 2, 3, 7]), (0, [4, 5])])
    assert np.isnan(spoilt[3:]).all()
    assert np.isfinite(World(model, config.vocab_size, num_blocks=1).step([(0, [1, 2])])).all()


def chunked(world: World, request: int, tokens: list[int], rng: np.random.Generator) -> Array:
    """Compute a request alone, in random pieces."""
    rows, done = [], 0
    while done < len(tokens):
        piece = tokens[done : done + int(rng.integers(1, 30))]
        rows.append(world.step([(request, piece)]))
        done += len(piece)
    return np.concatenate(rows)


def mixed(
    world: World, prompts: dict[int, list[int]], rng: np.random.Generator
) -> dict[int, Array]:
    """Compute requests together, each step a random choice of requests and lengths."""
    rows: dict[int, list[Array]] = {request: [] for request in prompts}
    left = {request: list(tokens) for request, tokens in prompts.items()}
    while left:
        chosen = [r for r in left if rng.random() < 0.7] or list(left)
        pieces = [(r, left[r][: int(rng.integers(1, 40))]) for r in chosen]
        logits = world.step(pieces)
        for request, piece in pieces:
            rows[request].append(logits[: len(piece)])
            logits = logits[len(piece) :]
            left[request] = left[request][len(piece) :]
            if not left[request]:
                del left[request]
    return {request: np.concatenate(parts) for request, parts in rows.items()}


@pytest.mark.parametrize(
    "target", [MatrixFormat.FP32, MatrixFormat.INT8_G32, MatrixFormat.INT4_G32]
)
@pytest.mark.parametrize("shape", ["every option", "windows over several spans"])
@pytest.mark.parametrize("kv", KVFormat)
@pytest.mark.parametrize("isa", isas())
def test_logits_are_the_same_to_the_bit_in_any_batch_chunking_and_thread_count(
    isa: str, kv: KVFormat, shape: str, target: MatrixFormat
) -> None:
    config = SHAPES[shape]
    weights, rng = random_weights(config, 4, spread=0.1), np.random.default_rng(7)
    lengths = (20, 80, 140, 200, 560)  # the last is three spans of attention
    prompts = {request: tokens_of(config, n, request) for request, n in enumerate(lengths)}
    alone = {}
    for request, tokens in prompts.items():
        model = native(config, weights, target, isa=isa, kv_format=kv, threads=1 + request % 3)
        alone[request] = chunked(World(model, config.vocab_size), request, tokens, rng)
    for threads in (1, 3):
        model = native(config, weights, target, isa=isa, kv_format=kv, threads=threads)
        together = mixed(World(model, config.vocab_size), prompts, rng)
        for request in prompts:
            np.testing.assert_array_equal(together[request], alone[request])


def test_only_the_rows_asked_for_are_given() -> None:
    config = SHAPES["grouped heads"]
    weights, tokens = random_weights(config, 5, spread=0.1), tokens_of(config, 9)
    every = World(native(config, weights), config.vocab_size).step([(0, tokens)])
    world = World(native(config, weights), config.vocab_size)
    arrays = world.arrays([(0, tokens)])
    arrays["logit_rows"] = np.array([8, 2], np.int32)
    arrays["logits"] = np.empty((2, config.vocab_size), np.float32)
    arrays["greatest"] = np.empty(2, np.int32)
    world.model.step(**arrays)
    np.testing.assert_array_equal(arrays["logits"], every[[8, 2]])


@pytest.mark.parametrize("vocab_size", [7, 61, 2100])
@pytest.mark.parametrize("isa", isas())
def test_a_row_names_the_first_of_its_greatest_logits(isa: str, vocab_size: int) -> None:
    config = tiny(vocab_size=vocab_size)
    weights = random_weights(config, 10, spread=0.1)
    weights["embed"][vocab_size // 2 :] = weights["embed"][: vocab_size - vocab_size // 2]  # ties
    world = World(native(config, weights, isa=isa), vocab_size)
    arrays = world.arrays([(0, tokens_of(config, 40))])
    world.model.step(**arrays)
    np.testing.assert_array_equal(arrays["greatest"], arrays["logits"].argmax(axis=1))


def test_a_row_that_is_all_nan_names_no_greatest_logit_and_spoils_no_other() -> None:
    config = tiny(tied_embeddings=False)
    weights = random_weights(config, 11, spread=0.1)
    weights["embed"][5] = np.nan
    for isa in isas():
        world = World(native(config, weights, isa=isa), config.vocab_size)
        arrays = world.arrays([(0, [5]), (1, [6])])
        world.model.step(**arrays)
        assert arrays["greatest"].tolist() == [-1, arrays["logits"][1].argmax()]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("id", [3, 60])  # within a whole vector, and behind the last one
@pytest.mark.parametrize("isa", isas())
def test_one_bad_logit_is_enough_for_a_row_to_name_none_but_minus_infinity_is_a_mask(
    isa: str, id: int, bad: float
) -> None:
    config = tiny(tied_embeddings=False)
    weights = random_weights(config, 12, spread=0.1)
    weights["lm_head"][id] = 0
    weights["lm_head"][id, 5] = bad  # infinity takes the sign of what it is multiplied with
    world = World(native(config, weights, isa=isa), config.vocab_size)
    arrays = world.arrays([(0, tokens_of(config, 20))])
    world.model.step(**arrays)
    greatest = arrays["logits"].max(axis=1)  # NaN where one is
    named = np.where(np.isfinite(greatest), arrays["logits"].argmax(axis=1), -1)
    assert set(named < 0) == ({True} if np.isnan(bad) else {True, False})
    np.testing.assert_array_equal(arrays["greatest"], named)


def test_a_step_without_logits_still_fills_the_kv_store() -> None:
    config = SHAPES["grouped heads"]
    weights, tokens = random_weights(config, 6, spread=0.1), tokens_of(config, 9)
    world = World(native(config, weights), config.vocab_size)
    arrays = world.arrays([(0, tokens[:8])])
    arrays["logit_rows"] = np.empty(0, np.int32)
    arrays["logits"] = np.empty((0, config.vocab_size), np.float32)
    arrays["greatest"] = np.empty(0, np.int32)
    world.model.step(**arrays)
    last = world.step([(0, tokens[8:])])
    assert relative(last, forward(config, weights, tokens)[8:]) < 1e-5


def test_two_models_in_one_process_do_not_disturb_each_other() -> None:
    first, second = SHAPES["grouped heads"], SHAPES["every option"]
    worlds = [
        World(native(config, random_weights(config, 8, spread=0.1)), config.vocab_size)
        for config in (first, second)
    ]
    for start in range(0, 30, 10):
        for world, config in zip(worlds, (first, second), strict=True):
            piece = tokens_of(config, 30)[start : start + 10]
            expected = forward(config, random_weights(config, 8, spread=0.1), tokens_of(config, 30))
            found = world.step([(0, piece)])
            assert relative(found, expected[start : start + 10]) < 1e-5


@pytest.mark.parametrize("kv", KVFormat)
def test_allocated_bytes_are_those_of_the_packed_tensors_and_of_the_blocks(kv: KVFormat) -> None:
    config = SHAPES["grouped heads"]
    model = native(config, random_weights(config, 9), num_blocks=10, kv_format=kv)
    assert model.weight_bytes == sum(
        4 * spec.rows * spec.columns
        if spec.rows == 1
        else 4 * (-(-spec.rows // 16) * 16) * spec.columns
        for spec in config.tensors()
    )
    assert model.kv_bytes == 10 * 16 * kv_bytes_per_token(config, kv)
