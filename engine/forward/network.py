"""The seam between the runner and whatever computes a step: torch, or the native kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from core.model import TensorRole
from engine.forward.batch import StepBatch

Prepared = Any  # a batch in the network's own layout


@dataclass(frozen=True, slots=True)
class Forward:
    """What a forward pass gives. Shapes: R rows, V vocabulary; rows past R are unused."""

    logits: torch.Tensor  # [≥ R, V] fp32; the next forward may reuse their memory
    # [R]: the first id of each row's greatest logit, -1 if that is NaN or infinite; None: not known
    greatest: Sequence[int] | None = None


class Network(Protocol):
    """A model with its weights and its KV store, ready to run steps."""

    backend: str
    isa: str
    block_size: int
    weight_bytes: dict[TensorRole, int]  # allocated
    kv_bytes: int  # allocated

    def prepare(self, batch: StepBatch) -> Prepared:
        """Do what needs no weights, on the host, once for all layers."""

    def forward(self, prepared: Prepared) -> Forward:
        """Run a step's tokens through every layer. Mutates: the KV store at the batch's slots."""
