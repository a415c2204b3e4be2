"""Numbers as people read them; None is n/a. Nothing is rounded anywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_PREFIXES: Final = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def scaled(value: float | None, unit: str) -> str:
    """Write three digits and a decimal prefix."""
    if value is None:
        return "n/a"
    for factor, prefix in _PREFIXES:
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def ms(value: float | None) -> str:
    if value is None:
        return "n/a"
    return f"{value:.3g} ms" if value < 1000 else f"{value / 1e3:,.3g} s"


def rate(value: float | None) -> str:
    """Write tokens/s: three digits, or whole numbers above."""
    if value is None:
        return "n/a"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def counted(number: float, noun: str) -> str:
    """Write `1 request` and `2,000 requests`; a fraction in three digits."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:.3g}"
    return f"{shown} {noun}" if shown == "1" else f"{shown} {noun}s"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([f"  {first:<{widths[0]}}", *cells]).rstrip())
    return lines
