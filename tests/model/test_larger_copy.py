"""A checkpoint that is held in more bytes than it has is said so, with the file's own numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from gguf import GGUFReader
from msgspec import structs
from transformers import LlamaForCausalLM

from core.formats import Backend, CheckpointBytes, WeightFormat
from core.inputs.quantities import scaled
from core.machine import Peak, Peaks, PeakSource
from core.settings import EngineSettings, KVSettings, ModelSettings
from core.wire import Ready
from engine.load.load import load_engine
from engine.prepare.packing import PanelPacker
from engine.prepare.prepare import PreparedModel, prepare
from engine.prepare.rows import RowPacker
from engine.tokenizer.byte_pairs import byte_tokenizer
from server.cli.copy_warning import copy_warning
from server.cli.start_screen import start_screen
from tests.model.gguf_writing import CONFIG, write_gguf

BYTES_PER_S = 1e9
PEAKS = Peaks(
    dram=Peak(BYTES_PER_S, PeakSource.GIVEN),
    cache=None,
    cache_bytes=0,
    flops=Peak(1e18, PeakSource.GIVEN),
    arithmetic="fp32",
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path / "cache"))


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
        ("Q2_K", "Q3_K", {"Q2_K", "Q3_K"}),
        ("Q4_1", "Q3_K", {"Q3_K"}),
        ("IQ2_XXS", "IQ2_XXS", {"IQ2_XXS"}),
        ("IQ3_S", "Q8_0", {"IQ3_S"}),
        ("BF16", "Q2_K", {"Q2_K"}),
    ],
)
def test_expanded_blocks_are_said_with_the_file_s_own_bytes(
    matrices: str, head: str, expanded: set[str], tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "m.gguf", matrices, head)
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
    assert "a file in Q4_K_M" in text
    shown = [" ".join(line.split()) for line in start_screen(told, "m", "http://x").splitlines()]
    assert [line for line in shown if line.startswith("WARNING ")] == [
        f"WARNING {line}" for line in copy_warning(told)
    ]


@pytest.mark.parametrize(
    ("matrices", "head"),
    [
        *(("Q4_1", "Q8_0"), ("Q8_0", "Q8_0"), ("F16", "F16"), ("Q4_0", "Q6_K"), ("Q4_1", "Q6_K")),
        *(("Q4_K", "Q6_K"), ("Q5_K", "Q6_K"), ("Q6_K", "Q6_K"), ("Q5_0", "Q8_0"), ("Q5_1", "Q5_1")),
        *(("IQ4_NL", "Q6_K"), ("IQ4_XS", "Q6_K"), ("MXFP4", "Q8_0")),
    ],
)
def test_a_file_that_keeps_its_blocks_is_told_nothing(
    matrices: str, head: str, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "m.gguf", matrices, head)
    told = ready(path)
    assert told.checkpoint == CheckpointBytes(step_bytes(path))
    assert held_bytes(told) == step_bytes(path)
    assert copy_warning(told) == []
    assert "WARNING" not in start_screen(told, "m", "http://x")


def test_a_start_from_the_cache_says_it_too(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "Q2_K", "Q3_K")
    first = prepared(path).checkpoint
    lines: list[str] = []
    model = ModelSettings(model=str(path))
    again = prepare(model, PanelPacker(WeightFormat.NATIVE), lines.append)
    assert lines == []
    assert again.checkpoint == first
    assert len(first.expansions) == 2


def test_a_width_that_is_asked_for_is_said_too(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "Q4_1", "Q4_1")
    text = "\n".join(copy_warning(ready(path, WeightFormat.INT8)))
    assert "Q4_1 held as int8" in text
    assert "--weights native, which holds Q4_1" in text
    assert copy_warning(ready(path, WeightFormat.NATIVE)) == []


def test_what_helps_is_smaller_than_what_is_held(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "Q2_K", "Q3_K")
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
