"""The curve of a scripted machine: short pieces, largest sets first, whoever else runs."""

from __future__ import annotations

import random

import pytest

from engine.machine.bandwidth import MIB, PIECE_BYTES, curve_of
from engine.machine.calibrate import run
from engine.machine.curve import Curve

CACHE_BYTES = 64 * MIB
MEMORY_PER_S, CACHE_PER_S, NEAR_PER_S = 29e9, 54e9, 210e9


class ScriptedReader:
    """Takes the time that a machine with a cache of 64 MiB would; no real time passes.

    On a busy one most pieces meet a neighbour and take several times as long.
    """

    def __init__(self, busy: float = 0.0) -> None:
        self.random, self.busy = random.Random(7), busy
        self.reads: list[tuple[int, int, int]] = []
        self.slice_ns: list[int] = []
        self.touched = 0

    def touch(self, begin: int, end: int) -> None:
        assert begin == self.touched
        self.touched = end

    def read(self, *, set: int, piece: int, start: int, limit_ns: int) -> list[int]:
        assert 0 <= start <= set - piece
        assert set <= self.touched
        took_ns: list[int] = []
        while sum(took_ns) < limit_ns:
            self.reads.append((set, piece, start))
            slower = self.random.uniform(2, 8) if self.random.random() < self.busy else 1
            took_ns.append(int(piece / self._per_s(set) * 1e9 * slower))
        self.slice_ns.append(sum(took_ns))
        return took_ns

    def _per_s(self, set: int) -> float:
        if set > CACHE_BYTES:
            return MEMORY_PER_S
        return CACHE_PER_S if set > 4 * MIB else NEAR_PER_S


def test_no_piece_is_longer_than_8_mib_and_no_slice_than_50_ms() -> None:
    reader = ScriptedReader(busy=0.9)
    run(curve_of(reader, 1024 * MIB))
    assert max(piece for _, piece, _ in reader.reads) == PIECE_BYTES == 8 * MIB
    assert all(piece == min(set, PIECE_BYTES) for set, piece, _ in reader.reads)
    assert max(reader.slice_ns) <= 50_000_000


def test_the_curve_goes_from_1_mib_to_the_buffer_and_takes_a_bounded_time() -> None:
    reader = ScriptedReader(busy=0.9)
    curve = run(curve_of(reader, 1024 * MIB))
    assert [size for size, _ in curve.points] == [2**n * MIB for n in range(11)]
    assert [set for set, _, _ in reader.reads] == sorted(
        (set for set, _, _ in reader.reads), reverse=True
    )
    assert sum(reader.slice_ns) < 3_000_000_000


def test_a_quiet_machine_is_known_after_a_second() -> None:
    reader = ScriptedReader()
    run(curve_of(reader, 1024 * MIB))
    assert sum(reader.slice_ns) < 1_000_000_000


@pytest.mark.parametrize("busy", [0.0, 0.5, 0.9])
def test_a_busy_machine_shows_the_same_plateau_and_the_same_cache(busy: float) -> None:
    curve = run(curve_of(ScriptedReader(busy), 1024 * MIB))
    assert curve.memory_per_s == pytest.approx(MEMORY_PER_S, rel=1e-3)
    assert curve.cache_bytes == 2 * CACHE_BYTES
    assert curve.cache_per_s == pytest.approx(CACHE_PER_S, rel=1e-3)


def test_every_part_of_a_set_is_read_twice_where_there_is_time() -> None:
    reader = ScriptedReader()
    run(curve_of(reader, 256 * MIB))
    for size in (256 * MIB, 16 * MIB, MIB):
        assert sum(piece for set, piece, _ in reader.reads if set == size) >= 2 * size


def test_a_curve_of_a_small_buffer_has_fewer_points() -> None:
    curve = run(curve_of(ScriptedReader(), 32 * MIB))
    assert curve.points[-1][0] == 32 * MIB
    assert isinstance(curve, Curve)
