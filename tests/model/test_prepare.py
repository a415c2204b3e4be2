"""The cache of converted models: used when whole and fresh, rebuilt when not, never half there."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from core.errors import ModelError
from core.formats import WeightFormat
from core.model import TensorRole, TensorSpec
from core.settings import ModelSettings
from costmodel.storage import stored_bytes, weight_bytes
from engine.checkpoint import source
from engine.checkpoint.tinygpt import CONFIG
from engine.forward.weights import allocated_bytes, load_weights
from engine.prepare.packing import PanelPacker
from engine.prepare.prepare import PreparedModel, prepare
from engine.prepare.rows import FORMATS, RowPacker
from tests.model.families import build
from tests.model.preparing import prepare_rows

TINYGPT = ModelSettings(model="tinygpt")


class Told(list[str]):
    """Progress lines; none means that nothing was converted."""

    def __call__(self, message: str) -> None:
        self.append(message)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A small Hugging Face directory."""
    folder = tmp_path / "tiny-llama"
    build("llama").save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def again(settings: ModelSettings) -> tuple[PreparedModel, Told]:
    told = Told()
    return prepare_rows(settings, told), told


def test_the_second_start_converts_nothing() -> None:
    first, told = again(TINYGPT)
    assert told
    second, told = again(TINYGPT)
    assert not told
    assert first == second
    assert second.config == CONFIG


@pytest.mark.parametrize(
    "name", ["weights-00000.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"]
)
def test_a_changed_byte_is_found_and_repaired(name: str) -> None:
    path = prepare_rows(TINYGPT, Told()).dir / name
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    _, told = again(TINYGPT)
    assert told
    assert path.read_bytes() == good


