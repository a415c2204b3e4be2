"""GGUF files of each architecture, written from a Hugging Face model, give its logits back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter, TokenType
from transformers import PreTrainedModel

from core.errors import ModelError
from core.settings import ModelSettings
from core.step import StepPlan
from engine.checkpoint.gguf_file import gguf_name, halves_from_pairs
from engine.checkpoint.huggingface import hf_name
from engine.checkpoint.tokenizer import byte_alphabet
from engine.forward.weights import load_weights
from tests.model.families import build
from tests.model.preparing import prepare_rows
from tests.model.running import Model, sliced

PROMPT = tuple(range(1, 60))
ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "llama with linear rope": "llama",
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


def test_the_row_order_of_llama_files_is_undone() -> None:
    rows = np.arange(2 * 8 * 3).reshape(16, 3)
    assert (halves_from_pairs(pairs_from_halves(rows, 2), 2) == rows).all()
    assert pairs_from_halves(rows, 2)[:4, 0].tolist() == [0, 12, 3, 15]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"architecture": "gemma"}, "GGUF architecture 'gemma' is not supported"),
        ({"tokenizer": "llama"}, "GGUF tokenizer 'llama' is not supported"),
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
