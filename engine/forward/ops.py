"""The seam between the decoder and the arithmetic that it is written in; `TorchOps` is one such.

The native kernels stand behind another seam, `Network`: they run a whole step in one call. An
implementation may pack matrices and prepare a step's attention as it likes: both come back to
it as they left it. Activations are fp32 whatever weights and KV are stored in.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from core.model import Activation
from engine.forward.kvstore import KVLayer
from engine.forward.step_tensors import StepTensors

Matrix = Any  # a weight as the implementation packed it
Attention = Any  # a step's attention as the implementation laid it out


class Ops(Protocol):
    """Shapes: T tokens, H heads, K kv-heads, D head dim, N × K of a matrix, V vocabulary."""

    backend: str
    isa: str

    def pack(self, weight: torch.Tensor) -> Matrix:
        """Make a stored matrix [N, K] ready for `linear`, once, at load."""

    def embed(self, table: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        """Read rows of the input embedding [V, hidden] as fp32. Returns: [T, hidden]."""

    def linear(
        self, x: torch.Tensor, matrix: Matrix, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Multiply x [T, K] by a packed [N, K], transposed. Returns: [T, N]."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Scale the last dimension to a mean square of 1, then by `weight`. Returns: x's shape."""

    def rotate(self, x: torch.Tensor, rotations: torch.Tensor) -> torch.Tensor:
        """Turn x [T, H, D], halves paired, by `rotations` [2, T, 1, D / 2]. Returns: x's shape."""

    def gate(self, gate: torch.Tensor, up: torch.Tensor, activation: Activation) -> torch.Tensor:
        """Give activation(gate) × up, both [T, intermediate]. Returns: the same shape."""

    def write_kv(
        self, layer: KVLayer, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """Store keys and values [T, K, D] at slots [T]. Mutates: the layer."""

    def plan_attention(self, batch: StepTensors, block_size: int) -> Attention:
        """Lay a step's attention out, once for all layers; on the host, before the forward."""

    def attend(
        self, queries: torch.Tensor, layer: KVLayer, attention: Attention, window: int | None
    ) -> torch.Tensor:
        """Attend from queries [T, H, D] to the KV store, each token to itself and before it.

        `window` is how many tokens a query sees, itself among them; None is all.
        Returns: [T, H, D].
        """
