"""Broken model files: each gets one clear line, and costs neither memory nor time."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from core.errors import ModelError
from engine.checkpoint.huggingface import hf_name
from engine.checkpoint.locate import locate
from tests.model.families import build
from tests.model.test_gguf import split, write

MOST_BYTES = 8_000_000  # of Python's own memory while a file of a few kilobytes is refused
HUGE = 2**40


# ── GGUF, written byte by byte ────────────────────────────────────────────────────────────────


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int, items: bytes = b"") -> bytes:
    return entry(b"a.list", 9, struct.pack("<IQ", kind, count) + items)


def tensor(name: bytes, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dimensions + struct.pack("<IQ", kind, offset)


def gguf(
    body: bytes = b"",
    *,
    entries: int = 0,
    tensors: int = 0,
    version: int = 3,
    data: bytes = b"",
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + body
    return head + b"\0" * (-len(head) % 32) + data


ONE_TENSOR = tensor(b"t", (8,))
GGUF_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty or too short"),
    "one byte": (b"G", "empty or too short"),
    "magic alone": (b"GGUF", "0 are left"),
    "another magic": (b"GGML" + bytes(40), "does not begin with GGUF"),
    "a web page": (b"<!DOCTYPE html><html>Not found</html>", "does not begin with GGUF"),
    "a pointer of git lfs": (b"version https://git-lfs.github.com/spec/v1\n", "begin with GGUF"),
    "version 0": (gguf(version=0), "version 0"),
    "version 1": (gguf(version=1), "version 1"),
    "version 99": (gguf(version=99), "version 99"),
    "big-endian": (gguf(version=3 << 24), "big-endian"),
    "no counts": (b"GGUF" + struct.pack("<I", 3), "0 are left"),
    "2^40 entries": (gguf(entries=HUGE), "are left"),
    "2^64 - 1 tensors": (gguf(tensors=2**64 - 1), "are left"),
    "2^40 bytes in an array": (gguf(array(0, HUGE), entries=1), f"{HUGE} items"),
    "2^40 strings in an array": (gguf(array(8, HUGE), entries=1), f"{HUGE} items"),
    "2^63 floats in an array": (gguf(array(6, 2**63), entries=1), "items"),
    "40 floats beyond the end": (gguf(array(6, 40), entries=1), "40 items"),
    "more strings than bytes": (gguf(array(8, 100, text(b"x")), entries=1), "100 items"),
    "floats beyond the end": (gguf(array(6, 5), entries=1), "are left"),
    "arrays in an array": (gguf(array(9, 1, bytes(30)), entries=1), "arrays in an array"),
    "a string of 2^40 bytes": (gguf(text(b"key", HUGE), entries=1), "are left"),
    "a value of 2^60 bytes": (gguf(entry(b"k", 8, text(b"v", 2**60)), entries=1), "are left"),
    "a kind that is none": (gguf(entry(b"k", 77, bytes(8)), entries=1), "77"),
    "a key that is no text": (gguf(entry(b"\xff\xfe", 0, b"\1"), entries=1), "utf-8"),
    "a key twice": (gguf(entry(b"k", 0, b"\1") * 2, entries=2), "'k' is there twice"),
    "alignment 0": (
        gguf(entry(b"general.alignment", 4, bytes(4)), entries=1),
        "no power of two",
    ),
    "alignment 33": (
        gguf(entry(b"general.alignment", 4, struct.pack("<I", 33)), entries=1),
        "no power of two",
    ),
    "alignment that is a text": (
        gguf(entry(b"general.alignment", 8, text(b"32")), entries=1),
        "no power of two",
    ),
    "a tensor without dimensions": (gguf(tensor(b"t", ()), tensors=1), "0 dimensions"),
    "a tensor of 2^31 dimensions": (
        gguf(text(b"t") + struct.pack("<I", 2**31) + bytes(64), tensors=1),
        "dimensions",
    ),
    "a tensor of no rows": (gguf(tensor(b"t", (8, 0)), tensors=1, data=bytes(64)), "shape"),
    "a tensor beyond the end": (gguf(ONE_TENSOR, tensors=1), "behind the end"),
    "a tensor of 2^40 items": (gguf(tensor(b"t", (HUGE,)), tensors=1), "behind the end"),
    "a tensor whose size overflows": (
        gguf(tensor(b"t", (2**63, 2**63)), tensors=1),
        "behind the end",
    ),
    "an offset of 2^60": (
        gguf(tensor(b"t", (8,), offset=2**60), tensors=1, data=bytes(64)),
        "behind the end",
    ),
    "an offset that is not aligned": (
        gguf(tensor(b"t", (8,), offset=4), tensors=1, data=bytes(64)),
        "between two places",
    ),
    "two tensors in one place": (
        gguf(ONE_TENSOR + tensor(b"u", (8,)), tensors=2, data=bytes(64)),
        "lies within 't'",
    ),
    "a tensor twice": (gguf(ONE_TENSOR * 2, tensors=2, data=bytes(64)), "'t' is there twice"),
    "an unknown type": (gguf(tensor(b"t", (8,), kind=999), tensors=1), "999"),
    "a part of a block": (
        gguf(tensor(b"t", (33,), kind=2), tensors=1, data=bytes(64)),
        "blocks of 32",
    ),
    "no architecture": (gguf(), "architecture 'none named'"),
    "an architecture of lists": (
        gguf(entry(b"general.architecture", 0, b"\1"), entries=1),
        "architecture '1'",
    ),
}


def refused(path: Path, words: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ModelError) as failure:
            locate(str(path), 0).open()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    message = str(failure.value)
    assert words in message
    assert "\n" not in message
    assert peak < MOST_BYTES


@pytest.mark.parametrize("case", GGUF_FILES)
def test_a_broken_gguf_file_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    content, words = GGUF_FILES[case]
    (tmp_path / "m.gguf").write_bytes(content)
    refused(tmp_path / "m.gguf", words)


@pytest.fixture(scope="module")
def whole_gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "tiny.gguf"
    write(path, build("llama"), "llama")
    return path.read_bytes()


@pytest.mark.parametrize("share", [k / 20 for k in range(1, 20)])
def test_a_gguf_file_cut_anywhere_is_refused(
    share: float, whole_gguf: bytes, tmp_path: Path
) -> None:
    (tmp_path / "m.gguf").write_bytes(whole_gguf[: int(len(whole_gguf) * share)])
    refused(tmp_path / "m.gguf", "not a readable GGUF file")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (b"llama.block_count", struct.pack("<I", 10**9), "block_count is 1000000000"),
        (b"llama.block_count", struct.pack("<I", 0), "block_count is 0"),
        (b"llama.block_count", struct.pack("<I", 4), "tensors are missing"),
        (b"llama.block_count", struct.pack("<I", 2), "belong to no part"),
        (b"llama.embedding_length", struct.pack("<I", 96), "shape"),
        (b"llama.attention.head_count", struct.pack("<I", 0), "head_count is 0"),
        (b"llama.attention.head_count_kv", struct.pack("<I", 4), "evenly"),
        (b"llama.rope.freq_base", struct.pack("<f", 0.0), "freq_base is 0.0"),
        (b"llama.rope.freq_base", struct.pack("<f", float("nan")), "freq_base is nan"),
        (b"llama.attention.layer_norm_rms_epsilon", struct.pack("<f", -1), "is -1.0"),
    ],
)
def test_a_gguf_file_whose_numbers_lie_is_refused(
    key: bytes, value: bytes, words: str, whole_gguf: bytes, tmp_path: Path
) -> None:
    at = whole_gguf.index(text(key)) + len(text(key)) + 4
    (tmp_path / "m.gguf").write_bytes(whole_gguf[:at] + value + whole_gguf[at + 4 :])
    refused(tmp_path / "m.gguf", words)


# ── a Hugging Face directory ──────────────────────────────────────────────────────────────────


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    build("llama").save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
    ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
    ({"num_hidden_layers": 1e9}, "num_hidden_layers is 1000000000.0"),
    ({"num_hidden_layers": True}, "num_hidden_layers is True"),
    ({"num_hidden_layers": [3]}, "num_hidden_layers is [3]"),
    ({"num_hidden_layers": 2}, "belong to no part"),
    ({"num_attention_heads": 0}, "num_attention_heads is 0"),
    ({"num_attention_heads": 7, "head_dim": None}, "uneven"),
    ({"num_key_value_heads": 4}, "evenly"),
    ({"head_dim": 7}, "head_dim is 7"),
    ({"head_dim": -8}, "head_dim is -8"),
    ({"vocab_size": 10**12}, "vocab_size is"),
    ({"vocab_size": 272}, "embed: shape (273, 48), the config says (272, 48)"),
    ({"hidden_size": "48"}, "hidden_size is '48'"),
    ({"intermediate_size": 81}, "gate_proj: shape (80, 48)"),
    ({"max_position_embeddings": 0}, "max_position_embeddings is 0"),
    ({"max_position_embeddings": 2**50}, "max_position_embeddings is"),
    ({"rms_norm_eps": "NaN"}, "rms_norm_eps is 'NaN'"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
    ({"rms_norm_eps": float("inf")}, "rms_norm_eps is inf"),
    ({"rms_norm_eps": 0}, "rms_norm_eps is 0"),
    ({"rope_parameters": {"rope_theta": 0}}, "rope_theta is 0"),
    ({"rope_parameters": {"rope_theta": float("inf")}}, "rope_theta is inf"),
    ({"rope_parameters": {"rope_type": "linear", "factor": 0}}, "factor is 0"),
    ({"rope_parameters": [1]}, "describes no model"),
    ({"eos_token_id": "two"}, "eos_token_id is 'two'"),
    ({"eos_token_id": [1, None]}, "eos_token_id is [1, None]"),
    ({"bos_token_id": 1.5}, "bos_token_id is 1.5"),
    ({"architectures": {}}, "architecture none named"),
    ({"architectures": 5}, "describes no model"),
]


@pytest.mark.parametrize(("changes", "words"), CONFIGS, ids=str)
def test_a_config_whose_numbers_lie_is_refused(
    changes: dict[str, Any], words: str, directory: Path
) -> None:
    raw = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(raw | changes))
    refused(directory, words)


def _shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _index(folder: Path, weight_map: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def _store(folder: Path, **changes: torch.Tensor) -> None:
    state = {k: v.clone() for k, v in build("llama").state_dict().items() if k != "lm_head.weight"}
    save_file(state | changes, folder / "model.safetensors")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


EMBED = hf_name("embed")
BREAKINGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "config is no JSON": (lambda f: (f / "config.json").write_text("{"), "not JSON"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "not a JSON object"),
    "config is empty": (lambda f: (f / "config.json").write_text(""), "not JSON"),
    "config is no text": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe{}"), "not JSON"),
    "config is deep": (lambda f: (f / "config.json").write_text("[" * 100_000), "not JSON"),
    "config is a pipe": (lambda f: _pipe(f / "config.json"), "no config.json"),
    "config is a folder": (lambda f: _folder(f / "config.json"), "no config.json"),
    "weights are a pipe": (lambda f: _pipe(f / "model.safetensors"), "a pipe, not a file"),
    "weights are a folder": (lambda f: _folder(f / "model.safetensors"), "a directory, not a file"),
    "weights are empty": (lambda f: (f / "model.safetensors").write_bytes(b""), "not a readable"),
    "weights are cut": (lambda f: _shorten(f / "model.safetensors"), "not a readable"),
    "a header of 2^40 bytes": (
        lambda f: (f / "model.safetensors").write_bytes(struct.pack("<Q", HUGE) + bytes(90)),
        "not a readable",
    ),
    "an index that is none": (lambda f: _index(f, None), "has no weight_map"),
    "an index that names nothing": (lambda f: _index(f, {}), "has no weight_map"),
    "an index out of the folder": (lambda f: _index(f, {EMBED: "../x.safetensors"}), "names '../x"),
    "an index of numbers": (lambda f: _index(f, {EMBED: 5}), "names 5"),
    "a missing shard": (lambda f: _index(f, {EMBED: "b.safetensors"}), "b.safetensors: No such"),
    "a tensor too many": (lambda f: _store(f, more=torch.zeros(3)), "first more"),
    "integers for weights": (
        lambda f: _store(f, **{EMBED: torch.zeros(273, 48, dtype=torch.int8)}),
        "stored as I8",
    ),
    "a vector for a matrix": (
        lambda f: _store(f, **{EMBED: torch.zeros(273 * 48)}),
        "embed: shape",
    ),
}


@pytest.mark.parametrize("case", BREAKINGS)
def test_a_broken_directory_is_refused_in_one_line(case: str, directory: Path) -> None:
    breaking, words = BREAKINGS[case]
    breaking(directory)
    refused(directory, words)


def test_weights_that_the_index_does_not_name_are_never_opened(directory: Path) -> None:
    _index(directory, dict.fromkeys([EMBED], "model.safetensors"))
    (directory / "stray.safetensors").write_bytes(b"no safetensors")
    checkpoint = locate(str(directory), 0).open()
    expected = build("llama").state_dict()[EMBED]
    assert np.array_equal(checkpoint.read("embed").numpy(), expected.numpy())


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_refused_before_it_is_opened(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    make(tmp_path / "m.gguf")
    refused(tmp_path / "m.gguf", "not a file")


def test_a_part_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "tiny.gguf", build("llama"), "llama")
    first, second = split(tmp_path, 2)
    _pipe(second)
    refused(first, "a pipe, not a file")
