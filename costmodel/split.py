"""Sharing whole numbers out: money that is rounded twice stops adding up. No floats live here."""

from __future__ import annotations

from collections.abc import Sequence


def split_exactly(total: int, weights: Sequence[int]) -> list[int]:
    """Share `total` in proportion to `weights`, losing and inventing nothing.

    Invariant: the shares sum to `total`, and each is within 1 of its exact value.
    Cost: O(n) where all divides evenly, else O(n log n).
    Raises:
        ValueError: no positive weight: there is nobody to charge.
    Source: largest-remainder (Hamilton) apportionment; ties go to the first.
    """
    whole = sum(weights)
    if whole <= 0:
        raise ValueError("no positive weight to share by")
    shares = [total * weight // whole for weight in weights]
    left = total - sum(shares)
    if left:
        remainders = [total * weight % whole for weight in weights]
        for index in sorted(range(len(weights)), key=remainders.__getitem__, reverse=True)[:left]:
            shares[index] += 1
    return shares
