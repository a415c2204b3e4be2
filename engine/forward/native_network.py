"""The native kernels behind the runner's seam: one call a step. No arithmetic lives here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from core.formats import Storage
from core.model import ModelConfig, TensorRole
from engine.forward.batch import StepBatch
from engine.forward.network import Forward
from engine.forward.rotary import inverse_frequencies
from engine.forward.weights import Weights, allocated_bytes
from kernels import NativeOptions, PackedMatrix, build_model


class _Prepared(NamedTuple):
    """A step's layout as `NativeModel.step` takes it, in the order of its arguments."""

    token_ids: np.ndarray  # [T] int32, as all
    positions: np.ndarray  # [T]
    slots: np.ndarray  # [T]
    block_tables: np.ndarray  # [B, M]
    query_starts: np.ndarray  # [B + 1]
    logit_rows: np.ndarray  # [R]


class NativeNetwork:
    """Implements `Network`; the native model owns weights and KV store."""

    backend = "native"

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        storage: Storage,
        options: NativeOptions,
    ) -> None:
        """Copy weights, packed as `storage` says, into a native model.

        Raises:
            kernels.Unsupported: the kernels do not run such a model.
        """
        self._model = build_model(
            config,
            _packed(config, weights, storage),
            inverse_frequencies(config.rope, config.head_dim).numpy(),
            options,
        )
        self.isa, self.block_size = self._model.isa, options.block_size
        self.kv_bytes = self._model.kv_bytes
        self.weight_bytes = allocated_bytes(weights, config)
        copied = self._model.weight_bytes
        assert sum(self.weight_bytes.values()) == copied, "the native model copied other bytes"
        self._logits = torch.empty(1, config.vocab_size)  # grows to the widest step
        self._rows = self._logits.numpy()

    def prepare(self, batch: StepBatch) -> _Prepared:
        return _Prepared(
            np.array(batch.token_ids, np.int32),
            np.array(batch.positions, np.int32),
            np.array(batch.slots, np.int32),
            batch.padded_tables(np.int32),
            np.array(batch.query_starts, np.int32),
            np.array(batch.logit_rows, np.int32),
        )

    def forward(self, prepared: _Prepared) -> Forward:
        rows = len(prepared.logit_rows)
        if rows > len(self._rows):
            self._logits = torch.empty(rows, self._logits.shape[1])
            self._rows = self._logits.numpy()
        greatest = np.empty(rows, np.int32)
        self._model.step(*prepared, self._rows[:rows], greatest)
        return Forward(self._logits, greatest.tolist())


def _packed(
    config: ModelConfig, weights: Weights, storage: Storage
) -> dict[str, PackedMatrix | np.ndarray]:
    found: dict[str, PackedMatrix | np.ndarray] = {}
    for spec in config.tensors():
        data = weights[spec.name].numpy()
        if spec.role is TensorRole.VECTOR:
            found[spec.name] = data
        else:
            kind = storage.format_of(spec.name)
            found[spec.name] = PackedMatrix(data, spec.rows, spec.columns, kind)
    return found
