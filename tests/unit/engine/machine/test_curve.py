"""Where a curve says that the cache ends, and what it holds a step against."""

from __future__ import annotations

from engine.machine.curve import Curve

MIB = 2**20
QUIET = Curve.of(  # two cores of a shared socket that reports 260 MiB; GB/s
    (size * MIB, per_s * 1e9)
    for size, per_s in (
        *((1, 221), (2, 219), (4, 136), (8, 60), (32, 53), (64, 54), (128, 52)),
        *((256, 43), (512, 29), (1024, 29)),
    )
)
BUSY = Curve.of(
    (size * MIB, per_s * 1e9)
    for size, per_s in (
        *((1, 207), (2, 214), (4, 112), (8, 58), (32, 57), (64, 57), (128, 32)),
        *((256, 30), (512, 29), (1024, 29)),
    )
)


def test_memory_is_the_plateau_past_the_cache() -> None:
    assert QUIET.memory_per_s == 29e9
    assert BUSY.memory_per_s == 32e9


def test_the_cache_ends_where_more_bytes_make_nothing_slower() -> None:
    assert QUIET.cache_bytes == 512 * MIB
    assert BUSY.cache_bytes == 128 * MIB


def test_a_set_reaches_at_least_what_larger_ones_do() -> None:
    rates = [per_s / 1e9 for _, per_s in QUIET.in_cache]
    assert rates == [221, 219, 136, 60, 54, 54, 52, 43]
    assert QUIET.cache_per_s == 52e9


def test_the_best_of_two_measurements_keeps_the_larger_cache() -> None:
    both = QUIET.joined(BUSY)
    assert both.cache_bytes == 512 * MIB
    assert dict(both.points)[2 * MIB] == 219e9
    assert dict(both.points)[64 * MIB] == 57e9


def test_a_flat_curve_shows_no_cache() -> None:
    flat = Curve.of([(MIB, 30e9), (2 * MIB, 29e9), (4 * MIB, 29e9)])
    assert (flat.cache_bytes, flat.in_cache) == (0, ())
    assert flat.cache_per_s == flat.memory_per_s == 30e9
