"""What this machine can do at best: measured with the engine's threads, cached, only raised.

A floor is held against the machine, not against our own kernels. A measurement is made of short
slices, so that an engine can look for requests between them. No model lives here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import torch

from core.formats import MatrixFormat
from core.machine import Peak, Peaks, PeakSource
from core.settings import EngineSettings
from engine.machine.bandwidth import SLICE_NS, reading
from engine.machine.compiled import NATIVE_COMPILED
from engine.machine.peaks_file import (
    ARITHMETICS,
    Rates,
    cached_rates,
    keep,
    known_curve,
    machine,
    peaks_file,
)

T = TypeVar("T")

_PANELS: Final = {  # a format that uses each arithmetic
    "fp32": MatrixFormat.FP32,
    "int8": MatrixFormat.INT8,
    "int4": MatrixFormat.INT4_G32,
}
_STARTS: Final = 3  # so many first starts measure: one busy moment must not set the peak
_PRODUCT_SIZE: Final = 768  # 0.9 GFLOP: large enough to reach the roof, 3 ms at 300 GFLOP/s
_PRODUCT_NS: Final = 300_000_000  # long enough to find a quiet moment on a busy machine
_DEFAULT_CACHE_BYTES: Final = 32 * 2**20  # if the system does not say


def resolve_peaks(
    settings: EngineSettings, threads: int, arithmetic: str, anew: bool = False
) -> Peaks:
    """Take what is given by flag, else the best that was measured on this machine.

    The first starts measure; later ones use the cache file, unless `anew` is set.
    A given bandwidth holds for every step, also for one that fits into the cache.
    """
    return run(resolving(settings, threads, arithmetic, anew))


def resolving(
    settings: EngineSettings, threads: int, arithmetic: str, anew: bool = False
) -> Generator[None, None, Peaks]:
    """Do what `resolve_peaks` does, in slices."""
    bandwidth, flops = _given(settings.peak_bandwidth), _given(settings.peak_flops)
    if bandwidth is not None and flops is not None:
        return Peaks(dram=bandwidth, cache=None, cache_bytes=0, flops=flops, arithmetic=arithmetic)
    rates = None if anew else cached_rates(threads, arithmetic)
    if rates is None or rates.starts < _STARTS:
        rates = yield from measuring(threads, arithmetic, starts=0 if anew else 1)
    peaks = _peaks(rates, arithmetic)
    if flops is not None:
        return replace(peaks, flops=flops)
    if bandwidth is not None:
        return replace(peaks, dram=bandwidth, cache=None, cache_bytes=0, cache_curve=())
    return peaks


def measure(threads: int, arithmetic: str) -> Rates:
    """Measure again; keep the better of each new rate and the one in the cache file.

    Mutates: the cache file.
    Cost: as `measuring`.
    """
    return run(measuring(threads, arithmetic))


def measure_all(threads: int) -> dict[str, Rates]:
    """Measure memory once and each arithmetic; keep the best, as `measure` does."""
    curve = run(_with_threads(threads, reading(threads)))
    flops = {kind: run(_with_threads(threads, _products(threads, kind))) for kind in arithmetics()}
    return {kind: keep(threads, kind, Rates(curve, one)) for kind, one in flops.items()}


def measuring(threads: int, arithmetic: str, starts: int = 0) -> Generator[None, None, Rates]:
    """Measure in slices of some 10 ms each, with all threads; keep the best.

    Mutates: the cache file; torch's thread count, within a slice.
    Cost: 1 to 2 s in all; up to 1 GiB while memory is read.
    """
    curve = yield from _with_threads(threads, reading(threads))
    flops = yield from _with_threads(threads, _products(threads, arithmetic))
    return keep(threads, arithmetic, Rates(curve, flops, starts=starts))


def run(slices: Generator[None, None, T]) -> T:
    """Run slices to their end without a pause."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def _with_threads(threads: int, slices: Generator[None, None, T]) -> Generator[None, None, T]:
    """Lend torch all threads for each slice: what runs in between has its own count."""
    while True:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            next(slices)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            torch.set_num_threads(before)
        yield


