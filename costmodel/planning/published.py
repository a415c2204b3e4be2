"""In how many bits a checkpoint was published, by its `config.json`. No weight is read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from core.anatomy.fields import MOST_WIDTH, Fields
from core.anatomy.read import text_part
from core.formats import MatrixFormat, Storage, WeightFormat
from costmodel.planning.sizes import Kept, Width

_BITS: Final[Mapping[str, int]] = MappingProxyType({"float32": 32, "bfloat16": 16, "float16": 16})
_SHORT: Final[Mapping[str, str]] = MappingProxyType(
    {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
)
_MXFP4_BITS: Final = 4.25  # 4 a weight, and 8 for the exponent of 32: OCP MX 1.0, section 5.2


def served_width(fields: Fields) -> Width | None:
    """Give the width that `serve` takes of a model that it runs: its own, 16 bits as fp16.

    None where the checkpoint is quantised. Where a matrix has numbers beyond the range of fp16,
    `serve` keeps it in fp32: only its weights tell.
    """
    if fields.part("quantization_config"):
        return None
    wide = _dtype(fields) == "float32"
    storage = Storage(MatrixFormat.FP32 if wide else MatrixFormat.FP16, panels=True)
    return Width(WeightFormat.NATIVE, 32 if wide else 16, storage)


def published_width(fields: Fields) -> Width:
    """Give the width that the weights are published in.

    Raises:
        ModelError: a type or a quantisation that is not known here.
    """
    method = fields.part("quantization_config") or text_part(fields).part("quantization_config")
    if method is None:
        dtype = _dtype(fields)
        return Width(_SHORT[dtype], _BITS[dtype])
    name = method.word("quant_method")
    if name == "fp8":
        return Width("fp8, tables in 16 bits", 8, kept=Kept(experts_only=False))
    if name == "mxfp4":
        return Width("mxfp4, all but experts in 16 bits", _MXFP4_BITS, kept=Kept(experts_only=True))
    if name in ("gptq", "awq"):
        bits = method.count("bits", most=8)
        group = method.count("group_size", most=MOST_WIDTH, default=128)
        stored = bits + (16 + bits) / group  # a scale and a zero point for each group
        return Width(f"{name}, tables in 16 bits", stored, kept=Kept(experts_only=False))
    raise method.wrong("quant_method", "fp8, mxfp4, gptq or awq: name the width with --weights")


def _dtype(fields: Fields) -> str:
    """Read the type of the weights; a file that does not say it is taken for bf16."""
    for part in (text_part(fields), fields):
        for name in ("dtype", "torch_dtype"):
            if (dtype := part.word(name)) is not None:
                if dtype not in _BITS:
                    known = ", ".join(_BITS)
                    raise part.wrong(name, f"one of {known}: name the width with --weights")
                return dtype
    return "bfloat16"
