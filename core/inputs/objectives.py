"""What an operator wants of requests, as --slo says it. Nothing is judged here."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from core.errors import SettingsError
from core.inputs.quantities import share, time_s

ERRORS: Final = "errors"  # the objective whose limit is a share
_LEAST_GOAL_S: Final = 1e-6
_MOST_GOAL_S: Final = 1000 * 3600.0  # in ns it is far within the integers of the wire


@dataclass(frozen=True, slots=True)
class Objective:
    """What an operator wants of requests, such as `ttft.p95=500ms`."""

    metric: str
    quantile: float | None  # None: of each request
    limit: float  # seconds; for `errors` the share of requests
    text: str


def parse_objectives(
    text: str, metrics: Sequence[str], quantiles: bool = False
) -> tuple[Objective, ...]:
    """Read the value of --slo: `ttft=500ms,itl=50ms`; with quantiles `ttft.p95=500ms` too.

    Raises:
        SettingsError: an unknown or repeated objective, or a limit that is no time with its unit.
    """
    example = "ttft.p95=500ms,itl=50ms" if quantiles else "ttft=500ms,itl=50ms"
    found: dict[str, Objective] = {}
    for item in text.split(","):
        key, _, limit = (piece.strip() for piece in item.partition("="))
        match = re.fullmatch(r"(\w+)(?:\.p([0-9]{2}))?", key)
        metric, percent = match.groups() if match else ("", None)
        refused = percent and (metric == ERRORS or not quantiles)
        if metric not in metrics or refused or key in found:
            raise SettingsError(
                f"--slo: {item.strip()!r} is not one of {', '.join(metrics)} with a limit, "
                f"each once, such as {example}"
            )
        read = _errors if metric == ERRORS else _goal_s
        quantile = int(percent) / 100 if percent else None
        found[key] = Objective(metric, quantile, read(limit, f"--slo: {key}"), f"{key}={limit}")
    return tuple(found.values())


def _errors(text: str, name: str) -> float:
    try:
        return share(text)
    except ValueError as error:
        raise SettingsError(f"{name}: {error}") from None


def _goal_s(text: str, name: str) -> float:
    """Read a limit that has its unit: 500 may be meant in ms or in s."""
    limit_s = time_s(text) if text.strip()[-1:].isalpha() else math.nan
    if not _LEAST_GOAL_S <= limit_s <= _MOST_GOAL_S:
        raise SettingsError(
            f"{name}: {text!r} is not a time from 1us to 1000h with its unit, such as 500ms or 10s"
        )
    return limit_s
