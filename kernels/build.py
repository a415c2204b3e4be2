"""Build a native model from a description and packed weights. No file is read here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.model import ModelConfig
from floorline._native import NativeModel
from kernels.packing import PackedMatrix


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeOptions:
    """How a native model runs."""

    num_blocks: int
    block_size: int
    max_tokens: int  # of a step
    max_positions: int  # of a request
    threads: int
    kv_format: str = "fp16"
    activations: str = "int8"  # of integer weights; "fp32" is the exact twin
    isa: str = ""  # the fastest that this processor has


def describe(
    config: ModelConfig, inverse_frequencies: npt.NDArray[Any], options: NativeOptions
) -> dict[str, object]:
    """Give what the native side reads of a model: `src/description.h` reads these keys, no others.

    A key that only one of the two sides knows is refused by name when the model is built.
    """
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_heads": config.num_heads,
        "num_kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "norm_eps": config.norm_eps,
        "activation": str(config.activation),
        "windows": [window or 0 for window in config.sliding_window],
        "inverse_frequencies": np.asarray(inverse_frequencies, np.float32).tolist(),
    } | asdict(options)


def build_model(
    config: ModelConfig,
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
    return NativeModel(weights, describe(config, inverse_frequencies, options))
