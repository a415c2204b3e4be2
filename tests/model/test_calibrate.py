"""Peaks come from a flag, from the cache file or from a measurement, and only ever rise."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from core.machine import Peak, PeakSource
from core.settings import EngineSettings
from engine import calibrate
from engine.calibrate import Rates, cached_rates, measure, resolve_peaks


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path))
    return tmp_path / "peaks.json"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one measurement with one thread writes."""
    folder = tmp_path_factory.mktemp("once")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLOORLINE_CACHE", str(folder))
        measure(1, "fp32")
    return (folder / "peaks.json").read_text()


RATES: dict[str, object] = {"dram": 1e15, "cache": 2e15, "flops": 1e18}


def with_rates(measured: str, rates: dict[str, object]) -> str:
    return json.dumps(dict.fromkeys(json.loads(measured), rates))


def test_a_well_measured_machine_is_not_measured_again(cache: Path, measured: str) -> None:
    cache.write_text(before := with_rates(measured, RATES | {"measurements": 3}))
    peaks = resolve_peaks(EngineSettings(), 1, "fp32")
    assert peaks.dram == Peak(1e15, PeakSource.MEASURED)
    assert peaks.cache == Peak(2e15, PeakSource.MEASURED)
    assert peaks.flops == Peak(1e18, PeakSource.MEASURED)
    assert peaks.cache_bytes == calibrate.last_level_cache_bytes()
    assert cache.read_text() == before


def test_the_first_starts_measure_again_and_keep_the_best(cache: Path, measured: str) -> None:
    cache.write_text(with_rates(measured, RATES | {"cache": 1.0, "measurements": 2}))
    peaks = resolve_peaks(EngineSettings(), 1, "fp32")
    rates = cached_rates(1, "fp32")
    assert rates is not None
    assert (rates.dram, rates.flops, rates.measurements) == (1e15, 1e18, 3)
    assert rates.cache > 1.0
    assert peaks.cache == Peak(rates.cache, PeakSource.MEASURED)


def test_other_threads_are_measured_beside_what_is_there(cache: Path, measured: str) -> None:
    cache.write_text(measured)
    assert cached_rates(2, "fp32") is None
    resolve_peaks(EngineSettings(), 2, "fp32")
    assert cached_rates(2, "fp32") is not None
    assert len(json.loads(cache.read_text())) == 2


def test_memory_is_as_fast_in_an_arithmetic_that_is_new(cache: Path, measured: str) -> None:
    (key,) = json.loads(measured)
    known = key.replace("fp32", "int8")
    assert known != key
    cache.write_text(json.dumps({known: RATES}))
    peaks = resolve_peaks(EngineSettings(), 1, "fp32")
    assert peaks.dram == Peak(1e15, PeakSource.MEASURED)
    assert peaks.cache == Peak(2e15, PeakSource.MEASURED)
    assert peaks.flops is not None
    assert peaks.flops.per_s < 1e18


@pytest.mark.parametrize("content", ["", "{", "[]", '{"other": 1}'])
def test_a_broken_cache_file_holds_nothing(cache: Path, content: str) -> None:
    cache.write_text(content)
    assert cached_rates(1, "fp32") is None


@pytest.mark.parametrize("rate", [0, -1.0, "fast", None, math.nan])
def test_an_entry_that_is_no_rate_is_not_used(cache: Path, measured: str, rate: object) -> None:
    cache.write_text(with_rates(measured, RATES | {"dram": rate}))
    assert cached_rates(1, "fp32") is None


def test_a_broken_cache_file_is_measured_anew(cache: Path) -> None:
    cache.write_text("{")
    peaks = resolve_peaks(EngineSettings(), 1, "fp32")
    rates = cached_rates(1, "fp32")
    assert rates is not None
    assert peaks.dram is not None
    assert peaks.dram.per_s == rates.dram


def test_peaks_in_doubt_are_measured_again_and_never_fall(cache: Path, measured: str) -> None:
    cache.write_text(with_rates(measured, RATES | {"cache": 1.0, "measurements": 3}))
    peaks = resolve_peaks(EngineSettings(), 1, "fp32", anew=True)
    rates = cached_rates(1, "fp32")
    assert rates is not None
    assert (rates.dram, rates.flops, rates.measurements) == (1e15, 1e18, 4)
    assert peaks.cache == Peak(rates.cache, PeakSource.MEASURED)
    assert rates.cache > 1.0


def test_given_peaks_are_taken_without_measuring(cache: Path) -> None:
    peaks = resolve_peaks(EngineSettings(peak_bandwidth=1e11, peak_flops=2e12), 1, "fp32")
    assert peaks.dram is not None
    assert peaks.flops is not None
    assert (peaks.dram.per_s, peaks.flops.per_s) == (1e11, 2e12)
    assert peaks.dram.source is PeakSource.GIVEN
    assert peaks.cache is None
    assert not cache.exists()


def test_a_given_bandwidth_leaves_the_arithmetic_measured(cache: Path, measured: str) -> None:
    cache.write_text(with_rates(measured, RATES | {"measurements": 3}))
    peaks = resolve_peaks(EngineSettings(peak_bandwidth=1e11), 1, "fp32")
    assert peaks.flops is not None
    assert peaks.flops == Peak(1e18, PeakSource.MEASURED)
    assert peaks.cache is None


def test_the_description_names_each_rate() -> None:
    text = calibrate.describe({"fp32": Rates(80e9, 170e9, 210e9)}, 2)
    assert "80.0 GB/s" in text
    assert "210.0 GFLOP/s" in text
