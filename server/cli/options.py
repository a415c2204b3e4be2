"""The options of `serve`: every field of the settings, and what follows from two of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from core.errors import SettingsError
from core.inputs import options
from core.inputs.options import Given, Option, options_of
from core.settings import Settings
from server.http.keys import parse_keys
from telemetry.objectives import parse_slo

OPTIONS: Final[tuple[Option, ...]] = tuple(
    dataclasses.replace(option, check=parse_keys) if option.name == "api_key" else option
    for option in options_of(Settings)
)


def _with_key_file(settings: Settings) -> Settings:
    """Put the keys of the file behind the others.

    Raises:
        SettingsError: it cannot be read, or a key in it cannot be used; never shows a key.
    """
    http = settings.http
    if http.api_key_file is None:
        return settings
    try:
        lines = Path(http.api_key_file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise SettingsError(f"--api-key-file: cannot read {http.api_key_file}: {reason}") from None
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    given = (*(http.api_key or ()), *keys)
    parse_keys(given, "--api-key-file")
    return dataclasses.replace(settings, http=dataclasses.replace(http, api_key=given))


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
    settings = _with_key_file(
        options.resolve(Settings, OPTIONS, flags, environment, file, file_name)
    )
    engine, slo = settings.engine, settings.telemetry.slo
    goal_ns = parse_slo(slo).get("itl") if slo is not None else None
    if goal_ns is None or engine.scheduler.itl_goal is not None:
        return settings
    limits = dataclasses.replace(engine.scheduler, itl_goal=goal_ns / 1e9)
    return dataclasses.replace(settings, engine=dataclasses.replace(engine, scheduler=limits))
