"""What vendors say their devices can do: dense rates. Nothing is measured here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from core.errors import SettingsError
from core.machine import Peak, Peaks, PeakSource

ARITHMETICS: Final = ("bf16", "fp8", "int8", "fp4")


@dataclass(frozen=True, slots=True)
class Device:
    """One row of a data sheet, or `count` of it that split a model between them.

    Infinite is "the sheet does not say". FLOP/s are of dense bf16 products; `fp8`, `int8` and
    `fp4` those of narrower ones, 0 where the device has none.
    Units: `link_bytes_per_s` one way, to all others of its kind together; 0 is not known.
    """

    name: str
    bytes_per_s: float
    flops_per_s: float
    memory_bytes: float
    source: str
    fp8: float = 0.0
    int8: float = 0.0
    fp4: float = 0.0
    link_bytes_per_s: float = 0.0
    count: int = 1

    def rate(self, arithmetic: str) -> float:
        """Give the FLOP/s of an arithmetic, those of bf16 where the device has no such."""
        narrow = {"fp8": self.fp8, "int8": self.int8, "fp4": self.fp4 or self.fp8}
        return narrow.get(arithmetic) or self.flops_per_s

    @property
    def peaks(self) -> Peaks:
        sheet = PeakSource.DATASHEET
        return Peaks(
            dram=Peak(self.bytes_per_s, sheet),
            cache=None,
            cache_bytes=0,
            flops=Peak(self.flops_per_s, sheet),
            arithmetic="bf16",
        )


def _channels(name: str, channels: int, transfers_per_s: float, source: str) -> Device:
    """Take a socket by its memory channels of 8 bytes; its FLOP/s depend on cores and clock."""
    return Device(name, channels * 8 * transfers_per_s, math.inf, math.inf, source)


_PCIE3, _PCIE4, _PCIE5 = 16e9, 32e9, 64e9  # x16, one way
_A100 = "NVIDIA A100 Tensor Core GPU data sheet, June 2021"
_H100 = "NVIDIA H100 Tensor Core GPU data sheet: SXM, sparse rate halved"
_H200 = "NVIDIA H200 Tensor Core GPU data sheet: SXM, sparse rate halved"
_B200 = "NVIDIA DGX B200 data sheet, by GPU, sparse rates halved"
_B300 = "NVIDIA HGX B300 data sheet, by GPU, sparse rates halved"
_MI300X = "AMD Instinct MI300X data sheet"
_MI355X = "AMD Instinct MI355X data sheet"
_GAUDI3 = "Intel Gaudi 3 AI Accelerator white paper, 2024"
_ADA = "NVIDIA Ada GPU architecture white paper: dense; bf16 with fp32 sums"
_RTX5090 = "NVIDIA RTX Blackwell GPU architecture white paper: dense; bf16 with fp32 sums"
_APPLE = "Apple, technical specifications: the largest memory; FLOP/s are not published"
_EPYC = "AMD EPYC product pages: channels of a socket × fastest DIMM"
_XEON = "Intel ARK: channels of a socket × fastest DIMM"

DEVICES: Final[Mapping[str, Device]] = MappingProxyType(
    {
        device.name: device
        for device in (
            Device(
                "l4", 300e9, 121e12, 24e9, "NVIDIA L4 data sheet, sparse rate halved",
                242.5e12, 242.5e12, 0, _PCIE4,
            ),
            Device(
                "l40s", 864e9, 362e12, 48e9, "NVIDIA L40S data sheet", 733e12, 733e12, 0, _PCIE4
            ),
            Device("a10", 600e9, 125e12, 24e9, "NVIDIA A10 data sheet", 0, 250e12, 0, _PCIE4),
            Device(
                "a100", 2.0e12, 312e12, 80e9, "round figure of the A100 80 GB's two versions",
                0, 624e12, 0, 300e9,
            ),
            Device("a100-sxm", 2.039e12, 312e12, 80e9, _A100, 0, 624e12, 0, 300e9),
            Device("a100-pcie", 1.935e12, 312e12, 80e9, _A100, 0, 624e12, 0, 300e9),
            Device("h100", 3.35e12, 989e12, 80e9, _H100, 1979e12, 1979e12, 0, 450e9),
            Device("h200", 4.8e12, 989e12, 141e9, _H200, 1979e12, 1979e12, 0, 450e9),
            Device("b200", 8.0e12, 2250e12, 180e9, _B200, 4500e12, 4500e12, 9000e12, 900e9),
            Device("b300", 8.0e12, 2250e12, 270e9, _B300, 4500e12, 150e12, 13500e12, 900e9),
            Device("mi300x", 5.3e12, 1307.4e12, 192e9, _MI300X, 2614.9e12, 2614.9e12, 0, 448e9),
            Device(
                "mi355x", 8.0e12, 2516.6e12, 288e9, _MI355X,
                5033.2e12, 5033.2e12, 10066.3e12, 537.6e9,
            ),
            Device("gaudi3", 3.7e12, 1835e12, 128e9, _GAUDI3, 1835e12, 0, 0, 600e9),
            Device("rtx4090", 1008e9, 165.2e12, 24e9, _ADA, 660.6e12, 660.6e12, 0, _PCIE4),
            Device("rtx5090", 1792e9, 209.5e12, 32e9, _RTX5090, 838e12, 838e12, 1676e12, _PCIE5),
            Device(
                "t4", 320e9, 65e12, 16e9, "NVIDIA T4 data sheet; fp16, it has no bf16",
                0, 130e12, 0, _PCIE3,
            ),
            Device("m2-ultra", 800e9, math.inf, 192e9, _APPLE),
            Device("m3-ultra", 819e9, math.inf, 512e9, _APPLE),
            Device("m4", 120e9, math.inf, 32e9, _APPLE),
            Device("m4-pro", 273e9, math.inf, 64e9, _APPLE),
            Device("m4-max", 546e9, math.inf, 128e9, _APPLE),
            _channels("epyc-7003", 8, 3200e6, _EPYC),
            _channels("epyc-9004", 12, 4800e6, _EPYC),
            _channels("epyc-9005", 12, 6400e6, _EPYC),
            _channels("xeon-3rd", 8, 3200e6, _XEON),
            _channels("xeon-4th", 8, 4800e6, _XEON),
            _channels("xeon-5th", 8, 5600e6, _XEON),
            _channels("xeon-6900p", 12, 6400e6, _XEON),
        )
    }
)  # fmt: skip
_DIMMS: Final = re.compile(r"([1-9][0-9]?)xddr[45]-([1-9][0-9]{3,4})")


def device(name: str) -> Device:
    """Look a device up, in any case of letters; `12xddr5-4800` is a socket by its channels.

    Raises:
        SettingsError: not in the table; the message lists what is.
    """
    lower = name.strip().lower()
    if match := _DIMMS.fullmatch(lower):
        return _channels(lower, int(match[1]), int(match[2]) * 1e6, "channels × 8 bytes × rate")
    try:
        return DEVICES[lower]
    except KeyError:
        raise SettingsError(
            f"no data sheet for {name!r}: one of {', '.join(DEVICES)}, or channels: 12xddr5-4800"
        ) from None
