"""What else lies in a Hugging Face directory: tokenizer, template, special tokens; and hub ids."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from core.errors import ModelError
from core.settings import ModelSettings
from engine.checkpoint.locate import locate
from tests.model.families import build
from tests.model.preparing import prepare_rows


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny-llama"
    build("llama").save_pretrained(folder)
    (folder / "tokenizer.json").write_text('{"any": "thing"}')
    return folder


def prepared(folder: Path) -> Path:
    return prepare_rows(ModelSettings(model=str(folder))).dir


def write_config(folder: Path, **entries: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(entries))


def test_the_tokenizer_is_copied_as_it_is(directory: Path) -> None:
    assert (prepared(directory) / "tokenizer.json").read_text() == '{"any": "thing"}'


def test_special_tokens_are_texts_however_they_were_written(directory: Path) -> None:
    write_config(directory, bos_token={"content": "<s>", "lstrip": False}, eos_token="</s>")
    found = json.loads((prepared(directory) / "tokenizer_config.json").read_text())
    assert found == {"bos_token": "<s>", "eos_token": "</s>"}


def test_end_of_sequence_ids_are_the_union_of_all_that_name_one(directory: Path) -> None:
    tokens = [{"id": 7, "content": "<end>"}, {"id": 8, "content": "<turn>"}]
    (directory / "tokenizer.json").write_text(json.dumps({"added_tokens": tokens, "model": {}}))
    raw = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(raw | {"eos_token_id": 3}))
    (directory / "generation_config.json").write_text('{"eos_token_id": [3, 4]}')
    (directory / "special_tokens_map.json").write_text('{"eos_token": {"content": "<end>"}}')
    assert locate(str(directory), 0).open().config.eos_token_ids == (3, 4, 7)
    write_config(directory, eos_token="<turn>")
    assert locate(str(directory), 0).open().config.eos_token_ids == (3, 4, 8)


def test_a_model_without_any_end_of_sequence_says_so_at_each_load(directory: Path) -> None:
    raw = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(raw | {"eos_token_id": None}))
    (directory / "generation_config.json").unlink(missing_ok=True)
    for _ in range(2):
        said: list[str] = []
        prepare_rows(ModelSettings(model=str(directory)), said.append)
        assert any("no end-of-sequence token is named" in line for line in said)


@pytest.mark.parametrize(
    "template",
    ["plain", [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "plain"}]],
)
def test_a_template_in_the_tokenizers_config_is_found(directory: Path, template: Any) -> None:
    write_config(directory, chat_template=template)
    assert (prepared(directory) / "chat_template.jinja").read_text() == "plain"


def test_a_template_file_wins_over_the_config(directory: Path) -> None:
    write_config(directory, chat_template="from the config")
    (directory / "chat_template.jinja").write_text("from the file")
    assert (prepared(directory) / "chat_template.jinja").read_text() == "from the file"


def test_a_model_without_a_template_has_no_template_file(directory: Path) -> None:
    assert not (prepared(directory) / "chat_template.jinja").exists()


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("config.json", r"no config\.json"),
        ("model.safetensors", r"no \*\.safetensors"),
        ("tokenizer.json", r"no tokenizer\.json"),
    ],
)
def test_a_directory_that_lacks_a_file_is_refused(
    directory: Path, missing: str, words: str
) -> None:
    (directory / missing).unlink()
    with pytest.raises(ModelError, match=words):
        prepared(directory)


def test_a_directory_that_lacks_a_tensor_is_refused(directory: Path) -> None:
    raw = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(raw | {"num_hidden_layers": 4}))
    with pytest.raises(ModelError, match=r"9 tensors are missing, first layers\.3\.input_norm"):
        prepared(directory)


def test_a_hub_id_without_a_network_is_a_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="hub id 'nobody/nothing' could not be downloaded"):
        prepare_rows(ModelSettings(model="nobody/nothing"))


class Hub:
    """Holds repositories as lists of files; remembers what was fetched."""

    def __init__(self, folder: Path, files: dict[str, str]) -> None:
        self.folder, self.files, self.fetched = folder, files, set[str]()

    def list_repo_files(self, repo_id: str) -> list[str]:
        return list(self.files)

    def snapshot_download(self, repo_id: str, allow_patterns: list[str]) -> str:
        for name, content in self.files.items():
            if any(fnmatch(name, pattern) for pattern in allow_patterns):
                self.fetched.add(name)
                (self.folder / name).write_text(content)
        return str(self.folder)


def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> Hub:
    fake = Hub(tmp_path, files)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
    monkeypatch.setattr(huggingface_hub, "list_repo_files", fake.list_repo_files)
    return fake


def test_a_download_takes_exactly_the_files_that_the_index_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = json.dumps({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})
    needed = {"config.json": "{}", "model.safetensors.index.json": index}
    needed |= {"m-1.safetensors": "1", "m-2.safetensors": "2"}
    stray = {"consolidated.safetensors": "1", "model.bin": "3"}
    fake = hub(tmp_path, monkeypatch, needed | stray)
    assert locate("org/repo", 0).name == "org/repo"
    assert fake.fetched == set(needed)


def test_a_download_without_an_index_takes_the_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {"config.json": "{}", "model.safetensors": "1"}
    fake = hub(tmp_path, monkeypatch, needed | {"consolidated.safetensors": "1"})
    locate("org/repo", 0)
    assert fake.fetched == set(needed)


def test_a_kind_after_a_colon_takes_that_gguf_file_and_all_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {f"m-Q4_K_M-{i:05}-of-00002.gguf": "x" for i in (1, 2)}
    fake = hub(tmp_path, monkeypatch, parts | {"m-Q4_K.gguf": "x", "m-IQ4_K_M.gguf": "x"})
    assert locate("org/repo:q4_k_m", 0).name == "org/repo:q4_k_m"
    assert fake.fetched == set(parts)
    with pytest.raises(ModelError, match=r"no GGUF file named 'Q8_0'; there are: .*m-Q4_K\.gguf"):
        locate("org/repo:Q8_0", 0)
