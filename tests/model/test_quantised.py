"""A checkpoint that its maker quantised keeps its bits where we have them, and is read rightly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from core.errors import ModelError
from core.formats import MatrixFormat, WeightFormat
from core.model import TensorRole
from core.settings import ModelSettings
from engine.checkpoint.huggingface import source
from engine.checkpoint.tinygpt import SPECIAL_TOKENS
from engine.prepare.packing import PanelPacker
from engine.prepare.prepare import PreparedModel, prepare
from engine.tokenizer.byte_pairs import byte_tokenizer, to_json
from tests.unit.engine.unpack.test_unpack import words

Tensors = dict[str, torch.Tensor]
Quantise = Callable[[str, np.ndarray], Tensors]
GROUP = 32


def llama() -> LlamaForCausalLM:
    """Build a tiny model whose sizes are whole groups, the same one each time."""
    torch.manual_seed(3)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 260, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, eos_token_id=0))


def levels(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round to 0…15 around 8: values [N, K], scales [N, G] in fp16."""
    grouped = weights.reshape(len(weights), -1, GROUP)
    scales = (np.abs(grouped).max(axis=2) / 7).astype(np.float16)
    values = np.rint(grouped / scales.astype(np.float32)[..., None]) + 8
    return values.clip(0, 15).astype(np.uint8).reshape(weights.shape), scales


def gptq(stem: str, weights: np.ndarray) -> Tensors:
    values, scales = levels(weights)
    zeros = np.full((scales.shape[1], len(weights)), 7, np.uint8)  # less one
    return {
        f"{stem}.qweight": words(values, 4).T.contiguous(),
        f"{stem}.qzeros": words(zeros, 4),
        f"{stem}.scales": torch.from_numpy(scales.T.copy()),
        f"{stem}.g_idx": torch.arange(weights.shape[1], dtype=torch.int32) // GROUP,
    }


def compressed(stem: str, weights: np.ndarray) -> Tensors:
    values, scales = levels(weights)
    return {
        f"{stem}.weight_packed": words(values, 4),
        f"{stem}.weight_scale": torch.from_numpy(scales),
        f"{stem}.weight_shape": torch.tensor(weights.shape),
    }


def fp8(stem: str, weights: np.ndarray) -> Tensors:
    return {
        f"{stem}.weight": torch.from_numpy(weights / 0.5).to(torch.float8_e4m3fn),
        f"{stem}.weight_scale_inv": torch.full((1, 1), 0.5),
    }


W4 = {"group_0": {"weights": {"num_bits": 4, "group_size": GROUP}}}
METHODS: dict[str, tuple[Quantise, dict[str, object], MatrixFormat, str]] = {
    "gptq": (gptq, {"bits": 4}, MatrixFormat.INT4_G32, "gptq 4-bit"),
    "compressed-tensors": (
        compressed,
        {"format": "pack-quantized", "config_groups": W4},
        MatrixFormat.INT4_G32,
        "compressed-tensors 4-bit",
    ),
    "fp8": (fp8, {"weight_block_size": [128, 128]}, MatrixFormat.INT8_G32, "FP8"),
}


def write(folder: Path, method: str) -> Path:
    """Save a tiny llama, its projections quantised."""
    llama().save_pretrained(folder)
    (folder / "tokenizer.json").write_text(to_json(byte_tokenizer(SPECIAL_TOKENS)))
    quantise, told, _, _ = METHODS[method]
    stored: Tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            stored |= quantise(name.removesuffix(".weight"), tensor.float().numpy())
        else:
            stored[name] = tensor
    save_file(stored, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method} | told
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def prepared(folder: Path, weights: WeightFormat) -> PreparedModel:
    return prepare(ModelSettings(model=str(folder)), PanelPacker(weights), progress=lambda _: None)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("method", METHODS)
def test_projections_keep_their_bits_or_get_eight(method: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "model", method)
    _, _, expected, kind = METHODS[method]
    checkpoint = source(folder).open()
    found = prepared(folder, WeightFormat.NATIVE)
    for spec in found.config.tensors():
        if spec.name.endswith("_proj"):
            assert checkpoint.kind(spec.name) == kind
            assert found.storage.format_of(spec.name) is expected
        elif spec.role is not TensorRole.VECTOR:
            assert found.storage.format_of(spec.name) is MatrixFormat.FP32


@pytest.mark.parametrize("method", ["gptq", "compressed-tensors"])
def test_blocks_hold_the_very_levels(method: str, tmp_path: Path) -> None:
    checkpoint = source(write(tmp_path / "model", method)).open()
    for spec in checkpoint.config.tensors():
        if not spec.name.endswith("_proj"):
            continue
        blocks = checkpoint.blocks(spec.name)
        assert blocks is not None
        assert blocks.kind == "Q4_1"
        raw = blocks.take(0, spec.rows).reshape(spec.rows, -1, 20)
        scales, minima = (
            np.ascontiguousarray(raw[..., i : i + 2]).view(np.float16) for i in (0, 2)
        )
        nibbles = np.concatenate([raw[..., 4:] & 15, raw[..., 4:] >> 4], axis=-1)
        weights = nibbles * scales.astype(np.float32) + minima.astype(np.float32)
        dense = checkpoint.read(spec.name).numpy()
        np.testing.assert_allclose(weights.reshape(dense.shape), dense, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_unpacked_in_fp32_it_is_near_what_was_quantised(method: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "model", method)
    plain = {name: t.float().numpy() for name, t in llama().state_dict().items()}
    checkpoint = source(folder).open()
    weights = checkpoint.read("layers.0.up_proj").numpy()
    original = plain["model.layers.0.mlp.up_proj.weight"]
    lost = np.linalg.norm(weights - original) / np.linalg.norm(original)
    assert 0 < lost < 0.15
    (spec,) = [s for s in checkpoint.config.tensors() if s.name == "layers.0.up_proj"]
    assert torch.equal(torch.cat(list(checkpoint.checked_runs(spec))), torch.from_numpy(weights))
    assert prepared(folder, WeightFormat.FP32).storage.matrices is MatrixFormat.FP32


def test_a_part_that_is_missing_is_one_line(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "gptq")
    stored = load_file(folder / "model.safetensors")
    del stored["model.layers.0.mlp.up_proj.scales"]
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"layers\.0\.mlp\.up_proj\.scales is missing"):
        source(folder).open()
