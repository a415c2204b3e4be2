"""Each packed format against its formula: what is packed here is unpacked there."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize

from core.errors import ModelError
from engine.unpack.find import Unpacker
from engine.unpack.matrix import Array, Packed
from engine.unpack.method import Method, Quantisation

ROWS, COLUMNS, GROUP = 48, 128, 64
KINDS = {torch.float8_e4m3fn: "F8_E4M3", torch.int8: "I8"}


class Folder(dict[str, torch.Tensor]):
    """Tensors by name, as a checkpoint has them."""

    def get(self, name: str) -> torch.Tensor:  # type: ignore[override]
        return self[name]

    def kind(self, name: str) -> str:
        return KINDS.get(self[name].dtype, "other")

    def shape(self, name: str) -> Sequence[int]:
        return self[name].shape

    def bytes(self, name: str) -> int:
        return self[name].nbytes


def draw(bits: int, group: int = GROUP, middle: bool = False) -> tuple[Array, Array, Array]:
    """Draw levels [N, K], zeros [N, G] and scales [N, G], those exact in fp16."""
    rng = np.random.default_rng(7)
    shape = (ROWS, COLUMNS // group)
    values = rng.integers(0, 2**bits, (ROWS, COLUMNS), dtype=np.uint8)
    zeros = rng.integers(0, 2**bits, shape, dtype=np.uint8)
    if middle:
        zeros[:] = 2 ** (bits - 1)
    return values, zeros, rng.uniform(0.01, 0.1, shape).astype(np.float16).astype(np.float32)


def weights(values: Array, zeros: Array, scales: Array) -> Array:
    group = COLUMNS // scales.shape[1]
    centred = values.astype(np.float32) - np.repeat(zeros.astype(np.float32), group, axis=1)
    product: Array = centred * np.repeat(scales, group, axis=1)
    return product


def words(values: Array, bits: int) -> torch.Tensor:
    """Pack along the last axis, the lowest bits first."""
    per = 32 // bits
    lanes = values.reshape(*values.shape[:-1], -1, per).astype(np.uint32)
    packed = (lanes << (np.arange(per, dtype=np.uint32) * bits)).sum(-1, dtype=np.uint32)
    return torch.from_numpy(packed.view(np.int32).copy())


def gptq(bits: int, less_one: bool = True, middle: bool = False) -> tuple[Folder, Array]:
    values, zeros, scales = draw(bits, middle=middle)
    stored = (zeros - np.uint8(less_one)) & np.uint8(2**bits - 1)
    folder = Folder(
        {
            "m.qweight": words(values, bits).T.contiguous(),
            "m.qzeros": words(np.ascontiguousarray(stored.T), bits),
            "m.scales": torch.from_numpy(scales.T.copy()).half(),
            "m.g_idx": torch.arange(COLUMNS, dtype=torch.int32) // GROUP,
        }
    )
    return folder, weights(values, zeros, scales)


def found(folder: Folder, quantisation: Quantisation) -> Packed:
    packed = Unpacker(folder, quantisation).find("m")
    assert packed is not None
    assert (packed.rows, packed.columns) == (ROWS, COLUMNS)
    return packed


def by_blocks(packed: Packed) -> Array:
    """Unpack by way of GGUF's blocks, as the kernels take them."""
    levels = packed.levels()
    assert np.allclose(levels.dense(), packed.dense(), atol=1e-6)
    assert packed.blocks_kind is not None
    numbers: Array = dequantize(levels.blocks(), GGMLQuantizationType[packed.blocks_kind])
    return numbers


@pytest.mark.parametrize("less_one", [True, False])
def test_gptq_in_4_bits_is_its_formula_and_gguf_s_blocks(less_one: bool) -> None:
    folder, expected = gptq(4, less_one)
    packed = found(folder, Quantisation(Method.GPTQ, 4, less_one))
    assert np.allclose(packed.dense(), expected, atol=1e-6)
    assert np.allclose(by_blocks(packed), expected, atol=1e-3)  # minima are fp16
    assert packed.kind == "gptq 4-bit"
    assert packed.bytes == ROWS * COLUMNS // 2 + ROWS * 2 // 2 + ROWS * 2 * 2


def test_gptq_in_8_bits_around_the_middle_is_q8_0_blocks() -> None:
    folder, expected = gptq(8, middle=True)
    packed = found(folder, Quantisation(Method.GPTQ, 8))
    assert np.allclose(packed.dense(), expected, atol=1e-5)
    assert np.allclose(by_blocks(packed), expected, atol=1e-5)


