"""The options of `serve`: every field of the settings, and what follows from two of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from core.inputs import options
from core.inputs.options import Given, Option, options_of
from core.settings import Settings
from server.http.keys import parse_keys
from telemetry.objectives import parse_slo

OPTIONS: Final[tuple[Option, ...]] = tuple(
    dataclasses.replace(option, check=parse_keys) if option.name == "api_key" else option
    for option in options_of(Settings)
)


def resolve(
    flags: Mapping[str, Given],
    environment: Mapping[str, str],
    file: Mapping[str, Any],
    file_name: str,
) -> Settings:
    """Build the settings, as `core/inputs/options.py:resolve` does.

    The engine sizes its steps for the goal that `--slo itl=…` names, unless told another.

    Raises:
        SettingsError: names the flag, the variable, or the file and its key, and what it takes.
    """
    settings = options.resolve(Settings, OPTIONS, flags, environment, file, file_name)
    engine, slo = settings.engine, settings.telemetry.slo
    goal_ns = parse_slo(slo).get("itl") if slo is not None else None
    if goal_ns is None or engine.scheduler.itl_goal is not None:
        return settings
    limits = dataclasses.replace(engine.scheduler, itl_goal=goal_ns / 1e9)
    return dataclasses.replace(settings, engine=dataclasses.replace(engine, scheduler=limits))
