"""Logits of every supported family against Hugging Face in fp32, however the tokens are sliced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from core.settings import ModelSettings
from core.step import StepPlan
from engine.checkpoint.tinygpt import SPECIAL_TOKENS
from engine.forward.batch import build_batch
from engine.forward.weights import load_weights
from engine.tokenizer.byte_pairs import byte_tokenizer, to_json
from tests.model.families import FAMILIES, build
from tests.model.preparing import prepare_rows
from tests.model.running import BLOCK_SIZE, Model, NativeModelUnderTest, sliced

TOLERANCE = 1e-4
PROMPTS = tuple(
    tuple(torch.randint(0, 97, (length,), generator=torch.Generator().manual_seed(length)).tolist())
    for length in (1, 2, 15, 16, 17, 33, 90, 200)
)


@dataclass
class Pair:
    """Our model and the same weights in Hugging Face's."""

    ours: Model
    oracle: torch.nn.Module
    folder: Path

    def expected(self, tokens: tuple[int, ...]) -> torch.Tensor:
        with torch.inference_mode():
            return self.oracle(torch.tensor([tokens])).logits[0, -1]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLOORLINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module", params=FAMILIES)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache: None
) -> Pair:
    """Save the family's model as a directory, and load it the way a user's would be."""
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    oracle = build(request.param)
    oracle.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(to_json(byte_tokenizer(SPECIAL_TOKENS)))
    prepared = prepare_rows(ModelSettings(model=str(folder)))
    weights = load_weights(prepared.dir, prepared.config)
    return Pair(Model.of(prepared.config, weights), oracle, folder)


def relative_error(ours: torch.Tensor, expected: torch.Tensor) -> float:
    return ((ours - expected).abs().max() / expected.abs().max()).item()


def test_each_prompt_alone_gives_the_oracles_logits(pair: Pair) -> None:
    for prompt in PROMPTS:
        kv = pair.ours.kv(16)
        plan = StepPlan((sliced(prompt, 0, 0, len(prompt)),))
        error = relative_error(pair.ours.logits(plan, kv)[0], pair.expected(prompt))
        assert error < TOLERANCE, len(prompt)


def test_the_native_kernels_give_the_oracles_logits(pair: Pair) -> None:
    native = NativeModelUnderTest.of(str(pair.folder))
    for prompt in PROMPTS:
        network = native.network(num_blocks=16)
        plan = StepPlan((sliced(prompt, 0, 0, len(prompt)),))
        logits = network.forward(network.prepare(build_batch(plan, BLOCK_SIZE))).logits
        assert relative_error(logits[0], pair.expected(prompt)) < TOLERANCE, len(prompt)


def test_all_prompts_in_one_step_give_the_oracles_logits(pair: Pair) -> None:
    kv = pair.ours.kv(16 * len(PROMPTS))
    slices = tuple(sliced(p, 16 * i, 0, len(p)) for i, p in enumerate(PROMPTS))
    logits = pair.ours.logits(StepPlan(slices), kv)
    for row, prompt in zip(logits, PROMPTS, strict=True):
        assert relative_error(row, pair.expected(prompt)) < TOLERANCE


def test_prefill_in_chunks_beside_decode_gives_the_oracles_logits(pair: Pair) -> None:
    """One prompt goes in chunks of 7 while another, longer one is decoded token by token."""
    chunked, decoded = PROMPTS[6], PROMPTS[7]
    kv = pair.ours.kv(32)
    half = len(decoded) // 2
    pair.ours.logits(StepPlan((sliced(decoded, 16, 0, half),)), kv)
    for step, start in enumerate(range(0, len(chunked), 7)):
        length = min(7, len(chunked) - start)
        slices = (sliced(chunked, 0, start, length), sliced(decoded, 16, half + step, 1))
        chunk_row, decode_row = pair.ours.logits(StepPlan(slices), kv)
        expected = pair.expected(chunked[: start + length])
        assert relative_error(chunk_row, expected) < TOLERANCE
        expected = pair.expected(decoded[: half + step + 1])
        assert relative_error(decode_row, expected) < TOLERANCE


def test_the_config_predicts_the_oracles_parameters(pair: Pair) -> None:
    assert pair.ours.config.parameters == sum(p.numel() for p in pair.oracle.parameters())