def arithmetics() -> tuple[str, ...]:
    """Name the arithmetics that this build multiplies weights in."""
    return ARITHMETICS if NATIVE_COMPILED else ("fp32",)


def describe(rates: dict[str, Rates], threads: int) -> str:
    """Say what was measured, by arithmetic, in lines for a screen."""
    curves = [one.curve for one in rates.values()]
    curve = curves[0]
    for other in curves[1:]:
        curve = curve.joined(other)
    size = f"up to {curve.cache_bytes / 2**20:.0f} MiB" if curve.cache_bytes else "none was seen"
    reads = (f"{size / 2**20:.0f} MiB {per_s / 1e9:.1f}" for size, per_s in curve.points)
    return "\n".join(
        (
            f"machine       {machine()}, {threads} threads",
            f"memory        {curve.memory_per_s / 1e9:.1f} GB/s",
            f"cache         {curve.cache_per_s / 1e9:.1f} GB/s ({size})",
            f"working sets  {', '.join(reads)} GB/s",
            *(f"{kind:<13} {one.flops / 1e9:.1f} GFLOP/s" for kind, one in rates.items()),
            f"kept in       {peaks_file()}",
        )
    )


def cache_bytes(threads: int) -> int:
    """Give the cache that these threads get: as measured, or else as the system says."""
    curve = known_curve(threads)
    return last_level_cache_bytes() if curve is None else curve.cache_bytes


def last_level_cache_bytes() -> int:
    """Ask the system for the largest cache of the first core. A shared one is not all ours."""
    return max(_cache_sizes(), default=_DEFAULT_CACHE_BYTES)


def _cache_sizes() -> list[int]:
    units = {"K": 2**10, "M": 2**20}
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text("ascii").strip()
        sizes.append(int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text))
    return sizes


def _products(threads: int, arithmetic: str) -> Generator[None, None, float]:
    """Multiply square matrices in an arithmetic, with each product that we have for it."""
    left, right = torch.rand(2, _PRODUCT_SIZE, _PRODUCT_SIZE)
    out = torch.empty(_PRODUCT_SIZE, _PRODUCT_SIZE)
    best_ns = math.inf
    if arithmetic == "fp32":
        best_ns = yield from _best_ns(lambda: torch.mm(left, right, out=out))
    if NATIVE_COMPILED:
        from kernels import pack, product

        packed = pack(right.numpy(), _PANELS[arithmetic])
        x, y = left.numpy(), out.numpy()
        yield
        native_ns = yield from _best_ns(lambda: product(x, packed, y, threads=threads))
        best_ns = min(best_ns, native_ns)
    return 2e9 * _PRODUCT_SIZE**3 / best_ns


def _best_ns(action: Callable[[], object]) -> Generator[None, None, float]:
    """Repeat an action for a while, in slices; the first time warms pages, clocks and threads."""
    action()
    yield
    best_ns, spent_ns = math.inf, 0
    while spent_ns < _PRODUCT_NS:
        slice_ns = 0
        while slice_ns < SLICE_NS:
            begin_ns = time.perf_counter_ns()
            action()
            took_ns = time.perf_counter_ns() - begin_ns
            best_ns, slice_ns = min(best_ns, took_ns), slice_ns + took_ns
        spent_ns += slice_ns
        yield
    return best_ns


def _given(per_s: float | None) -> Peak | None:
    return None if per_s is None else Peak(per_s, PeakSource.GIVEN)


def _peaks(rates: Rates, arithmetic: str) -> Peaks:
    source = PeakSource.MEASURED
    return Peaks(
        dram=Peak(rates.dram, source),
        cache=Peak(rates.cache, source),
        cache_bytes=rates.curve.cache_bytes,
        flops=Peak(rates.flops, source),
        arithmetic=arithmetic,
        cache_curve=rates.curve.in_cache,
    )
