"""The seam between the runner and whatever computes a step: torch, or the native kernels."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from core.model import TensorRole
from engine.batch import StepBatch

Prepared = Any  # a batch as the network laid it out for itself


class Network(Protocol):
    """A model with its weights and its KV store, ready to run steps."""

    backend: str
    isa: str
    block_size: int
    weight_bytes: dict[TensorRole, int]  # allocated
    kv_bytes: int  # allocated

    def prepare(self, batch: StepBatch) -> Prepared:
        """Do what needs no weights, on the host, once for all layers."""

    def forward(self, prepared: Prepared) -> torch.Tensor:
        """Run a step's tokens through every layer. Mutates: the KV store at the batch's slots.

        Returns: logits [R, V], fp32; the next forward may reuse their memory.
        """
