"""Rotary positions: the angle of each pair of a head at each position, with the scaling rules."""

from __future__ import annotations

import math

import torch

from core.model import RopeConfig, RopeScaling


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """Give the angle per position of each pair. Shapes: [D / 2].

    Source: RoFormer (arXiv 2104.09864) §3; scaling as in Hugging Face's `modeling_rope_utils`.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim  # [D / 2]
    frequencies = 1.0 / rope.theta**exponents
    match rope.scaling:
        case RopeScaling.NONE:
            return frequencies
        case RopeScaling.LINEAR:
            return frequencies / rope.factor
        case RopeScaling.LLAMA3:
            return _llama3(frequencies, rope)
        case RopeScaling.FACTORS:
            return frequencies / rope.factor / torch.tensor(rope.factors)


def _llama3(frequencies: torch.Tensor, rope: RopeConfig) -> torch.Tensor:
    """Stretch slow pairs by `factor`, leave fast ones, blend between. Source: Llama 3.1's code."""
    wavelengths = 2 * math.pi / frequencies  # [D / 2], in tokens
    low, high = rope.low_freq_factor, rope.high_freq_factor
    blend = (rope.original_max_position_tokens / wavelengths - low) / (high - low)
    blend = blend.clamp(0.0, 1.0)
    return (1 - blend) * frequencies / rope.factor + blend * frequencies


def rotations(frequencies: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Give cos and sin of a step's angles. Shapes: [2, T, 1, D / 2], to broadcast on heads."""
    angles = positions.float()[:, None, None] * frequencies  # [T, 1, D / 2]
    return torch.stack((angles.cos(), angles.sin()))


def rotate(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Turn x [T, H, D], halves paired, by `rotations`. Returns: x's shape."""
    cos, sin = turns  # [T, 1, D / 2] each
    first, second = x.chunk(2, dim=-1)  # [T, H, D / 2] each
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
