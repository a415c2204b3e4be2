"""Which devices a plan is about, by the names of data sheets or by hand, and what an hour costs."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Final

from core.errors import SettingsError
from costmodel.planning.datasheet import ARITHMETICS, DEVICES, Device, device
from lab.ask import values
from lab.ask.options import OnDevice

_HAND_GIVEN: Final = ("peak_bandwidth", "peak_flops", "memory")
_DEVICES: Final = (
    "a device is named (--device, or several with --compare)"
    " or given by hand (--peak-bandwidth, --peak-flops, --memory)"
)
_SEVERAL: Final = re.compile(r"([1-9][0-9]{0,3})x(.+)", re.IGNORECASE)
EVERY: Final = "all"


def devices_of(given: OnDevice) -> tuple[Device, ...]:
    """Look up what is named, or take what is given by hand.

    Raises:
        SettingsError: neither, both, or a name that no data sheet has.
    """
    by_hand = [_flag(name) for name in _HAND_GIVEN if getattr(given, name) is not None]
    named = [_flag(name) for name in ("device", "compare") if getattr(given, name) is not None]
    if len(named) > 1 or (named and by_hand):
        first, *others = named + by_hand
        raise SettingsError(f"{first} goes without {', '.join(others)}: {_DEVICES}")
    if given.compare is not None:
        names = DEVICES if given.compare.lower() == EVERY else given.compare.split(",")
        return tuple(_several("--compare", name, given) for name in names)
    if by_hand:
        return (_together(_hand_given(given), given.tp or 1, given.link),)
    if given.device is None:
        raise SettingsError("--device is missing, or --compare, or --peak-bandwidth")
    return (_several("--device", given.device, given),)


def _several(flag: str, name: str, given: OnDevice) -> Device:
    """Read `h100` or `2xh100`."""
    match = _SEVERAL.fullmatch(name)
    count = int(match[1]) if match else 1
    if match and given.tp not in (None, count):
        raise SettingsError(f"{flag} {name} and --tp {given.tp} differ")
    try:
        found = device(match[2] if match else name)
    except SettingsError as error:
        raise SettingsError(f"{flag}: {error}") from None
    return _together(found, given.tp or count, given.link)


def _together(one: Device, count: int, link: float | None) -> Device:
    if link is not None:
        one = replace(one, link_bytes_per_s=link)
    return replace(one, count=count, name=f"{count}x{one.name}" if count > 1 else one.name)


def _hand_given(given: OnDevice) -> Device:
    if given.peak_bandwidth is None:
        raise SettingsError("--peak-bandwidth is missing: no floor without it")
    return Device(
        name="given by hand",
        bytes_per_s=given.peak_bandwidth,
        flops_per_s=math.inf if given.peak_flops is None else given.peak_flops,
        memory_bytes=math.inf if given.memory is None else given.memory,
        source="flags",
    )


def arithmetic_of(asked: str | None, weights: str) -> str:
    """Choose what is multiplied: what is asked for, else the weights' own narrow format."""
    if asked is None:
        return next((name for name in ARITHMETICS if weights.startswith(name)), "bf16")
    if asked.lower() not in ARITHMETICS:
        raise SettingsError(f"--arithmetic: {asked!r} is not one of {', '.join(ARITHMETICS)}")
    return asked.lower()


def prices_of(text: str | None, devices: int) -> tuple[float | None, ...]:
    """Read what an hour of each device costs."""
    if text is None:
        return (None,) * devices
    prices = values.prices(text)
    if len(prices) != devices:
        raise SettingsError(f"--price-per-hour {text}: {devices} wanted, one for each device")
    return tuple(prices)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
