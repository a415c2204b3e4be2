"""Loads a prepared folder's tensors, memory-mapped, and counts what they take."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open

from core.model import ModelConfig, TensorRole

Weights = dict[str, torch.Tensor]  # by `TensorSpec.name`


def load_weights(folder: Path, config: ModelConfig) -> Weights:
    """Map the files of a verified folder.

    Cost: no copy; replicas of one model share the pages.
    Returns: exactly the tensors of `config.tensors()`, in that order.
    """
    found: Weights = {}
    for path in sorted(folder.glob("weights-*.safetensors")):
        with safe_open(path, framework="pt") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return {spec.name: found[spec.name] for spec in config.tensors()}


def allocated_bytes(weights: Weights, config: ModelConfig) -> dict[TensorRole, int]:
    """Sum the bytes of the tensors at hand by role: what the arithmetic's prediction must equal."""
    sums: dict[TensorRole, int] = {}
    for spec in config.tensors():
        sums[spec.role] = sums.get(spec.role, 0) + weights[spec.name].nbytes
    return sums
