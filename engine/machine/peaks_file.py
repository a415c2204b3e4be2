"""Keeps what was measured on this machine, for the next start. Nothing is measured here."""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from core.cache import cache_dir
from engine.machine.curve import Curve

log = logging.getLogger("floorline.engine")

ARITHMETICS: Final = ("fp32", "int8", "int4")
_FIELD: Final = re.compile(r"^([a-z ]+?)\s*: (.*?)\s*$", re.MULTILINE)  # of /proc/cpuinfo
_PLACE: Final = {"physical id", "core id"}
_FILE_NAME: Final = "peaks.json"
_MEANING: Final = "curve 1"  # part of each key: other versions are not used


@dataclass(frozen=True, slots=True)
class Rates:
    """The best of one machine's measurements. Units: bytes/s by working set, FLOP/s."""

    curve: Curve
    flops: float
    measurements: int = 1
    starts: int = 0  # how many of them a start made

    @property
    def dram(self) -> float:
        return self.curve.memory_per_s

    @property
    def cache(self) -> float:
        return self.curve.cache_per_s

    def joined(self, other: Rates) -> Rates:
        return Rates(
            self.curve.joined(other.curve),
            max(self.flops, other.flops),
            self.measurements + other.measurements,
            self.starts + other.starts,
        )


def cached_rates(threads: int, arithmetic: str) -> Rates | None:
    """Look up earlier measurements; None if there are none that can be used.

    Memory is as fast in one arithmetic as in another: its rates are the best of all.
    """
    entries = _entries()
    kinds = {kind: _rates(entries.get(key_of(threads, kind))) for kind in ARITHMETICS}
    if (rates := kinds[arithmetic]) is None:
        return None
    curve = rates.curve
    for one in kinds.values():
        curve = curve if one is None else curve.joined(one.curve)
    return replace(rates, curve=curve)


def known_curve(threads: int) -> Curve | None:
    """Look up how fast memory was read, whatever the arithmetic."""
    found = (cached_rates(threads, kind) for kind in ARITHMETICS)
    return next((rates.curve for rates in found if rates is not None), None)


def keep(threads: int, arithmetic: str, rates: Rates) -> Rates:
    """Join a measurement with what is kept; return the best of all.

    A cache that cannot be written costs the next start its memory, and nothing else.

    Mutates: the cache file, in one rename, so that a second engine never reads half a file.
    """
    key, entries = key_of(threads, arithmetic), _entries()
    if (known := _rates(entries.get(key))) is not None:
        rates = rates.joined(known)
    path = peaks_file()
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(entries | {key: _entry(rates)}, indent=1), "utf-8")
        partial.replace(path)
    except OSError as error:
        log.warning("the peaks are not kept for the next start: %s", error)
        return rates
    return cached_rates(threads, arithmetic) or rates


def _entry(rates: Rates) -> dict[str, object]:
    return {
        "curve": [list(point) for point in rates.curve.points],
        "flops": rates.flops,
        "measurements": rates.measurements,
        "starts": rates.starts,
    }


def _rates(entry: Any) -> Rates | None:
    try:
        curve = Curve.of((int(size), per_s) for size, per_s in entry["curve"])
        rates = Rates(curve, *(entry[name] for name in ("flops", "measurements", "starts")))
        values = [rates.flops, rates.measurements, *(v for point in curve.points for v in point)]
        usable = curve.points and all(math.isfinite(v) and v > 0 for v in values)
        return rates if usable and rates.starts >= 0 else None
    except (TypeError, ValueError, KeyError):  # absent, or not what we write
        return None


def peaks_file() -> Path:
    return cache_dir() / _FILE_NAME


def key_of(threads: int, arithmetic: str) -> str:
    return f"{machine()} | {threads} threads | {arithmetic} | {_MEANING}"


def machine(cpuinfo: Path = Path("/proc/cpuinfo"), cpus: int | None = None) -> str:
    """Name the processor, how many CPUs the system has, and on how many cores and sockets.

    Two threads on one core, and two cores on two sockets, do not reach what two cores of one do.
    """
    try:
        text = cpuinfo.read_text("utf-8")
    except OSError:  # not Linux
        text = ""
    told = [dict(_FIELD.findall(block)) for block in text.split("\n\n")]
    names = (cpu["model name"] for cpu in told if cpu.get("model name"))
    name = next(names, "") or platform.processor() or platform.machine()
    cores = {(cpu["physical id"], cpu["core id"]) for cpu in told if cpu.keys() >= _PLACE}
    where = f", cores {len(cores)}, sockets {len({core[0] for core in cores})}" if cores else ""
    return f"{name} × {os.cpu_count() if cpus is None else cpus}{where}"


def _entries() -> dict[str, object]:
    """Read the cache file; one that cannot be read counts as empty and is written again."""
    try:
        entries = json.loads(peaks_file().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}
