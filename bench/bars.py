"""A figure beside the limit it must keep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """What was measured, beside its limit."""

    name: str
    value: float
    limit: float
    at_most: bool

    @property
    def held(self) -> bool:
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def __str__(self) -> str:
        sign, verdict = "≤" if self.at_most else "≥", "ok" if self.held else "MISSED"
        return f"{self.name:58s} {self.value:6.2f}  {sign} {self.limit:.2f}  {verdict}"
