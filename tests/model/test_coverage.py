"""The cost model covers every byte that is allocated, in every format, on every path."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from core.errors import SettingsError
from core.formats import Backend, KVFormat, WeightFormat
from core.settings import EngineSettings, KVSettings, ModelSettings
from engine.forward.attention import KV_DTYPES
from engine.load.load import load_engine
from engine.prepare.rows import FORMATS
from engine.tokenizer.byte_pairs import byte_tokenizer
from telemetry.engine.model import engine_model
from tests.model.families import build

PATHS = [
    *((Backend.TORCH, *formats) for formats in product(FORMATS, KV_DTYPES)),
    *((Backend.NATIVE, *formats) for formats in product(WeightFormat, KVFormat)),
]
FAMILIES = {"tied head": "llama", "sliding window": "mistral", "biases": "qwen2"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Hugging Face directories of random models."""
    folders = {}
    for name, family in FAMILIES.items():
        folders[name] = folder = tmp_path_factory.mktemp("checkpoint")
        build(family).save_pretrained(folder)
        (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer(())))
    return folders


def settings_of(
    model: str, backend: Backend, weights: WeightFormat, kv: KVFormat
) -> EngineSettings:
    return EngineSettings(
        model=ModelSettings(model=model, weights=weights, kv_dtype=kv),
        kv=KVSettings(num_kv_blocks=10),
        threads=1,
        peak_bandwidth=1e10,
        peak_flops=1e11,
        backend=backend,
    )


@pytest.mark.parametrize(("backend", "weights", "kv"), PATHS)
@pytest.mark.parametrize("model", ["tinygpt", *FAMILIES])
def test_every_byte_is_predicted(
    model: str,
    backend: Backend,
    weights: WeightFormat,
    kv: KVFormat,
    folders: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path))
    settings = settings_of(str(folders.get(model, model)), backend, weights, kv)
    engine = load_engine(settings, progress=lambda _: None)
    known = engine_model(engine.ready)
    assert known.coverage == {"weights": 1.0, "kv": 1.0}
    assert known.exact
    assert engine.ready.backend == backend
    assert engine.ready.isa


def test_the_torch_path_refuses_an_int8_kv_store_by_its_flag() -> None:
    settings = settings_of("tinygpt", Backend.TORCH, WeightFormat.FP32, KVFormat.INT8)
    with pytest.raises(
        SettingsError, match=r"--kv-dtype int8: the torch path has fp32, fp16 alone"
    ):
        load_engine(settings, progress=lambda _: None)
