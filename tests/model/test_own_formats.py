"""What `--weights native` will store is known before anything is packed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from core.formats import KVFormat, MatrixFormat, WeightFormat
from core.settings import ModelSettings
from costmodel.planning.sizes import Width, sums_of
from engine.checkpoint.locate import locate
from engine.checkpoint.source import KEPT_BLOCKS
from engine.forward.weights import allocated_bytes, load_weights
from engine.prepare.own_formats import own_storage
from engine.prepare.packing import PanelPacker
from engine.prepare.prepare import prepare
from engine.tokenizer.byte_pairs import byte_tokenizer
from kernels.gguf_blocks import repack
from tests.model.families import build
from tests.unit.kernels.file_blocks import draw

HUGE = 1e5  # beyond fp16, within bf16


def checkpoint_of(dtype: torch.dtype, folder: Path) -> str:
    """Write a small model, one number of its first layer's down_proj being `HUGE`."""
    model = build("llama").to(dtype)
    if dtype is not torch.float16:
        with torch.no_grad():
            model.model.layers[0].mlp.down_proj.weight[0, 0] = HUGE
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer(())))
    return str(folder)


@pytest.mark.parametrize(("kind", "expected"), KEPT_BLOCKS.items())
def test_a_block_that_is_kept_becomes_the_format_that_was_foreseen(
    kind: str, expected: MatrixFormat
) -> None:
    raw, _ = draw(kind, 16, 256)
    assert repack(raw, kind).format is expected


def assert_foreseen(model: str) -> MatrixFormat:
    """Hold the storage told beforehand against what is packed.

    Returns: the format of the first layer's down_proj.
    """
    told = locate(model, seed=0).open()
    storage = own_storage(told)
    prepared = prepare(ModelSettings(model=model), PanelPacker(WeightFormat.NATIVE), lambda _: None)
    assert storage == prepared.storage
    loaded = allocated_bytes(load_weights(prepared.dir, told.config), told.config)
    width = Width.of("native", told.config, storage)
    planned = sums_of(told.config, width, Width.parse(KVFormat.FP16)).stored_bytes
    assert planned == sum(loaded.values())
    return storage.format_of("layers.0.down_proj")


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (torch.float32, MatrixFormat.FP32),
        (torch.float16, MatrixFormat.FP16),
        (torch.bfloat16, MatrixFormat.FP32),
    ],
)
def test_a_hugging_face_checkpoint_s_formats_are_foreseen(
    dtype: torch.dtype, kind: MatrixFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path / "cache"))
    assert assert_foreseen(checkpoint_of(dtype, tmp_path / "model")) is kind


def test_a_gguf_file_s_mix_is_foreseen() -> None:
    assert assert_foreseen("smollm2-135m") is MatrixFormat.INT4_G32
