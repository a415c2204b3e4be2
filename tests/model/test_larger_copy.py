"""A checkpoint that is held in more bytes than it has is said so, with the file's own numbers."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from msgspec import structs
from transformers import LlamaConfig, LlamaForCausalLM

from core.formats import Backend, CheckpointBytes, WeightFormat
from core.inputs.quantities import scaled
from core.machine import Peak, Peaks, PeakSource
from core.settings import EngineSettings, KVSettings, ModelSettings
from core.wire import Ready
from engine.checkpoint.tokenizer import byte_tokenizer
from engine.load.load import load_engine
from engine.prepare.packing import PanelPacker
from engine.prepare.prepare import PreparedModel, prepare
from engine.prepare.rows import RowPacker
from server.cli.copy_warning import copy_warning
from server.cli.start_screen import start_screen
from tests.model import test_gguf

BYTES_PER_S = 1e9
PEAKS = Peaks(
    dram=Peak(BYTES_PER_S, PeakSource.GIVEN),
    cache=None,
    cache_bytes=0,
    flops=Peak(1e18, PeakSource.GIVEN),
    arithmetic="fp32",
)
CONFIG = LlamaConfig(
    vocab_size=272,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path / "cache"))


def random_blocks(kind: GGMLQuantizationType, rows: int, columns: int) -> np.ndarray:
    """Draw rows of blocks; gguf quantises few types itself, and any bits but the scales will do."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    try:
        values = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
        return gguf.quantize(values * np.float32(0.02), kind)
    except NotImplementedError:
        return np.zeros((rows, columns // block * size), np.uint8)


def write_gguf(path: Path, matrices: str, head: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a model whose layers and embedding have one type, and its head another."""
    add = GGUFWriter.add_tensor

    def add_quantised(writer: GGUFWriter, name: str, values: np.ndarray) -> None:
        if values.ndim == 1:
            add(writer, name, values)
            return
        kind = GGMLQuantizationType[head if name == "output.weight" else matrices]
        add(writer, name, random_blocks(kind, *values.shape), raw_dtype=kind)

    monkeypatch.setattr(GGUFWriter, "add_tensor", add_quantised)
    test_gguf.write(path, LlamaForCausalLM(CONFIG), "llama")
    monkeypatch.undo()
    monkeypatch.setenv("FLOORLINE_CACHE", str(path.parent / "cache"))
    return path


def step_bytes(path: Path) -> int:
    """Sum a file's tensors by its own reader, less the embedding table."""
    tensors = GGUFReader(path).tensors
    return sum(int(t.n_bytes) for t in tensors if t.name != "token_embd.weight")


def prepared(model: Path, weights: WeightFormat = WeightFormat.NATIVE) -> PreparedModel:
    return prepare(ModelSettings(model=str(model)), PanelPacker(weights), lambda _: None)


def ready(
    model: Path, weights: WeightFormat | None = None, backend: Backend = Backend.AUTO
) -> Ready:
    """Load an engine as its process does; its peaks are given."""
    settings = EngineSettings(
        model=ModelSettings(model=str(model), weights=weights),
        kv=KVSettings(num_kv_blocks=4),
        backend=backend,
        threads=1,
        peak_bandwidth=BYTES_PER_S,
        peak_flops=1e18,
    )
    engine = load_engine(settings, lambda _: None)
    return structs.replace(engine.ready, peaks=PEAKS)


def held_bytes(model: Ready) -> int:
    return sum(size for role, size in model.weight_bytes.items() if role != "embedding")


@pytest.mark.parametrize(
    ("matrices", "head", "expanded"),
    [
        ("Q4_K", "Q6_K", {"Q4_K", "Q6_K"}),
        ("Q4_1", "Q6_K", {"Q6_K"}),
        ("Q5_K", "Q5_K", {"Q5_K"}),
        ("Q4_0", "Q8_0", {"Q4_0"}),
        ("BF16", "Q5_0", {"Q5_0"}),
    ],
)
def test_expanded_blocks_are_said_with_the_file_s_own_bytes(
    matrices: str, head: str, expanded: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "m.gguf", matrices, head, monkeypatch)
    told, of_file = ready(path), step_bytes(path)
    assert told.checkpoint is not None
    assert told.checkpoint.step_bytes == of_file
    assert {one.kind for one in told.checkpoint.expansions} == expanded
    assert all(one.held_bytes > one.file_bytes for one in told.checkpoint.expansions)
    text = "\n".join(copy_warning(told))
    for size in (of_file, held_bytes(told)):
        assert f"{scaled(size)}B" in text
    token_bytes = told.kv_bytes // (told.num_blocks * told.block_size)  # written by each step
    floor_ms = (of_file + token_bytes) / BYTES_PER_S * 1e3
    assert f"{floor_ms:.3g} ms for the checkpoint's bytes" in text
    assert all(f"{kind} held as" in text for kind in expanded)
    assert "in Q4_1 or Q8_0" in text
    shown = [" ".join(line.split()) for line in start_screen(told, "m", "http://x").splitlines()]
    assert [line for line in shown if line.startswith("WARNING ")] == [
        f"WARNING {line}" for line in copy_warning(told)
    ]


@pytest.mark.parametrize(("matrices", "head"), [("Q4_1", "Q8_0"), ("Q8_0", "Q8_0"), ("F16", "F16")])
def test_a_file_that_keeps_its_blocks_is_told_nothing(
    matrices: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "m.gguf", matrices, head, monkeypatch)
    told = ready(path)
    assert told.checkpoint == CheckpointBytes(step_bytes(path))
    assert held_bytes(told) == step_bytes(path)
    assert copy_warning(told) == []
    assert "WARNING" not in start_screen(told, "m", "http://x")


def test_a_start_from_the_cache_says_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "m.gguf", "Q4_K", "Q6_K", monkeypatch)
    first = prepared(path).checkpoint
    lines: list[str] = []
    model = ModelSettings(model=str(path))
    again = prepare(model, PanelPacker(WeightFormat.NATIVE), lines.append)
    assert lines == []
    assert again.checkpoint == first
    assert len(first.expansions) == 2


def test_a_width_that_is_asked_for_is_said_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "m.gguf", "Q4_1", "Q4_1", monkeypatch)
    text = "\n".join(copy_warning(ready(path, WeightFormat.INT8)))
    assert "Q4_1 held as int8" in text
    assert "--weights native, which holds Q4_1" in text
    assert copy_warning(ready(path, WeightFormat.NATIVE)) == []


def test_what_helps_is_smaller_than_what_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "m.gguf", "Q4_K", "Q6_K", monkeypatch)
    advice = copy_warning(ready(path))[-1]
    for asked in (WeightFormat.INT8, WeightFormat.INT4):
        assert f"--weights {asked}, which reads {scaled(held_bytes(ready(path, asked)))}B" in advice
    smaller = copy_warning(ready(path, WeightFormat.INT4))
    assert not any("--weights int" in line for line in smaller)


