"""How numbers are stored: the widths of weights and of the KV store. No sizes are computed here."""

from __future__ import annotations

from enum import StrEnum


class WeightFormat(StrEnum):
    FP32 = "fp32"
    FP16 = "fp16"


class KVFormat(StrEnum):
    FP32 = "fp32"
    FP16 = "fp16"
