"""What vendors say their devices can do: dense rates. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from core.errors import SettingsError
from core.machine import Peak, Peaks, PeakSource


@dataclass(frozen=True, slots=True)
class Device:
    """One row of a data sheet. FLOP/s are of dense bf16 tensor-core products."""

    name: str
    bytes_per_s: float
    flops_per_s: float
    memory_bytes: float
    source: str

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


_A100 = "NVIDIA A100 Tensor Core GPU data sheet, June 2021"
_H100 = "NVIDIA H100 Tensor Core GPU data sheet: SXM, sparse rate halved"
_H200 = "NVIDIA H200 Tensor Core GPU data sheet: SXM, sparse rate halved"

DEVICES: Final[Mapping[str, Device]] = MappingProxyType(
    {
        device.name: device
        for device in (
            Device("l4", 300e9, 121e12, 24e9, "NVIDIA L4 data sheet, sparse rate halved"),
            Device("l40s", 864e9, 362e12, 48e9, "NVIDIA L40S data sheet"),
            Device("a10", 600e9, 125e12, 24e9, "NVIDIA A10 data sheet"),
            Device("a100", 2.0e12, 312e12, 80e9, "round figure of the A100 80 GB's two versions"),
            Device("a100-sxm", 2.039e12, 312e12, 80e9, _A100),
            Device("a100-pcie", 1.935e12, 312e12, 80e9, _A100),
            Device("h100", 3.35e12, 989e12, 80e9, _H100),
            Device("h200", 4.8e12, 989e12, 141e9, _H200),
        )
    }
)


def device(name: str) -> Device:
    """Look a device up.

    Raises:
        SettingsError: not in the table; the message lists what is.
    """
    try:
        return DEVICES[name]
    except KeyError:
        raise SettingsError(f"no data sheet for {name!r}: one of {', '.join(DEVICES)}") from None
