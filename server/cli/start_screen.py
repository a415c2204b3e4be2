"""The screen that a start ends with: what is served, how large it is, how fast it could be."""

from __future__ import annotations

from typing import Final

from core.inputs.quantities import scaled
from core.machine import Peak
from core.wire import Ready
from costmodel.planning.capacity import batch_one_ceiling
from costmodel.sums import ModelSums
from server.cli.copy_warning import copy_warning

CEILING_CONTEXT_TOKENS: Final = 0  # quoted without KV: the weights alone


def start_screen(ready: Ready, name: str, url: str) -> str:
    """Write one screen; a peak that is not known is said to be unknown."""
    sums = ModelSums.of(ready.model, ready.storage, ready.kv_dtype)
    rows = [
        ("model", f"{name} ({ready.weights}, context {ready.max_model_len:,} tokens)"),
        ("parameters", f"{ready.model.parameters:,}"),
        ("weights", _bytes(sum(ready.weight_bytes.values()))),
        ("KV per token", f"{sums.kv_token_bytes:,} bytes ({ready.kv_dtype})"),
        (
            "KV store",
            f"{ready.num_blocks:,} blocks of {ready.block_size} tokens, {_bytes(ready.kv_bytes)}",
        ),
        ("bandwidth", _bandwidth(ready)),
        ("arithmetic", _peak(ready.peaks.flops, "FLOP/s") + f" in {ready.peaks.arithmetic}"),
        ("floor", _floor(ready, sums)),
        ("backend", f"{ready.backend} ({ready.isa}), {ready.threads} threads"),
        ("URL", url),
        *(("WARNING", line) for line in copy_warning(ready)),
    ]
    width = max(len(label) for label, _ in rows)
    return "\n".join(["", *(f"  {label:<{width}}  {text}" for label, text in rows), ""])


def _floor(ready: Ready, sums: ModelSums) -> str:
    ceiling = batch_one_ceiling(sums, ready.peaks, CEILING_CONTEXT_TOKENS)
    if ceiling is None:
        return "unknown: a peak is not known"
    return (
        f"{ceiling.floor_s * 1e3:.2f} ms per token at batch 1: {ceiling.tokens_per_s:,.0f} tokens/s"
    )


def _bandwidth(ready: Ready) -> str:
    text = _peak(ready.peaks.dram, "B/s")
    if ready.peaks.cache is None:
        return text
    cache = _peak(ready.peaks.cache, "B/s")
    return f"{text}; from cache ({_bytes(ready.peaks.cache_bytes)}) {cache}"


def _peak(peak: Peak | None, unit: str) -> str:
    return "unknown" if peak is None else f"{scaled(peak.per_s)}{unit} ({peak.source})"


def _bytes(size: int) -> str:
    return f"{scaled(size)}B"
