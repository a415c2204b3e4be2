"""What is kept of measurements is believed on the machine that made them, and on no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.machine import peaks_file
from engine.machine.curve import Curve
from engine.machine.peaks_file import Rates, cached_rates, keep, machine

RATES = Rates(Curve.of([(2**20, 200e9), (2**30, 29e9)]), 500e9)


def cpuinfo(folder: Path, name: str, *places: tuple[int, int]) -> Path:
    """Write a machine whose CPUs lie at these (socket, core)."""
    file = folder / "cpuinfo"
    blocks = (
        f"processor\t: {at}\nmodel name\t: {name}\nphysical id\t: {socket}\ncore id\t\t: {core}\n"
        for at, (socket, core) in enumerate(places)
    )
    file.write_text("\n".join(blocks), "utf-8")
    return file


TWO_CORES = ((0, 0), (0, 1))


@pytest.mark.parametrize(
    ("name", "places", "cpus"),
    [
        ("Other CPU", TWO_CORES, 2),
        ("Some CPU", (*TWO_CORES, (0, 2), (0, 3)), 4),
        ("Some CPU", ((0, 0), (0, 0)), 2),
        ("Some CPU", ((0, 0), (1, 0)), 2),
    ],
    ids=["another model", "more cores", "two threads of one core", "two sockets"],
)
def test_a_cache_file_of_another_machine_is_not_believed(
    name: str,
    places: tuple[tuple[int, int], ...],
    cpus: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path / "cache"))
    here = machine(cpuinfo(tmp_path, "Some CPU", *TWO_CORES), 2)
    monkeypatch.setattr(peaks_file, "machine", lambda: here)
    keep(2, "fp32", RATES)
    assert cached_rates(2, "fp32") == RATES
    there = machine(cpuinfo(tmp_path, name, *places), cpus)
    monkeypatch.setattr(peaks_file, "machine", lambda: there)
    assert cached_rates(2, "fp32") is None


def test_rates_belong_to_a_number_of_threads_and_an_arithmetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path))
    keep(2, "fp32", RATES)
    assert cached_rates(1, "fp32") is None
    assert cached_rates(2, "int8") is None


def test_the_machine_is_named_with_its_cores_and_sockets(tmp_path: Path) -> None:
    assert machine(cpuinfo(tmp_path, "Some CPU", (0, 0), (1, 0)), 2) == (
        "Some CPU × 2, cores 2, sockets 2"
    )


def test_a_file_that_is_damaged_counts_as_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path))
    keep(2, "fp32", RATES)
    file = tmp_path / "peaks.json"
    (key,) = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({key: {"curve": [[1, -1.0]], "flops": 1, "starts": 0}}), "utf-8")
    assert cached_rates(2, "fp32") is None
