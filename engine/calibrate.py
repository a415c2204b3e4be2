"""What this machine can do at best: measured with the engine's threads, cached, only raised.

Bandwidth is what a read of a large buffer reaches, whatever reads it; a floor is held against the
machine, not against our own kernels. No model lives here.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import torch

from core.formats import MatrixFormat
from core.machine import Peak, Peaks, PeakSource
from core.settings import EngineSettings
from engine.compiled import NATIVE_COMPILED
from engine.prepare import cache_dir

_PANELS: Final = {  # a format that uses each arithmetic
    "fp32": MatrixFormat.FP32,
    "int8": MatrixFormat.INT8,
    "int4": MatrixFormat.INT4_G32,
}
_MIN_PASSES: Final = 5
_MEASUREMENTS: Final = 3  # so many first starts measure: one busy moment must not set the peak
_PASSES_S: Final = 0.3  # a busy machine needs luck; the whole stays under 2 s
_PRODUCT_SIZE: Final = 768  # 0.9 GFLOP: large enough to reach the roof, 3 ms at 300 GFLOP/s
_BUFFER_CACHES: Final = 8  # the buffer holds so many caches, and is read in so many pieces
_DEFAULT_CACHE_BYTES: Final = 32 * 2**20  # where the system does not tell
_MAX_BUFFER_BYTES: Final = 2 * 2**30
_FILE_NAME: Final = "peaks.json"


@dataclass(frozen=True, slots=True)
class Rates:
    """The best of one machine's measurements. Units: bytes/s, bytes/s, FLOP/s."""

    dram: float
    cache: float
    flops: float
    measurements: int = 1

    def joined(self, other: Rates) -> Rates:
        return Rates(
            max(self.dram, other.dram),
            max(self.cache, other.cache),
            max(self.flops, other.flops),
            self.measurements + other.measurements,
        )


def resolve_peaks(
    settings: EngineSettings, threads: int, arithmetic: str, anew: bool = False
) -> Peaks:
    """Take what is given by flag, else the best that was measured on this machine.

    The first starts measure; after them the cache file is believed, but for `anew`.

    A given bandwidth holds for every step, also for one that fits into the cache.
    """
    bandwidth, flops = _given(settings.peak_bandwidth), _given(settings.peak_flops)
    if bandwidth is not None and flops is not None:
        return Peaks(dram=bandwidth, cache=None, cache_bytes=0, flops=flops, arithmetic=arithmetic)
    rates = None if anew else cached_rates(threads, arithmetic)
    if rates is None or rates.measurements < _MEASUREMENTS:
        rates = measure(threads, arithmetic)
    measured = _peaks(rates, arithmetic)
    return Peaks(
        dram=bandwidth or measured.dram,
        cache=None if bandwidth else measured.cache,
        cache_bytes=0 if bandwidth else measured.cache_bytes,
        flops=flops or measured.flops,
        arithmetic=arithmetic,
    )


