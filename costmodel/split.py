"""Sharing whole numbers out: money that is rounded twice stops adding up.

Many totals are shared at once, each among the rows of its group.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Count = TypeVar("Count", int, Ints)  # a number, or a column of them

_MAX_TOTAL: Final = 2**50
_MAX_WEIGHTS: Final = 2**61


def sums_by(group: Ints, values: Ints | Bools, count: int) -> Ints:
    """Sum `values` by their group, of which there are `count`; one without rows has 0."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, group, values)
    return sums


def columns_by(group: Ints, columns: Ints, count: int) -> Ints:
    """Sum each of some columns by group, as `sums_by` does one.

    Shapes: columns [columns, rows]; what is returned [columns, count].
    """
    sums = np.zeros(len(columns) * count, np.int64)
    np.add.at(sums, (group + count * np.arange(len(columns))[:, None]).ravel(), columns.ravel())
    return sums.reshape(len(columns), count)


def split_exactly(totals: Ints, weights: Ints, group: Ints) -> Ints:
    """Share each total in proportion to the weights of its group, losing and inventing nothing.

    The quotient in floats is wrong by one at most; the remainder is taken modulo 2^64, in which it
    is exact, and mends it.

    Shapes: totals [groups]; weights, group and what is returned [rows]; `group` never falls.
    Invariant: a group's shares sum to its total, and each is within 1 of its exact value.
    Raises:
        ValueError: a total whose group has rows and no positive weight: there is nobody to charge.
    Source: largest-remainder (Hamilton) apportionment; ties go to the first.
    """
    sums = sums_by(group, weights, len(totals))
    assert not len(totals) or (totals.max() < _MAX_TOTAL and sums.max() < _MAX_WEIGHTS)
    total, whole = totals[group], sums[group]
    if np.any((whole <= 0) & (total != 0)):
        raise ValueError("no positive weight to share by")
    whole = np.maximum(whole, 1)
    shares = (total * (weights / whole)).astype(np.int64)
    rests = total * weights - shares * whole
    mend = rests // whole
    shares += mend
    rests -= mend * whole
    left = totals - sums_by(group, shares, len(totals))
    if left[group].any():
        order = np.lexsort((-rests, group))
        rank = np.arange(len(group)) - np.searchsorted(group, np.arange(len(totals)))[group]
        shares[order] += rank < left[group]
    return shares
