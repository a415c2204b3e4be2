"""Reads what the operator wants counted and priced. Nothing is counted here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from core.errors import SettingsError
from core.inputs.objectives import parse_objectives
from core.settings import TelemetrySettings
from telemetry.series.catalog import METRICS, MetricKind, Needs
from telemetry.series.labels import OBJECTIVES

MAX_BUCKETS: Final = 50  # of one histogram: each is a series

_ALIASES: Final = ("vllm",)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The telemetry settings as they are used. Units: nano-USD per hour; ns."""

    price_nusd_per_hour: int | None
    objectives_ns: Mapping[str, int]
    buckets: Mapping[str, tuple[float, ...]]
    vllm_aliases: bool

    @property
    def needs(self) -> frozenset[Needs]:
        """Say which optional metrics they ask for."""
        given = (
            (Needs.PRICE, self.price_nusd_per_hour is not None),
            (Needs.SLO, bool(self.objectives_ns)),
        )
        return frozenset(need for need, asked in given if asked)


def resolve(settings: TelemetrySettings) -> Resolved:
    """Check and convert.

    Raises:
        SettingsError: names the flag and what it takes.
    """
    aliases = settings.metric_aliases
    if aliases is not None and aliases not in _ALIASES:
        raise SettingsError(f"--metric-aliases: {aliases!r} is not one of {', '.join(_ALIASES)}")
    return Resolved(
        _price_nusd_per_hour(settings.price_per_hour),
        {} if settings.slo is None else parse_slo(settings.slo),
        {} if settings.metric_buckets is None else parse_buckets(settings.metric_buckets),
        aliases is not None,
    )


def parse_slo(text: str) -> dict[str, int]:
    """Read "ttft=500ms,itl=50ms" as nanoseconds by objective.

    Raises:
        SettingsError: an unknown or repeated objective, or a limit that is not a time with a unit.
    """
    return {goal.metric: round(goal.limit * 1e9) for goal in parse_objectives(text, OBJECTIVES)}


def parse_buckets(text: str) -> dict[str, tuple[float, ...]]:
    """Read "step_duration_seconds=0.01,0.1;step_batch_requests=1,8" as bounds by histogram.

    Raises:
        SettingsError: there is no such histogram, or its bounds are not finite and rising.
    """
    known = {row.name for row in METRICS if row.kind is MetricKind.HISTOGRAM}
    buckets: dict[str, tuple[float, ...]] = {}
    for item in text.split(";"):
        name, _, bounds = (piece.strip() for piece in item.partition("="))
        if name not in known:
            example = "step_duration_seconds=0.01,0.1,1"
            raise SettingsError(
                f"--metric-buckets: {name!r} is not a histogram: write it like {example}"
            )
        try:
            values = tuple(float(bound) for bound in bounds.split(","))
        except ValueError:
            values = ()
        rising = all(low < high for low, high in pairwise(values))
        if not values or not rising or not all(map(math.isfinite, values)):
            raise SettingsError(f"--metric-buckets: {name}={bounds} are not finite, rising numbers")
        if len(values) > MAX_BUCKETS:
            raise SettingsError(f"--metric-buckets: {name} has more than {MAX_BUCKETS}")
        buckets[name] = values
    return buckets


def _price_nusd_per_hour(price: float | None) -> int | None:
    if price is None:
        return None
    if not (math.isfinite(price) and price >= 0):
        raise SettingsError(f"--price-per-hour: {price} must be a finite number, zero or above")
    return round(price * 1e9)
