"""GGUF files of each architecture, written from a Hugging Face model, give its logits back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFReader, GGUFWriter, TokenType
from transformers import PreTrainedModel

from core.errors import ModelError
from core.settings import ModelSettings
from core.step import StepPlan
from engine.checkpoint.gguf_file import gguf_name, halves_from_pairs
from engine.checkpoint.huggingface import hf_name
from engine.checkpoint.locate import locate
from engine.forward.batch import build_batch
from engine.forward.weights import load_weights
from engine.tokenizer.byte_pairs import byte_alphabet
from tests.model.families import build
from tests.model.preparing import prepare_rows
from tests.model.running import BLOCK_SIZE, Model, NativeModelUnderTest, sliced

PROMPT = tuple(range(1, 60))
ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "llama with linear rope": "llama",
    "llama with llama3 rope": "llama",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path / "cache"))


def pairs_from_halves(values: np.ndarray, heads: int) -> np.ndarray:
    """Order rows as llama.cpp's converter does. Source: `LlamaModel.permute` there."""
    shape = values.shape
    rows = values.reshape(heads, 2, shape[0] // heads // 2, *shape[1:])
    return rows.swapaxes(1, 2).reshape(shape)


def write(path: Path, model: PreTrainedModel, arch: str, **texts: str) -> None:
    """Write a model as a GGUF file, the way llama.cpp's converter lays it out."""
    config, state = model.config, model.state_dict()
    writer = GGUFWriter(path, texts.get("architecture", arch))
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
    if config.rope_parameters["rope_type"] == "linear":
        writer.add_string(f"{arch}.rope.scaling.type", texts.get("rope", "linear"))
        writer.add_float32(f"{arch}.rope.scaling.factor", config.rope_parameters["factor"])
    if config.rope_parameters["rope_type"] == "llama3":
        head_dim = config.hidden_size // config.num_attention_heads
        writer.add_tensor("rope_freqs.weight", llama3_factors(config.rope_parameters, head_dim))
    add_tokenizer(writer, texts)
    names = {hf_name(name): name for name in our_names(config.num_hidden_layers)}
    for theirs, name in names.items():
        if theirs not in state or (theirs == "lm_head.weight" and config.tie_word_embeddings):
            continue
        values = state[theirs].numpy()
        if arch == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
            values = pairs_from_halves(values, heads[name.split(".")[2][0]])
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama3_factors(rule: dict[str, Any], head_dim: int) -> np.ndarray:
    """Compute what the converter writes. Source: `generate_extra_tensors` of its LlamaModel."""
    frequencies = rule["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
    factor, low, high = rule["factor"], rule["low_freq_factor"], rule["high_freq_factor"]
    factors = []
    for wavelength in 2 * np.pi / frequencies:
        turns = rule["original_max_position_embeddings"] / wavelength
        if turns > high:
            factors.append(1.0)
        elif turns < low:
            factors.append(factor)
        else:
            smooth = (turns - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def our_names(layers: int) -> list[str]:
    parts = ["input_norm", "post_norm", "q_norm", "k_norm"]
    for projection in ("q", "k", "v", "o", "gate", "up", "down"):
        parts += [f"{projection}_proj", f"{projection}_proj.bias"]
    in_layers = [f"layers.{layer}.{part}" for layer in range(layers) for part in parts]
    return ["embed", *in_layers, "final_norm", "lm_head"]


def add_tokenizer(writer: GGUFWriter, texts: dict[str, str]) -> None:
    writer.add_tokenizer_model(texts.get("tokenizer", "gpt2"))
    writer.add_tokenizer_pre(texts.get("pre", "qwen2"))
    writer.add_token_list([*byte_alphabet(), "ab", "<|end|>"])
    writer.add_token_types([TokenType.NORMAL] * 257 + [TokenType.CONTROL])
    writer.add_token_merges(texts.get("merges", "a b").splitlines())
    writer.add_eos_token_id(257)


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_a_gguf_file_gives_the_logits_of_its_source(family: str, tmp_path: Path) -> None:
    oracle = build(family)
    path = tmp_path / "tiny.gguf"
    write(path, oracle, ARCHITECTURES[family])
    found = prepare_rows(ModelSettings(model=str(path)))
    assert (found.config.name, found.config.eos_token_ids) == ("tiny", (257,))
    assert found.config.parameters == sum(p.numel() for p in oracle.parameters())
    ours = Model.of(found.config, load_weights(found.dir, found.config))
    logits = ours.logits(StepPlan((sliced(PROMPT, 0, 0, len(PROMPT)),)), ours.kv(4))[0]
    with torch.inference_mode():
        expected = oracle(torch.tensor([PROMPT])).logits[0, -1]
    assert (logits - expected).abs().max() < 1e-4 * expected.abs().max()
    native = NativeModelUnderTest.of(str(path)).network(num_blocks=4)
    plan = StepPlan((sliced(PROMPT, 0, 0, len(PROMPT)),))
    logits = native.forward(native.prepare(build_batch(plan, BLOCK_SIZE))).logits
    assert (logits[0] - expected).abs().max() < 1e-4 * expected.abs().max()


def split(folder: Path, parts: int) -> list[Path]:
    """Write a model in several parts, as `llama-gguf-split` does."""
    whole = GGUFReader(folder / "tiny.gguf")
    paths = [folder / f"tiny-{i:05}-of-{parts:05}.gguf" for i in range(1, parts + 1)]
    for number, path in enumerate(paths):
        writer = GGUFWriter(path, "llama")
        if number == 0:
            for key, field in whole.fields.items():
                if not key.startswith("GGUF.") and key != "general.architecture":
                    kind, *inner = field.types
                    writer.add_key_value(key, field.contents(), kind, inner[-1] if inner else None)
        for key, value in (("no", number), ("count", parts)):
            writer.add_uint16(f"split.{key}", value)
        writer.add_int32("split.tensors.count", len(whole.tensors))
        for tensor in whole.tensors[number::parts]:
            writer.add_tensor(tensor.name, tensor.data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def test_a_split_file_is_one_model_whichever_part_is_named(tmp_path: Path) -> None:
    write(tmp_path / "tiny.gguf", build("llama with llama3 rope"), "llama")
    whole = locate(str(tmp_path / "tiny.gguf"), 0).open()
    paths = split(tmp_path, 3)
    sources = [locate(str(path), 0) for path in paths]
    assert {(s.name, s.identity, s.fingerprint) for s in sources} == {
        ("tiny", str(paths[0]), sources[0].fingerprint)
    }
    joined = sources[2].open()
    assert (joined.config, joined.files) == (whole.config, whole.files)
    for spec in whole.config.tensors():
        assert torch.equal(joined.read(spec.name), whole.read(spec.name))


def test_a_split_file_that_misses_a_part_is_refused_by_that_part_s_name(tmp_path: Path) -> None:
    write(tmp_path / "tiny.gguf", build("llama"), "llama")
    paths = split(tmp_path, 3)
    paths[1].unlink()
    with pytest.raises(ModelError, match=r"tiny-00002-of-00003\.gguf: this part is missing"):
        locate(str(paths[2]), 0)


def test_parts_under_each_other_s_names_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "tiny.gguf", build("llama"), "llama")
    first, second = split(tmp_path, 2)
    first.rename(tmp_path / "kept")
    second.rename(first)
    (tmp_path / "kept").rename(second)
    with pytest.raises(ModelError, match=r"part 1 of 2 .counted from 0., by its name part 0 of 2"):
        locate(str(first), 0).open()


def test_a_part_under_another_name_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "tiny.gguf", build("llama"), "llama")
    first, _ = split(tmp_path, 2)
    first.rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelError, match="part 0 of 2 "):
        locate(str(tmp_path / "renamed.gguf"), 0).open()


def test_the_row_order_of_llama_files_is_undone() -> None:
    rows = np.arange(2 * 8 * 3).reshape(16, 3)
    assert (halves_from_pairs(pairs_from_halves(rows, 2), 2) == rows).all()
    assert pairs_from_halves(rows, 2)[:4, 0].tolist() == [0, 12, 3, 15]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"architecture": "gemma"}, "GGUF architecture 'gemma' is not supported"),
        ({"tokenizer": "t5"}, r"GGUF tokenizer 't5' is not supported \(only gpt2, llama\)"),
        ({"tokenizer": "llama"}, r"lacks 'tokenizer\.ggml\.scores'"),
        ({"pre": "deepseek-llm"}, "pre-tokenizer 'deepseek-llm' is not supported"),
        ({"rope": "yarn"}, "rope scaling 'yarn' is not supported"),
        ({"merges": ""}, r"lacks 'tokenizer\.ggml\.merges'"),
    ],
    ids=str,
)
def test_what_we_do_not_run_is_refused_by_name(
    texts: dict[str, str], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "other.gguf"
    write(path, build("llama with linear rope"), "llama", **texts)
    with pytest.raises(ModelError, match=words):
        prepare_rows(ModelSettings(model=str(path)))


@pytest.mark.parametrize("content", [b"", b"not a GGUF file at all, but long enough to look at"])
def test_a_file_that_is_no_gguf_is_a_model_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="not a readable GGUF file"):
        prepare_rows(ModelSettings(model=str(path)))


def test_a_gguf_file_cut_short_is_a_model_error(tmp_path: Path) -> None:
    path = tmp_path / "short.gguf"
    write(path, build("llama"), "llama")
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelError, match="not a readable GGUF file"):
        prepare_rows(ModelSettings(model=str(path)))
