"""Which quantisation a `config.json` names, and whether we unpack it. Reads no weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from core.errors import ModelError


class Method(StrEnum):
    """The names of `quantization_config.quant_method` that we unpack."""

    GPTQ = "gptq"
    AWQ = "awq"
    COMPRESSED_TENSORS = "compressed-tensors"
    FP8 = "fp8"
    BITSANDBYTES = "bitsandbytes"


@dataclass(frozen=True, slots=True)
class Quantisation:
    """What the tensors alone do not say."""

    method: Method
    bits: int = 4  # of GPTQ and AWQ, and of packed integers of compressed-tensors
    zero_is_stored_less_one: bool = True  # GPTQ's first format
    block: tuple[int, int] = (128, 128)  # rows and columns that share a scale, of FP8


_BRING: Final = "bring bf16 or fp16 weights, a GGUF file, or 4-bit GPTQ or AWQ"
_ALIASES: Final = {"compressed_tensors": Method.COMPRESSED_TENSORS}


def read_quantisation(config: Mapping[str, Any], name: str) -> Quantisation | None:
    """Read `quantization_config`; None where the weights are plain.

    Raises:
        ModelError: a method, a width or a layout that we do not unpack.
    """
    raw = config.get("quantization_config") or config.get("compression_config")
    if not raw:
        return None
    if not isinstance(raw, dict):
        raise ModelError(f"{name}: quantization_config is not an object")
    named = str(raw.get("quant_method", "not named"))
    method = _ALIASES.get(named, named)
    if method not in list(Method):
        raise ModelError(f"{name}: quantisation by {named!r} is not supported; {_BRING}")
    match Method(method):
        case Method.GPTQ:
            newer = raw.get("checkpoint_format", "gptq") == "gptq_v2"
            return Quantisation(Method.GPTQ, _bits(raw, name, (4, 8)), not newer)
        case Method.AWQ:
            if (version := str(raw.get("version", "gemm")).lower()) != "gemm":
                raise ModelError(f"{name}: AWQ weights laid out as {version!r} are not supported")
            return Quantisation(Method.AWQ, _bits(raw, name, (4,)))
        case Method.COMPRESSED_TENSORS:
            return _compressed(raw, name)
        case Method.BITSANDBYTES:
            if not raw.get("load_in_4bit", raw.get("_load_in_4bit", False)):
                raise ModelError(f"{name}: 8-bit bitsandbytes is not supported; {_BRING}")
            return Quantisation(Method.BITSANDBYTES)
        case Method.FP8:
            return Quantisation(Method.FP8, 8, block=_block(raw.get("weight_block_size"), name))


def _bits(raw: Mapping[str, Any], name: str, known: tuple[int, ...]) -> int:
    bits = raw.get("bits", raw.get("w_bit", 4))
    if bits not in known:
        method = raw["quant_method"]
        raise ModelError(f"{name}: {method} weights of {bits!r} bits are not supported; {_BRING}")
    return int(bits)


def _compressed(raw: Mapping[str, Any], name: str) -> Quantisation:
    packing = str(raw.get("format", ""))
    if packing not in ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized"):
        raise ModelError(f"{name}: compressed-tensors of format {packing!r} are not supported")
    groups = raw.get("config_groups")
    told = [
        weights
        for group in (groups.values() if isinstance(groups, dict) else ())
        if isinstance(group, dict) and isinstance(weights := group.get("weights"), dict)
    ]
    widths = {weights.get("num_bits") for weights in told}
    bits = next((bits for bits in (4, 8) if widths == {bits}), None)
    if bits is None:
        named = ", ".join(sorted(map(str, widths))) or "none"
        raise ModelError(
            f"{name}: compressed-tensors are supported with 4 bits or 8 for all, not {named}"
        )
    block = next((w["block_structure"] for w in told if w.get("block_structure")), None)
    return Quantisation(Method.COMPRESSED_TENSORS, bits, block=_block(block, name))


def _block(told: object, name: str) -> tuple[int, int]:
    match told:
        case None:
            return (128, 128)
        case [int(tall), int(wide)] if tall > 0 and wide > 0:
            return (tall, wide)
    raise ModelError(f"{name}: a block of weights is two positive numbers, not {told!r}")
