"""What is wrong with an array is said before anything is read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from core.formats import MatrixFormat
from kernels import MAX_THREADS, NativeModel, NativeOptions, Unsupported, pack, product
from kernels.build import describe
from tests.unit.kernels.oracle import inverse_frequencies, random_weights
from tests.unit.kernels.test_step import tiny
from tests.unit.kernels.world import World, native

CONFIG = tiny()


@pytest.fixture(scope="module")
def model() -> NativeModel:
    return native(CONFIG, random_weights(CONFIG, 1))


def good(model: NativeModel) -> dict[str, Any]:
    return World(model, CONFIG.vocab_size).arrays([(0, [1, 2, 3]), (1, [4])])


BAD: dict[str, tuple[str, Any, str]] = {
    "dtype": ("tokens", np.zeros(4, np.int64), "tokens must have elements of 32 bits: int"),
    "dimensions": ("positions", np.zeros((4, 1), np.int32), "positions must have 1 dimensions"),
    "length": ("slots", np.zeros(3, np.int32), "slots must have size 4"),
    "stride": ("tokens", np.zeros(8, np.int32)[::2], "tokens must be contiguous"),
    "column order": (
        "logits",
        np.zeros((4, 61), np.float32, order="F"),
        "logits must be contiguous",
    ),
    "greatest shape": ("greatest", np.zeros(3, np.int32), "greatest must have size 4"),
    "logits shape": ("logits", np.zeros((4, 60), np.float32), "logits must have size 61"),
    "alignment": (
        "positions",
        np.frombuffer(bytearray(17), np.uint8)[1:].view(np.int32),
        "positions must be aligned",
    ),
    "unknown token": ("tokens", np.array([1, 2, 61, 0], np.int32), "token id"),
    "negative token": ("tokens", np.array([1, -2, 3, 0], np.int32), "token id"),
    "gap": ("positions", np.array([0, 1, 3, 0], np.int32), "consecutive"),
    "negative position": ("positions", np.array([-1, 0, 1, 0], np.int32), "max_positions"),
    "far position": ("positions", np.array([1022, 1023, 1024, 0], np.int32), "max_positions"),
    "slot elsewhere": ("slots", np.array([0, 1, 2, 3], np.int32), "slot"),
    "block that is not": ("block_tables", np.full((2, 1), 64, np.int32), "block table"),
    "negative block": ("block_tables", np.full((2, 1), -1, np.int32), "block table"),
    "short table": ("block_tables", np.zeros((2, 0), np.int32), "block table is shorter"),
    "falling starts": ("query_starts", np.array([0, 5, 4], np.int32), "query_starts"),
    "late start": ("query_starts", np.array([1, 3, 4], np.int32), "query_starts"),
    "empty slice": ("query_starts", np.array([0, 0, 4], np.int32), "query_starts"),
    "logit row": ("logit_rows", np.array([0, 1, 2, 4], np.int32), "logit row"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_array_is_refused_by_name(case: str, model: NativeModel) -> None:
    name, value, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        model.step(**(good(model) | {name: value}))
    model.step(**good(model))  # and the next step works


def test_calls_at_the_same_time_are_refused_and_disturb_no_other(model: NativeModel) -> None:
    expected = good(model)
    model.step(**expected)

    def call(_: int) -> str:
        arrays = good(model)
        try:
            model.read_weights()
            model.read_kv(1 << 20)
            model.step(**arrays)
        except ValueError as error:
            return str(error)
        return "" if np.array_equal(arrays["logits"], expected["logits"]) else "other logits"

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(call, range(200)))
    assert found <= {"", "a step of this model is already running"}
    assert "" in found


def test_more_tokens_than_the_model_has_room_for_are_refused() -> None:
    small = native(CONFIG, random_weights(CONFIG, 1), max_tokens=3)
    with pytest.raises(ValueError, match="max_tokens = 3"):
        small.step(**good(small))


def test_read_only_logits_are_refused(model: NativeModel) -> None:
    arrays = good(model)
    arrays["logits"].flags.writeable = False
    with pytest.raises(TypeError):
        model.step(**arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_dim": 7}, "head_dim must be even"),
        ({"head_dim": 258}, "at most 256"),
    ],
)
def test_a_model_that_the_kernels_do_not_run_is_unsupported(
    change: dict[str, int], message: str
) -> None:
    config = tiny(**change)
    with pytest.raises(Unsupported, match=message):
        native(config, random_weights(config, 1))


@pytest.mark.parametrize("option", [{"isa": "mmx"}, {"kv_format": "fp8"}, {"activations": "int3"}])
def test_an_option_that_is_not_there_is_unsupported(option: dict[str, str]) -> None:
    with pytest.raises(Unsupported, match="unsupported"):
        native(CONFIG, random_weights(CONFIG, 1), **option)


@pytest.mark.parametrize("threads", [-1, 0, MAX_THREADS + 1])
def test_threads_that_no_team_has_are_refused(threads: int) -> None:
    message = f"threads must be 1 to {MAX_THREADS}, not {threads}"
    with pytest.raises(ValueError, match=message):
        native(CONFIG, random_weights(CONFIG, 1), threads=threads)
    packed = pack(np.ones((20, 20), np.float32), MatrixFormat.FP16)
    x, y = np.ones((1, 20), np.float32), np.empty((1, 20), np.float32)
    with pytest.raises(ValueError, match=message):
        product(x, packed, y, threads=threads)


def described(**changes: Any) -> dict[str, object]:
    options = NativeOptions(num_blocks=4, block_size=16, max_tokens=8, max_positions=64, threads=1)
    return describe(CONFIG, inverse_frequencies(CONFIG), options) | changes


@pytest.mark.parametrize("key", described())
def test_a_description_that_lacks_a_key_is_refused_by_its_name(key: str) -> None:
    short = {name: value for name, value in described().items() if name != key}
    with pytest.raises(ValueError, match=rf"the description lacks {key}$"):
        NativeModel({}, short)


@pytest.mark.parametrize("key", described())
def test_a_value_of_another_type_is_refused_by_its_key(key: str) -> None:
    with pytest.raises(TypeError, match=rf"{key} must be an? (int|number|str|list)"):
        NativeModel({}, described(**{key: None}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("threads", "2"),
        ("threads", 2.0),
        ("num_blocks", 1 << 40),
        ("norm_eps", "1e-5"),
        ("windows", [0, 1.5]),
        ("windows", 0),
        ("kv_format", 16),
    ],
)
def test_no_value_is_converted_to_the_type_that_is_wanted(key: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"{key} must be"):
        NativeModel({}, described(**{key: value}))


def test_a_key_that_nobody_reads_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="unknown key: softcap"):
        NativeModel({}, described(softcap=30.0))


def test_a_missing_weight_is_named() -> None:
    weights = random_weights(CONFIG, 1)
    weights["layers.1.up_proj"] = weights["layers.1.up_proj"][:-1].copy()
    with pytest.raises(ValueError, match=r"layers\.1\.up_proj must be 72 x 48"):
        native(CONFIG, weights)


def test_packed_bytes_of_the_wrong_size_are_refused() -> None:
    packed = pack(np.ones((20, 20), np.float32), MatrixFormat.FP16)
    y = np.empty((1, 20), np.float32)
    short = packed._replace(data=packed.data[:-1].copy())
    with pytest.raises(ValueError, match="wrong number of bytes"):
        product(np.ones((1, 20), np.float32), short, y)
