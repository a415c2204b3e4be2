"""Reads memory to find out how fast it is: short pieces of working sets of many sizes.

A short piece finds a quiet moment on a busy machine, where a long one meets a neighbour.
No model lives here.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Final, Protocol

import torch

from engine.machine.compiled import NATIVE_COMPILED
from engine.machine.curve import Curve
from engine.machine.memory import least_room

MIB: Final = 2**20
SLICE_NS: Final = 10_000_000  # a piece may outlast it: the bound is 50 ms
PIECE_BYTES: Final = 8 * MIB  # 0.3 ms at 29 GB/s
LEAST_SET_BYTES: Final = 1 * MIB
MOST_SET_BYTES: Final = 1024 * MIB  # past the caches that one server's cores get
_FEWEST_BYTES: Final = 16 * MIB
_ROOM_SHARE: Final = 4  # at most a quarter of the memory that is free
_TOUCH_BYTES: Final = 4 * MIB
_TOUCH_NS: Final = 700_000_000  # making pages real is slow on a busy machine: then we use fewer
_SET_NS: Final = 40_000_000
_SETTLED_NS: Final = 30_000_000  # stop once no piece was faster for so long
_SET_MOST_NS: Final = 180_000_000
_ROUNDS: Final = 2  # the first one fills the cache
_FASTER: Final = 0.98


class Reader(Protocol):
    """A buffer, and threads that read it."""

    def touch(self, begin: int, end: int) -> None:
        """Write these bytes, which makes their pages real."""

    def read(self, *, set: int, piece: int, start: int, limit_ns: int) -> list[int]:
        """Read the first `set` bytes round and round in pieces, from `start` on.

        Returns: what each piece took, in ns; the last one ended after `limit_ns`.
        """


class TorchReader:
    """Reads where no kernels are compiled.

    Integer sums are what torch reads fastest with here: 80–88 GB/s on two Zen 5 cores, where a
    sum of fp32 reaches 76, a dot product 69 and a matrix × vector 21.
    """

    def __init__(self, num_bytes: int) -> None:
        self._buffer = torch.empty(num_bytes // 8, dtype=torch.int64)

    def touch(self, begin: int, end: int) -> None:
        self._buffer[begin // 8 : end // 8].fill_(1)

    def read(self, *, set: int, piece: int, start: int, limit_ns: int) -> list[int]:
        took_ns: list[int] = []
        until_ns, last_ns = time.perf_counter_ns() + limit_ns, time.perf_counter_ns()
        while not took_ns or last_ns < until_ns:
            self._buffer[start // 8 : (start + piece) // 8].sum()
            ended_ns = time.perf_counter_ns()
            took_ns.append(ended_ns - last_ns)
            last_ns, start = ended_ns, (start + piece) % set
        return took_ns


def new_reader(num_bytes: int, threads: int) -> Reader:
    """Make the fastest reader that there is; torch's takes torch's own threads."""
    if NATIVE_COMPILED:
        from kernels import Reader as NativeReader

        return NativeReader(num_bytes, threads=threads)
    return TorchReader(num_bytes)


def room_bytes() -> int:
    """Choose a power of two for the largest set, by the memory that is free."""
    most = min(MOST_SET_BYTES, least_room().available_bytes // _ROOM_SHARE)
    return max(_floor_power(most), _FEWEST_BYTES)


def reading(threads: int) -> Generator[None, None, Curve]:
    """Measure the curve; each `next` is a slice, and the caller may stop between slices.

    Cost: about 1 s in slices of some 10 ms; up to 1 GiB, which is free again at the end.
    """
    size = room_bytes()
    return (yield from curve_of(new_reader(size, threads), size))


def curve_of(reader: Reader, num_bytes: int) -> Generator[None, None, Curve]:
    """Read sets of each power of two, the largest first.

    In this order a set finds nothing in the cache that its own second round would not find.
    """
    size = yield from _touched(reader, num_bytes)
    points, at = [], 0
    while size >= LEAST_SET_BYTES:
        piece, at = min(size, PIECE_BYTES), at if at < size else 0
        best_ns, best_at_ns, spent_ns, read_bytes = 2**63, 0, 0, 0
        while not _enough(spent_ns, spent_ns - best_at_ns, read_bytes >= _ROUNDS * size):
            took_ns = reader.read(set=size, piece=piece, start=at, limit_ns=SLICE_NS)
            at = (at + len(took_ns) * piece) % size
            spent_ns += sum(took_ns)
            read_bytes += len(took_ns) * piece
            if min(took_ns) < _FASTER * best_ns:
                best_at_ns = spent_ns
            best_ns = min(best_ns, max(min(took_ns), 1))
            yield
        points.append((size, piece / best_ns * 1e9))
        size //= 2
    return Curve.of(points)


def _enough(spent_ns: int, settled_ns: int, rounds: bool) -> bool:
    found = spent_ns >= _SET_NS and settled_ns >= _SETTLED_NS and rounds
    return found or spent_ns >= _SET_MOST_NS


def _touched(reader: Reader, num_bytes: int) -> Generator[None, None, int]:
    """Make pages real for as long as there is time; return a power of two that is."""
    ready, spent_ns = 0, 0
    while ready < num_bytes and (spent_ns < _TOUCH_NS or ready < _FEWEST_BYTES):
        begin_ns = time.perf_counter_ns()
        reader.touch(ready, ready + _TOUCH_BYTES)
        spent_ns += time.perf_counter_ns() - begin_ns
        ready += _TOUCH_BYTES
        yield
    return _floor_power(ready)


def _floor_power(number: int) -> int:
    return 1 << max(number.bit_length() - 1, 0)
