"""Timed reads: how many pieces there are, when they stop, and what is refused."""

from __future__ import annotations

import pytest

from kernels import Reader, Unsupported, isas

KIB = 2**10


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_pieces_are_read_until_the_time_is_over(isa: str, threads: int) -> None:
    reader = Reader(512 * KIB, threads=threads, isa=isa)
    reader.touch(0, 512 * KIB)
    took_ns = reader.read(set=512 * KIB, piece=128 * KIB, start=0, limit_ns=2_000_000)
    assert took_ns
    assert all(ns > 0 for ns in took_ns)
    assert sum(took_ns[:-1]) < 2_000_000
    assert sum(took_ns) >= 2_000_000 or len(took_ns) == 2**14


def test_one_piece_is_read_however_little_time_there_is() -> None:
    reader = Reader(64 * KIB, threads=2)
    for start in (0, 32 * KIB):
        assert len(reader.read(set=64 * KIB, piece=32 * KIB, start=start, limit_ns=0)) == 1


def test_a_set_that_its_pieces_do_not_fill_is_read_from_the_start_again() -> None:
    reader = Reader(100_000, threads=2)
    took_ns = reader.read(set=99_999, piece=33_000, start=66_999, limit_ns=100_000)
    assert took_ns


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"set": 65 * KIB}, "set in the buffer"),
        ({"piece": 64 * KIB + 1}, "piece lies in its set"),
        ({"start": 60 * KIB}, "piece lies in its set"),
        ({"piece": 256}, "256 bytes for each thread"),
    ],
)
def test_reads_past_the_buffer_are_refused(changes: dict[str, int], why: str) -> None:
    reader = Reader(64 * KIB, threads=2)
    asked = {"set": 64 * KIB, "piece": 8 * KIB, "start": 0, "limit_ns": 0} | changes
    with pytest.raises(ValueError, match=why):
        reader.read(**asked)


def test_writes_past_the_buffer_are_refused() -> None:
    reader = Reader(64 * KIB, threads=2)
    for begin, end in ((0, 64 * KIB + 1), (2, 1)):
        with pytest.raises(ValueError, match="past the buffer"):
            reader.touch(begin, end)


def test_threads_and_instruction_sets_that_are_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="threads"):
        Reader(KIB, threads=0)
    with pytest.raises(Unsupported, match="instruction set"):
        Reader(KIB, threads=1, isa="abacus")