def measure(threads: int, arithmetic: str) -> Rates:
    """Measure anew, and keep the better of each rate and what the cache file holds.

    Mutates: torch's thread count, the cache file.
    Cost: under 2 s; a buffer of 8 × the last-level cache, at most 2 GiB.
    """
    torch.set_num_threads(threads)
    cache_bytes = last_level_cache_bytes()
    dram = _read_bytes_per_s(min(_BUFFER_CACHES * cache_bytes, _MAX_BUFFER_BYTES), _BUFFER_CACHES)
    cache = max(dram, _read_bytes_per_s(cache_bytes // 2))  # no cache is slower than memory
    rates = Rates(dram, cache, _product_flops_per_s(threads, arithmetic))
    known = cached_rates(threads, arithmetic)
    rates = rates if known is None else rates.joined(known)
    _store(_key(threads, arithmetic), rates)
    return cached_rates(threads, arithmetic) or rates  # other arithmetics may know memory better


def arithmetics() -> tuple[str, ...]:
    """Name the arithmetics that some weights would be multiplied in here."""
    return tuple(_PANELS) if NATIVE_COMPILED else ("fp32",)


def cached_rates(threads: int, arithmetic: str) -> Rates | None:
    """Look up what earlier measurements left; None where nothing usable did.

    Memory is as fast in one arithmetic as in another: its rates are the best of all.
    """
    entries = _entries()
    kinds = {kind: _rates(entries.get(_key(threads, kind))) for kind in _PANELS}
    known = [rates for rates in kinds.values() if rates is not None]
    if (rates := kinds[arithmetic]) is None:
        return None
    dram, cache = max(one.dram for one in known), max(one.cache for one in known)
    return replace(rates, dram=dram, cache=cache)


def _rates(entry: Any) -> Rates | None:
    try:
        rates = Rates(**entry)
        values = (rates.dram, rates.cache, rates.flops, rates.measurements)
        return rates if all(math.isfinite(v) and v > 0 for v in values) else None
    except TypeError:  # absent, or not what we write
        return None


def describe(rates: dict[str, Rates], threads: int) -> str:
    """Say what was measured, by arithmetic, in lines for a screen."""
    megabytes = last_level_cache_bytes() / 2**20
    dram, cache = (max(getattr(one, of) for one in rates.values()) for of in ("dram", "cache"))
    return "\n".join(
        (
            f"machine       {_machine()}, {threads} threads",
            f"memory        {dram / 1e9:.1f} GB/s",
            f"cache         {cache / 1e9:.1f} GB/s (last level, {megabytes:.0f} MiB)",
            *(f"{kind:<13} {one.flops / 1e9:.1f} GFLOP/s" for kind, one in rates.items()),
            f"kept in       {_file()}",
        )
    )


def last_level_cache_bytes() -> int:
    """Ask the system for the largest cache of the first core."""
    return max(_cache_sizes(), default=_DEFAULT_CACHE_BYTES)


def _cache_sizes() -> list[int]:
    units = {"K": 2**10, "M": 2**20}
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text("ascii").strip()
        sizes.append(int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text))
    return sizes


def _read_bytes_per_s(size_bytes: int, pieces: int = 1) -> float:
    """Read a buffer over and over; a short piece of it may find a quiet moment on a busy machine.

    A piece is out of the cache again when its turn comes, where the buffer is large.

    Integer sums are what torch reads fastest with here: 80–88 GB/s on two Zen 5 cores, where a
    sum of fp32 reaches 76, a dot product 69 and a matrix × vector 21.
    """
    buffer = torch.ones(size_bytes // 8, dtype=torch.int64).chunk(pieces)
    turns = cycle(buffer)
    return buffer[0].nbytes / _best_s(lambda: next(turns).sum())


def _product_flops_per_s(threads: int, arithmetic: str) -> float:
    """Multiply square matrices in an arithmetic, with each product that we have for it."""
    left, right = torch.rand(2, _PRODUCT_SIZE, _PRODUCT_SIZE)
    out = torch.empty(_PRODUCT_SIZE, _PRODUCT_SIZE)
    best_s = math.inf
    if arithmetic == "fp32":
        best_s = _best_s(lambda: torch.mm(left, right, out=out))
    if NATIVE_COMPILED:
        from kernels import pack, product

        packed = pack(right.numpy(), _PANELS[arithmetic])
        x, y = left.numpy(), out.numpy()
        best_s = min(best_s, _best_s(lambda: product(x, packed, y, threads=threads)))
    return 2 * _PRODUCT_SIZE**3 / best_s


def _best_s(action: Callable[[], object]) -> float:
    action()  # pages, clocks and thread pools warm
    best_s, passes, started_s = math.inf, 0, time.perf_counter()
    while passes < _MIN_PASSES or time.perf_counter() - started_s < _PASSES_S:
        begin_s = time.perf_counter()
        action()
        best_s = min(best_s, time.perf_counter() - begin_s)
        passes += 1
    return best_s


def _given(per_s: float | None) -> Peak | None:
    return None if per_s is None else Peak(per_s, PeakSource.GIVEN)


def _peaks(rates: Rates, arithmetic: str) -> Peaks:
    source = PeakSource.MEASURED
    return Peaks(
        dram=Peak(rates.dram, source),
        cache=Peak(rates.cache, source),
        cache_bytes=last_level_cache_bytes(),
        flops=Peak(rates.flops, source),
        arithmetic=arithmetic,
    )


def _file() -> Path:
    return cache_dir() / _FILE_NAME


def _key(threads: int, arithmetic: str) -> str:
    return f"{_machine()} | {threads} threads | {arithmetic}"


def _machine() -> str:
    """Name the processor and how many cores of it there are."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(names, "") or platform.processor() or platform.machine()
    return f"{name} × {os.cpu_count()}"


def _entries() -> dict[str, object]:
    """Read the cache file; one that cannot be read counts as empty and is written anew."""
    try:
        entries = json.loads(_file().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _store(key: str, rates: Rates) -> None:
    """Write in one rename, so that a second engine never reads half a file."""
    path = _file()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    entries = _entries() | {key: asdict(rates)}
    partial.write_text(json.dumps(entries, indent=1), "utf-8")
    partial.replace(path)