def directory(folder: Path, dtype: torch.dtype, largest: float) -> Path:
    model = LlamaForCausalLM(CONFIG).to(dtype)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.down_proj.weight[0, 0] = largest
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer(("<|end|>",))))
    return folder


def directory_bytes(folder: Path) -> int:
    config = json.loads((folder / "config.json").read_text())
    table = 2 * config["vocab_size"] * config["hidden_size"]
    header = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(header[:8], "little")
    described = json.loads(header[8 : 8 + size])
    described.pop("__metadata__", None)
    ends = [entry["data_offsets"] for entry in described.values()]
    return sum(end - begin for begin, end in ends) - table


def test_a_16_bit_directory_held_in_fp32_is_said_too(tmp_path: Path) -> None:
    model = directory(tmp_path / "m", torch.bfloat16, largest=1.0)
    told = ready(model, backend=Backend.TORCH)
    text = "\n".join(copy_warning(told))
    assert "BF16 held as fp32" in text
    assert f"{scaled(directory_bytes(model))}B of it" in text
    assert "--weights fp16" in text
    assert "--weights int8" not in text, "the torch path has none"
    assert copy_warning(ready(model)) == [], "the kernels hold it in fp16"


def test_bf16_beyond_the_range_of_fp16_is_said_and_fp16_not_advised(tmp_path: Path) -> None:
    model = directory(tmp_path / "m", torch.bfloat16, largest=1e5)
    text = "\n".join(copy_warning(ready(model)))
    assert "BF16 held as fp32" in text
    assert "--weights fp16" not in text
    assert "--weights int8" in text


def test_rows_for_torch_are_counted_without_padding(tmp_path: Path) -> None:
    model = directory(tmp_path / "m", torch.float16, largest=1.0)
    found = prepare(ModelSettings(model=str(model)), RowPacker(WeightFormat.FP16), lambda _: None)
    assert found.checkpoint == CheckpointBytes(directory_bytes(model))
