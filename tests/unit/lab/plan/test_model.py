"""Which model a plan takes a name, a file or a directory for. No engine is asked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from core.errors import SettingsError
from core.formats import KVFormat, MatrixFormat, Storage
from costmodel.sums import ModelSums
from engine.checkpoint.hf_config import read_config
from lab.ask.model import find_model
from tests.unit.core.anatomy.test_published import GPT_OSS_20B, LLAMA_8B
from tests.unit.lab.plans import only, plan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    return tmp_path


@pytest.mark.parametrize("name", ["", "config.json"])
def test_a_config_alone_is_planned_by_the_sums_of_the_server(folder: Path, name: str) -> None:
    found = plan(str(folder / name), "--device", "h100")
    served = ModelSums.of(
        read_config(LLAMA_8B, {}, "x"), Storage(MatrixFormat.FP16, panels=True), KVFormat.FP16
    )
    assert found["model"]["weights"] == "native"
    assert found["model"]["weight_bytes"] == served.stored_bytes
    assert found["model"]["kv_bytes_per_token"] == served.kv_token_bytes
    assert only(found)["decode"]["weight_bytes"] == served.least_weight_bytes


def test_a_quantised_checkpoint_is_sized_as_it_is_published(tmp_path: Path) -> None:
    raw = GPT_OSS_20B | {"quantization_config": {"quant_method": "mxfp4"}}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    model = plan(str(tmp_path), "--device", "h100")["model"]
    experts = 24 * 32 * 3 * 2880 * 2880
    rest = model["parameters"] - experts  # in 16 bits, but norms, sinks and biases in 32
    assert 4.25 / 8 * experts + 2 * rest < model["weight_bytes"] < 4.25 / 8 * experts + 2.01 * rest
    assert model["weight_bytes"] < 14e9


def test_a_hub_id_is_found_in_the_local_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "hub" / "models--meta--llama" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    os.link(folder / "config.json", snapshot / "config.json")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert find_model("meta/llama").fields is not None
    with pytest.raises(SettingsError, match="no hub id in the local cache"):
        find_model("meta/other")


def test_a_model_that_is_not_there_is_told_before_a_device_that_is_missing(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"^model 'nosuch': no preset "):
        plan("nosuch")
    (folder / "config.json").unlink()
    with pytest.raises(SettingsError, match=r"no config\.json in this directory"):
        plan(str(folder))
    os.mkfifo(folder / "config.json")
    with pytest.raises(SettingsError, match="is no regular file"):
        plan(str(folder))
