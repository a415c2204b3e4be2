"""Build a native model from a description and packed weights. No file is read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kernels._native import NativeModel
from kernels.packing import PackedMatrix


class Decoder(Protocol):
    """What of a model's description the kernels read; `core.model.ModelConfig` has it all."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def norm_eps(self) -> float: ...
    @property
    def activation(self) -> str: ...
    @property
    def sliding_window(self) -> Sequence[int | None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeOptions:
    """How a native model runs. `max_positions` bounds a request, `max_tokens` a step."""

    num_blocks: int
    block_size: int
    max_tokens: int
    max_positions: int
    threads: int
    kv_format: str = "fp16"
    activations: str = "int8"  # of integer weights; "fp32" is the exact twin
    isa: str = ""  # the fastest that this processor has


def build_model(
    config: Decoder,
    weights: Mapping[str, PackedMatrix | npt.NDArray[Any]],
    inverse_frequencies: npt.NDArray[Any],
    options: NativeOptions,
) -> NativeModel:
    """Copy the weights into a native model.

    `weights` has the names of `ModelConfig.tensors`: matrices packed, norms and biases fp32 [N].
    `inverse_frequencies` [head_dim / 2] are those of the rotary positions, scaling included.

    Raises:
        Unsupported: these kernels do not run such a model; serve it another way.
        ValueError: a weight is missing, or is not of the size that the description gives.
    """
    return NativeModel(
        weights,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        norm_eps=config.norm_eps,
        activation=str(config.activation),
        windows=[window or 0 for window in config.sliding_window],
        inverse_frequencies=np.asarray(inverse_frequencies, np.float32).tolist(),
        num_blocks=options.num_blocks,
        block_size=options.block_size,
        kv_format=options.kv_format,
        max_tokens=options.max_tokens,
        max_positions=options.max_positions,
        activations=options.activations,
        threads=options.threads,
        isa=options.isa,
    )