def test_a_truncated_file_is_found_and_repaired() -> None:
    path = prepare_rows(TINYGPT, Told()).dir / "weights-00000.safetensors"
    good = path.read_bytes()
    os.truncate(path, len(good) // 2)
    again(TINYGPT)
    assert path.read_bytes() == good


@pytest.mark.parametrize("content", [None, "", "[]", '{"files": {}, "fingerprint": ""}'])
def test_a_missing_or_broken_manifest_means_a_rebuild(content: str | None) -> None:
    path = prepare_rows(TINYGPT, Told()).dir / "manifest.json"
    good = path.read_text()
    path.unlink()
    if content is not None:
        path.write_text(content)
    _, told = again(TINYGPT)
    assert told
    assert path.read_text() == good


def test_a_missing_file_is_found_and_repaired() -> None:
    path = prepare_rows(TINYGPT, Told()).dir / "tokenizer.json"
    path.unlink()
    again(TINYGPT)
    assert path.is_file()


def test_a_source_that_changed_is_converted_again(directory: Path) -> None:
    settings = ModelSettings(model=str(directory))
    before, told = again(settings)
    assert told
    weights = load_file(directory / "model.safetensors")
    weights["model.norm.weight"] *= 2
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    after, told = again(settings)
    assert told
    assert after.dir == before.dir
    assert torch.equal(
        load_weights(after.dir, after.config)["final_norm"], weights["model.norm.weight"]
    )


def test_each_seed_and_each_format_has_its_own_folder() -> None:
    variants = [
        TINYGPT,
        ModelSettings(model="tinygpt", seed=1),
        ModelSettings(model="tinygpt", weights=WeightFormat.FP16),
    ]
    folders = [prepare_rows(variant, Told()).dir for variant in variants]
    assert len(set(folders)) == 3
    one, other, half = (load_weights(folder, CONFIG) for folder in folders)
    assert not torch.equal(one["embed"], other["embed"])
    assert torch.equal(one["embed"].half(), half["embed"])


def test_starters_at_once_convert_once_and_all_find_it_whole() -> None:
    with ThreadPoolExecutor(4) as starters:
        results = list(starters.map(again, [TINYGPT] * 4))
    assert len({found.dir for found, _ in results}) == 1
    assert sorted(bool(told) for _, told in results) == [False, False, False, True]


def _prepare_and_say(answers: multiprocessing.SimpleQueue[tuple[str, int]]) -> None:
    found, told = again(TINYGPT)
    answers.put((str(found.dir), len(told)))


@pytest.mark.slow
def test_starting_processes_convert_once_and_all_find_it_whole(cache: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.SimpleQueue[tuple[str, int]] = context.SimpleQueue()
    starters = [context.Process(target=_prepare_and_say, args=(answers,)) for _ in range(3)]
    for starter in starters:
        starter.start()
    results = [answers.get() for _ in starters]
    for starter in starters:
        starter.join()
    assert len({folder for folder, _ in results}) == 1
    assert sorted(told > 0 for _, told in results) == [False, False, True]
    assert not list((cache / "models").glob("*.partial"))


def test_what_a_crashed_conversion_left_is_cleared(cache: Path) -> None:
    folder = prepare_rows(TINYGPT, Told()).dir
    partial = folder.with_suffix(".partial")
    folder.rename(partial)  # as if the process had died before its last rename
    (partial / "half-written").touch()
    found, told = again(TINYGPT)
    assert told
    assert found.dir == folder
    assert not partial.exists()
    assert not (folder / "half-written").exists()


def test_a_conversion_that_fails_leaves_nothing(cache: Path, directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"not a safetensors file")
    with pytest.raises(ModelError, match="not a readable safetensors file"):
        prepare_rows(ModelSettings(model=str(directory)), Told())
    assert [path.suffix for path in (cache / "models").iterdir()] == [".lock"]


def test_a_cache_that_cannot_be_written_is_a_model_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="could not be prepared"):
        prepare_rows(TINYGPT, Told())


def test_a_disk_without_room_is_told_before_a_byte_is_written(cache: Path) -> None:
    asked: list[Path] = []

    def room(folder: Path) -> int:
        asked.append(folder)
        assert not list(folder.iterdir()), "nothing is written yet"
        return 1_000_000

    packer = RowPacker(WeightFormat.FP32)
    with pytest.raises(ModelError, match=r"takes 23\.4 MB .* has 1 MB free: make room"):
        prepare(TINYGPT, packer, Told(), room)
    assert len(asked) == 1
    assert [path.suffix for path in (cache / "models").iterdir()] == [".lock"]


@pytest.mark.parametrize("weights", [WeightFormat.FP16, WeightFormat.INT8, WeightFormat.INT4])
def test_a_matrix_of_any_size_is_packed_in_the_memory_of_a_few_runs(
    weights: WeightFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_bytes = 2**20
    monkeypatch.setattr(source, "_RUN_BYTES", run_bytes)
    spec = TensorSpec("embed", 16_384, 512, TensorRole.EMBEDDING)
    asked: list[int] = []

    def take(first: int, last: int) -> torch.Tensor:
        asked.append(4 * spec.columns * (last - first))
        return torch.ones(last - first, spec.columns)

    checkpoint = source.Checkpoint(
        CONFIG, {}.__getitem__, {}, rows=lambda _: source.Rows((spec.rows, spec.columns), take)
    )
    packer = PanelPacker(weights)
    kind = packer.storage_of(checkpoint).matrices
    tracemalloc.start()
    written = sum(run.nbytes for run in packer.runs(spec, checkpoint, kind))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert written == stored_bytes(spec.rows, spec.columns, kind, panels=True)
    assert max(asked) == run_bytes
    assert sum(asked) == 32 * run_bytes
    assert peak < 8 * run_bytes


def test_a_read_only_cache_serves_what_it_holds_and_nothing_else(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = again(TINYGPT)
    opened = Path.open

    def read_only(path: Path, mode: str = "r", *given: object, **named: object) -> object:
        if "w" in mode:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, mode, *given, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", read_only)
    second, told = again(TINYGPT)
    assert (second, told) == (first, [])
    with pytest.raises(ModelError, match=r"could not be prepared in .*Read-only file system"):
        prepare_rows(ModelSettings(model=str(directory)), Told())


def test_a_number_too_large_for_fp16_is_refused_by_tensor_name(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 4] = 1e6
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"layers\.1\.up_proj.*--weights fp32"):
        prepare_rows(ModelSettings(model=str(directory), weights=WeightFormat.FP16), Told())
    prepare_rows(ModelSettings(model=str(directory)), Told())


def test_bfloat16_becomes_what_was_asked_for(directory: Path) -> None:
    weights = {k: v.bfloat16() for k, v in load_file(directory / "model.safetensors").items()}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    for weight_format, dtype in (
        (WeightFormat.FP32, torch.float32),
        (WeightFormat.FP16, torch.float16),
    ):
        found = prepare_rows(ModelSettings(model=str(directory), weights=weight_format), Told())
        loaded = load_weights(found.dir, found.config)
        assert torch.equal(loaded["embed"], weights["model.embed_tokens.weight"].to(dtype))
        assert loaded["final_norm"].dtype is torch.float32


def test_a_sharded_directory_equals_the_one_file(directory: Path, tmp_path: Path) -> None:
    sharded = tmp_path / "sharded"
    build("llama").save_pretrained(sharded, max_shard_size="50KB")
    (sharded / "tokenizer.json").write_text("{}")
    assert (sharded / "model.safetensors.index.json").is_file()
    one, other = (prepare_rows(ModelSettings(model=str(d)), Told()) for d in (directory, sharded))
    ours, theirs = (load_weights(p.dir, p.config) for p in (one, other))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_tensor_of_another_shape_than_the_config_says_is_refused(directory: Path) -> None:
    raw = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(raw | {"intermediate_size": 64}))
    with pytest.raises(ModelError, match=r"gate_proj: shape \(80, 48\)"):
        prepare_rows(ModelSettings(model=str(directory)), Told())


@pytest.mark.parametrize("weights", list(FORMATS))
def test_predicted_bytes_equal_the_tensors_of_tinygpt(weights: WeightFormat) -> None:
    found = prepare_rows(ModelSettings(model="tinygpt", weights=weights), Told())
    loaded = load_weights(found.dir, found.config)
    assert sum(tensor.numel() for tensor in loaded.values()) == found.config.parameters == 5_838_080
    assert allocated_bytes(loaded, found.config) == weight_bytes(found.config, found.storage)
    assert set(weight_bytes(found.config, found.storage)) == set(TensorRole) - {
        TensorRole.TIED,
        TensorRole.EXPERT,
        TensorRole.TABLE,
    }


def test_nothing_by_that_name_is_a_model_error() -> None:
    with pytest.raises(ModelError, match=r"no preset .* directory, GGUF file or hub id"):
        prepare_rows(ModelSettings(model="no-such-thing"), Told())
