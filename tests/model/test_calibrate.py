"""Peaks come from a flag, from the cache file or from a measurement, and only ever rise."""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from pathlib import Path

import pytest
import torch

from core.machine import Peak, PeakSource
from core.settings import EngineSettings
from engine.machine import bandwidth, calibrate
from engine.machine.bandwidth import MIB
from engine.machine.calibrate import measure, measuring, resolve_peaks, resolving
from engine.machine.curve import Curve
from engine.machine.memory import Room
from engine.machine.peaks_file import Rates, cached_rates, keep


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


LEVELS: dict[str, object] = {"dram": 1e15, "cache": 2e15}
RATES: dict[str, object] = LEVELS | {"flops": 1e18, "measurements": 1, "starts": 1}


def with_rates(measured: str, rates: dict[str, object]) -> str:
    """Write an entry for the machine that was measured: two rates of a cache of 32 MiB."""
    rest = {name: value for name, value in rates.items() if name not in LEVELS}
    curve = [[8 * MIB, rates["cache"]], [32 * MIB, rates["dram"]], [1024 * MIB, rates["dram"]]]
    return json.dumps(dict.fromkeys(json.loads(measured), {"curve": curve} | rest))


def test_a_well_measured_machine_is_not_measured_again(cache: Path, measured: str) -> None:
    cache.write_text(before := with_rates(measured, RATES | {"measurements": 3, "starts": 3}))
    peaks = resolve_peaks(EngineSettings(), 1, "fp32")
    assert peaks.dram == Peak(1e15, PeakSource.MEASURED)
    assert peaks.cache == Peak(2e15, PeakSource.MEASURED)
    assert peaks.flops == Peak(1e18, PeakSource.MEASURED)
    assert peaks.cache_bytes == 32 * MIB
    assert peaks.cache_curve == ((8 * MIB, 2e15),)
    assert cache.read_text() == before


def test_the_first_starts_measure_again_and_keep_the_best(cache: Path, measured: str) -> None:
    cache.write_text(with_rates(measured, RATES | {"cache": 1.0, "measurements": 2, "starts": 2}))
    peaks = resolve_peaks(EngineSettings(), 1, "fp32")
    rates = cached_rates(1, "fp32")
    assert rates is not None
    assert (rates.dram, rates.flops, rates.measurements, rates.starts) == (1e15, 1e18, 3, 3)
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
    entry = json.loads(with_rates(measured, RATES))[key]
    cache.write_text(json.dumps({known: entry}))
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
    cache.write_text(with_rates(measured, RATES | {"cache": 1.0, "measurements": 3, "starts": 3}))
    peaks = resolve_peaks(EngineSettings(), 1, "fp32", anew=True)
    rates = cached_rates(1, "fp32")
    assert rates is not None
    assert (rates.dram, rates.flops, rates.measurements, rates.starts) == (1e15, 1e18, 4, 3)
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
    cache.write_text(with_rates(measured, RATES | {"measurements": 3, "starts": 3}))
    peaks = resolve_peaks(EngineSettings(peak_bandwidth=1e11), 1, "fp32")
    assert peaks.flops is not None
    assert peaks.flops == Peak(1e18, PeakSource.MEASURED)
    assert peaks.cache is None


def test_a_second_start_after_a_first_one_measures_again(cache: Path) -> None:
    resolve_peaks(EngineSettings(), 1, "fp32")
    resolve_peaks(EngineSettings(), 1, "fp32", anew=True)
    resolve_peaks(EngineSettings(), 1, "fp32")
    rates = cached_rates(1, "fp32")
    assert rates is not None
    assert (rates.measurements, rates.starts) == (3, 2)


def test_what_an_older_version_kept_is_left_alone_and_not_used(cache: Path, measured: str) -> None:
    (key,) = json.loads(measured)
    old = {key.rpartition(" | ")[0]: {"dram": 1e15, "cache": 2e15, "flops": 1e18}}
    cache.write_text(json.dumps(old))
    assert cached_rates(1, "fp32") is None
    peaks = resolve_peaks(EngineSettings(), 1, "fp32")
    assert peaks.dram is not None
    assert peaks.dram.per_s < 1e15
    kept = json.loads(cache.read_text())
    assert kept.keys() == {key, *old}


def test_a_measurement_can_stop_between_two_slices_and_leaves_the_file_as_it_is(
    cache: Path,
) -> None:
    slices = measuring(1, "fp32")
    before = torch.get_num_threads()
    for _ in range(3):
        next(slices)
        assert torch.get_num_threads() == before
    slices.close()
    assert not cache.exists()


def test_calibrating_measures_memory_once_for_all_arithmetics(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []

    def reading(threads: int) -> Generator[None, None, Curve]:
        counted.append(threads)
        return bandwidth.reading(threads)

    monkeypatch.setattr(calibrate, "reading", reading)
    rates = calibrate.measure_all(1)
    assert counted == [1]
    assert rates.keys() == set(calibrate.arithmetics())
    assert all(cached_rates(1, kind) == one for kind, one in rates.items())
    assert {one.starts for one in rates.values()} == {0}


def test_given_peaks_need_no_slice(cache: Path) -> None:
    settings = EngineSettings(peak_bandwidth=1e11, peak_flops=2e12)
    assert list(resolving(settings, 1, "fp32", anew=True)) == []


@pytest.mark.parametrize("native", [False, True])
def test_reads_are_timed_piece_by_piece(native: bool) -> None:
    num_bytes = 16 * MIB
    if native:
        reader = pytest.importorskip("kernels").Reader(num_bytes, threads=2)
    else:
        reader = bandwidth.TorchReader(num_bytes)
    reader.touch(0, num_bytes)
    took_ns = reader.read(set=num_bytes, piece=4 * MIB, start=8 * MIB, limit_ns=5_000_000)
    assert took_ns
    assert all(ns > 0 for ns in took_ns)
    assert sum(took_ns[:-1]) < 5_000_000


def test_the_room_for_reads_is_a_share_of_the_memory_that_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for free, room in ((2**40, 1024), (1000 * MIB, 128), (0, 16)):
        monkeypatch.setattr(bandwidth, "least_room", lambda free=free: Room(free, "this machine"))
        assert bandwidth.room_bytes() == room * MIB


def test_the_description_names_each_rate() -> None:
    curve = Curve.of([(8 * MIB, 170e9), (32 * MIB, 80e9), (64 * MIB, 80e9)])
    text = calibrate.describe({"fp32": Rates(curve, 210e9)}, 2)
    assert "80.0 GB/s" in text
    assert "170.0 GB/s (up to 32 MiB)" in text
    assert "210.0 GFLOP/s" in text


def test_peaks_that_cannot_be_kept_are_used_and_told(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache.parent.joinpath("file").touch()
    monkeypatch.setenv("FLOORLINE_CACHE", str(cache.parent / "file"))
    rates = Rates(Curve(((MIB, 1e9),)), 1e9, 1)
    assert keep(1, "fp32", rates) == rates
    assert "the peaks are not kept for the next start" in caplog.text
