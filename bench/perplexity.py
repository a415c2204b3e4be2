"""What each width costs in quality: perplexity on a fixed text, and greedy agreement.

    python -m bench.perplexity [--json FILE]

Every width runs on the native kernels. `fp32` weights and KV store are the oracle of what is
re-quantised; `native` with fp32 activations is the oracle of the very same weights with int8 ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bench.command import Command, start
from bench.native import BLOCK_SIZE, Bench, load
from core.formats import WeightFormat
from engine.checkpoint.locate import locate
from engine.checkpoint.source import TOKENIZER_FILE

TEXT = Path(__file__).with_name("perplexity.txt")
WINDOW = 512  # tokens that are scored together, each window from an empty context
GREEDY_TOKENS = 64
PROMPT_TOKENS = 32
RUNS = (
    (WeightFormat.FP32, "fp32", "fp32"),
    (WeightFormat.FP32, "fp32", "int8"),
    (WeightFormat.FP16, "fp32", "fp16"),
    (WeightFormat.INT8, "fp32", "fp16"),
    (WeightFormat.INT8, "int8", "fp16"),
    (WeightFormat.INT4, "fp32", "fp16"),
    (WeightFormat.INT4, "int8", "fp16"),
    (WeightFormat.NATIVE, "fp32", "fp16"),
    (WeightFormat.NATIVE, "int8", "fp16"),
    (WeightFormat.NATIVE, "int8", "int8"),
)


@dataclass(frozen=True, slots=True)
class Quality:
    """`agreement` is the part of 64 greedy tokens before the first that differs from fp32's."""

    weights: str
    activations: str
    kv: str
    perplexity: float
    agreement: float


def logits_of(bench: Bench, tokens: Sequence[int], start: int, every: bool) -> Any:
    """Run one step of one request in blocks 0, 1, 2 …: logits of all rows, or of the last."""
    positions = np.arange(start, start + len(tokens), dtype=np.int32)
    count = len(tokens) if every else 1
    rows = np.arange(len(tokens) - count, len(tokens), dtype=np.int32)
    logits = np.empty((count, bench.config.vocab_size), np.float32)
    blocks = np.arange(positions[-1] // BLOCK_SIZE + 1, dtype=np.int32)[None]
    starts = np.array([0, len(tokens)], np.int32)
    tokens_array = np.array(tokens, np.int32)
    greatest = np.empty(count, np.int32)
    bench.model.step(tokens_array, positions, positions, blocks, starts, rows, logits, greatest)
    return logits


def perplexity(bench: Bench, tokens: Sequence[int]) -> float:
    losses: list[float] = []
    for first in range(0, len(tokens) - 1, WINDOW):
        window = tokens[first : first + WINDOW + 1]
        logits = logits_of(bench, window[:-1], 0, every=True).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        chosen = logits[np.arange(len(window) - 1), window[1:]]
        losses.extend(np.log(np.exp(logits).sum(axis=1)) - chosen)
    return float(np.exp(np.mean(losses)))


def greedy(bench: Bench, prompt: Sequence[int]) -> list[int]:
    found: list[int] = []
    pending, start = list(prompt), 0
    for _ in range(GREEDY_TOKENS):
        token = int(logits_of(bench, pending, start, every=False).argmax())
        start += len(pending)
        pending = [token]
        found.append(token)
    return found


def agreement(found: Sequence[int], oracle: Sequence[int]) -> float:
    same = [a == b for a, b in zip(found, oracle, strict=True)]
    return (same.index(False) if False in same else len(same)) / len(same)


def options() -> Command:
    parser = Command("bench.perplexity", __doc__)
    parser.count("--threads", 2, "threads of the kernels")
    parser.file("--json", "the rows")
    return parser


def main() -> None:
    arguments = options().parse_args()
    text = locate("smollm2-135m", 0).open().files[TOKENIZER_FILE]
    tokens = Tokenizer.from_str(text).encode(TEXT.read_text()).ids
    prompts = [tokens[i : i + PROMPT_TOKENS] for i in range(0, len(tokens), WINDOW // 4)]
    prompts = [prompt for prompt in prompts if len(prompt) == PROMPT_TOKENS]
    oracle: list[list[int]] = []
    found = []
    print(f"{len(tokens)} tokens, {len(prompts)} prompts of {PROMPT_TOKENS}")
    for weights, activations, kv in RUNS:
        bench = load(weights, arguments.threads, activations=activations, kv_format=kv)
        continued = [greedy(bench, prompt) for prompt in prompts]
        oracle = oracle or continued
        same = float(np.mean([agreement(*pair) for pair in zip(continued, oracle, strict=True)]))
        quality = Quality(weights, activations, kv, perplexity(bench, tokens), same)
        found.append(quality)
        rise = quality.perplexity / found[0].perplexity - 1
        print(
            f"{weights:7s} activations {activations}  KV {kv}  perplexity {quality.perplexity:8.4f}"
            f"  ({rise:+.2%})  greedy agreement {same:.0%}",
            flush=True,
        )
    if arguments.json:
        rows = [asdict(quality) for quality in found]
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    start(main)
