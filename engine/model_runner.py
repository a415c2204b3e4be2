"""Runs a step plan on the model: lay out, forward, sample. It knows no queues, owns no blocks."""

from __future__ import annotations

import time

import torch

from core.request import RequestId
from core.step import StepPlan, StepResult
from engine.batch import build_batch
from engine.kvstore import KVStore
from engine.model import Decoder
from engine.ops import Ops
from engine.sampler import Sampled, sample

NOT_FINITE = "the model gave a number that is not finite"


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
        rows = [piece for piece in plan.slices if piece.samples]
        drawn = sample(
            logits,
            [piece.request.sampling for piece in rows],
            [piece.start + piece.length for piece in rows],
        )
        tokens, failed = _by_request([piece.request.id for piece in rows], drawn)
        return StepResult(
            tokens,
            failed,
            forward_ns=forwarded_ns - prepared_ns,
            sample_ns=time.monotonic_ns() - forwarded_ns,
        )


def _by_request(
    ids: list[RequestId], drawn: Sampled
) -> tuple[dict[RequestId, int], dict[RequestId, str]]:
    outcomes = list(zip(ids, drawn.tokens, drawn.finite, strict=True))
    tokens = {request_id: token for request_id, token, finite in outcomes if finite}
    failed = {request_id: NOT_FINITE for request_id, _, finite in outcomes if not finite}
    return tokens, failed
