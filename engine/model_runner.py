"""Runs a step plan on the model: lay out, forward, sample. It knows no queues, owns no blocks."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from core.step import StepPlan, StepResult
from engine.batch import build_batch
from engine.kvstore import KVStore
from engine.model import Decoder
from engine.ops import Ops
from engine.outcome import outcome_of


class ModelRunner:
    """Implements `Runner`; owns the KV store."""

    def __init__(self, decoder: Decoder, ops: Ops, kv: KVStore) -> None:
        self._decoder, self._ops, self._kv = decoder, ops, kv

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        """See `Runner.execute`. A row with NaN fails alone: no slice reads another's slots."""
        batch = build_batch(plan, self._kv.block_size)
        attention = self._ops.plan_attention(batch, self._kv.block_size)
        prepared_ns = time.monotonic_ns()
        logits = self._decoder.forward(batch, attention, self._kv)  # [R, V]
        forwarded_ns = time.monotonic_ns()
        outcome = outcome_of(plan, logits)
        return replace(
            outcome,
            forward_ns=forwarded_ns - prepared_ns,
            sample_ns=time.monotonic_ns() - forwarded_ns,
        )