def test_gptq_in_8_bits_with_zeros_of_its_own_has_no_blocks() -> None:
    folder, expected = gptq(8)
    packed = found(folder, Quantisation(Method.GPTQ, 8))
    assert np.allclose(packed.dense(), expected, atol=1e-5)
    assert packed.blocks_kind is None


def test_columns_in_another_order_are_unpacked_by_their_group() -> None:
    values, zeros, scales = draw(4)
    folder, _ = gptq(4)
    group_of = np.random.default_rng(3).permutation(np.arange(COLUMNS) // GROUP)
    folder["m.g_idx"] = torch.from_numpy(group_of.astype(np.int32))
    packed = found(folder, Quantisation(Method.GPTQ))
    centred = values.astype(np.float32) - zeros.astype(np.float32)[:, group_of]
    assert np.allclose(packed.dense(), centred * scales[:, group_of], atol=1e-6)
    assert packed.blocks_kind is None


def test_awq_holds_its_columns_in_an_order_of_its_own() -> None:
    values, zeros, scales = draw(4)
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def pack(rows: Array) -> torch.Tensor:
        return words(rows.reshape(len(rows), -1, 8)[..., order].reshape(len(rows), -1), 4)

    folder = Folder(
        {
            "m.qweight": pack(np.ascontiguousarray(values.T)),
            "m.qzeros": pack(np.ascontiguousarray(zeros.T)),
            "m.scales": torch.from_numpy(scales.T.copy()).half(),
        }
    )
    packed = found(folder, Quantisation(Method.AWQ))
    expected = weights(values, zeros, scales)
    assert np.allclose(packed.dense(), expected, atol=1e-6)
    assert np.allclose(by_blocks(packed), expected, atol=1e-3)


@pytest.mark.parametrize(("bits", "symmetric"), [(4, True), (4, False), (8, True)])
def test_packed_compressed_tensors_are_their_formula(bits: int, symmetric: bool) -> None:
    values, zeros, scales = draw(bits, middle=symmetric)
    folder = Folder(
        {
            "m.weight_packed": words(values, bits),
            "m.weight_scale": torch.from_numpy(scales).bfloat16(),
            "m.weight_shape": torch.tensor([ROWS, COLUMNS]),
        }
    )
    if not symmetric:
        folder["m.weight_zero_point"] = words(np.ascontiguousarray(zeros.T), bits).T.contiguous()
    packed = found(folder, Quantisation(Method.COMPRESSED_TENSORS, bits))
    rounded = torch.from_numpy(scales).bfloat16().float().numpy()
    expected = weights(values, zeros, rounded)
    assert np.allclose(packed.dense(), expected, atol=1e-5)
    assert np.allclose(by_blocks(packed), expected, atol=2e-3)


def test_plain_int8_with_a_scale_a_row_is_q8_0_blocks() -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(-128, 128, (ROWS, COLUMNS)).astype(np.int8)
    scales = rng.uniform(0.01, 0.1, (ROWS, 1)).astype(np.float16).astype(np.float32)
    folder = Folder(
        {"m.weight": torch.from_numpy(values), "m.weight_scale": torch.from_numpy(scales)}
    )
    packed = found(folder, Quantisation(Method.COMPRESSED_TENSORS, 8))
    assert np.allclose(packed.dense(), values * scales, atol=1e-6)
    assert np.allclose(by_blocks(packed), values * scales, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("m.weight_scale_inv", (2, 3)),  # blocks of 32 × 48, the last ones cut
        ("m.weight_scale", ()),
        ("m.weight_scale", (1,)),
        ("m.weight_scale", (ROWS, 1)),
        ("m.weight_scale", (ROWS,)),
        ("m.weight_scale", (ROWS, 4)),
    ],
)
def test_fp8_is_multiplied_by_the_scale_of_its_block_row_or_matrix(
    name: str, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    stored = torch.randn(ROWS, COLUMNS).to(torch.float8_e4m3fn)
    scale = torch.rand(shape) + 0.5
    folder = Folder({"m.weight": stored, name: scale})
    packed = found(folder, Quantisation(Method.FP8, 8, block=(32, 48)))
    expected = stored.float().numpy().copy()
    for row in range(ROWS):
        for column in range(COLUMNS):
            match shape:
                case (2, 3):
                    factor = scale[row // 32, column // 48]
                case (_, 4):
                    factor = scale[row, column // 32]
                case (height, *_) if height == ROWS:
                    factor = scale[row].reshape(())
                case _:
                    factor = scale.reshape(())
            expected[row, column] *= factor.item()
    assert np.allclose(packed.dense(), expected, atol=1e-6)
    assert packed.blocks_kind is None
    assert packed.kind == "FP8"


@pytest.mark.parametrize("nested", [False, True])
def test_nf4_codes_are_looked_up_and_scaled_block_by_block(nested: bool) -> None:
    rng = np.random.default_rng(11)
    table = np.sort(rng.uniform(-1, 1, 16)).astype(np.float32)
    codes = rng.integers(0, 16, (ROWS, COLUMNS), dtype=np.uint8)
    flat = codes.reshape(-1)
    blocks = flat.size // 64
    told = {"shape": [ROWS, COLUMNS], "blocksize": 64, "quant_type": "nf4"}
    folder = Folder(
        {
            "m.weight": torch.from_numpy((flat[::2] << 4) | flat[1::2])[:, None],
            "m.weight.quant_map": torch.from_numpy(table),
        }
    )
    if nested:
        inner = rng.uniform(0, 1, 256).astype(np.float32)
        outer = rng.uniform(0.5, 1, -(-blocks // 16)).astype(np.float32)
        stored = rng.integers(0, 256, blocks, dtype=np.uint8)
        absmax = inner[stored] * np.repeat(outer, 16)[:blocks] + np.float32(0.25)
        told |= {"nested_blocksize": 16, "nested_offset": 0.25}
        folder["m.weight.absmax"] = torch.from_numpy(stored)
        folder["m.weight.nested_absmax"] = torch.from_numpy(outer)
        folder["m.weight.nested_quant_map"] = torch.from_numpy(inner)
    else:
        absmax = rng.uniform(0.5, 1, blocks).astype(np.float32)
        folder["m.weight.absmax"] = torch.from_numpy(absmax)
    state = np.frombuffer(json.dumps(told).encode(), np.uint8).copy()
    folder["m.weight.quant_state.bitsandbytes__nf4"] = torch.from_numpy(state)
    packed = found(folder, Quantisation(Method.BITSANDBYTES))
    expected = (table[flat] * np.repeat(absmax, 64)).reshape(ROWS, COLUMNS)
    assert np.allclose(packed.dense(), expected, atol=1e-6)
    assert packed.kind == "NF4"


def test_a_matrix_that_is_stored_plainly_is_left_alone() -> None:
    folder = Folder({"m.weight": torch.zeros(ROWS, COLUMNS)})
    assert Unpacker(folder, Quantisation(Method.GPTQ)).find("m") is None
    assert Unpacker(folder, Quantisation(Method.FP8)).find("no_such") is None


@pytest.mark.parametrize("part", ["qzeros", "scales"])
def test_a_missing_part_is_named(part: str) -> None:
    folder, _ = gptq(4)
    del folder[f"m.{part}"]
    with pytest.raises(ModelError, match=rf"m\.{part} is missing"):
        Unpacker(folder, Quantisation(Method.GPTQ)).find("m")


def test_scales_that_do_not_fit_are_refused_with_both_shapes() -> None:
    folder, _ = gptq(4)
    folder["m.scales"] = torch.zeros(5, ROWS)
    with pytest.raises(ModelError, match=r"scales \[48, 5\] do not fit a matrix \[48, 128\]"):
        Unpacker(folder, Quantisation(Method.GPTQ)).find("m")
    eight = Folder({"m.weight": torch.zeros(ROWS, COLUMNS).to(torch.float8_e4m3fn)})
    with pytest.raises(ModelError, match=r"without m\.weight_scale"):
        Unpacker(eight, Quantisation(Method.FP8)).find("m")
    eight["m.weight_scale_inv"] = torch.zeros(3, 3)
    packed = Unpacker(eight, Quantisation(Method.FP8)).find("m")
    assert packed is not None
    with pytest.raises(ModelError, match=r"scales \[3, 3\] do not fit"):
        packed.dense()


def test_scales_beyond_fp16_are_refused_where_blocks_would_hold_them() -> None:
    folder, _ = gptq(4)
    folder["m.scales"] = torch.full((COLUMNS // GROUP, ROWS), 1e6)
    packed = found(folder, Quantisation(Method.GPTQ))
    assert np.isfinite(packed.dense()).all()
    with pytest.raises(ModelError, match="a scale that is not finite in fp16"):
        packed.levels().blocks()
