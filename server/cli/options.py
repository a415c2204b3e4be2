"""Options from settings: every dataclass field is a flag, a variable and a key of a TOML file.

Nothing is read from the process here; `resolve` is one pure function over what was read.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from core.errors import SettingsError
from core.quantities import BANDWIDTH, FLOPS, parse_bytes
from core.settings import Settings
from server.http.keys import parse_keys
from telemetry.objectives import parse_slo

ENV_PREFIX: Final = "FLOORLINE_"
MAX_PORT: Final = 65535
Given = str | Sequence[str]
AUTO: Final = "auto"  # says of a number that it is resolved at start
_NOTATIONS: Final = {"bytes/s": BANDWIDTH, "FLOP/s": FLOPS}  # by unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting. `path` leads to it from the root of the tree; `group` titles its dataclass."""

    path: tuple[str, ...]
    kind: type
    default: Any
    help: str
    unit: str
    metavar: str
    otherwise: str
    group: str

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENV_PREFIX + self.name.upper()

    @property
    def repeats(self) -> bool:
        return self.kind is tuple


def options_of(tree: type, path: tuple[str, ...] = ()) -> Iterator[Option]:
    """Walk a settings dataclass; a field whose type is a dataclass is a group of its own."""
    hints = typing.get_type_hints(tree)
    group = (tree.__doc__ or "").strip().rstrip(".")
    for field in dataclasses.fields(tree):
        kind = _unwrap(hints[field.name])
        if dataclasses.is_dataclass(kind):
            yield from options_of(kind, (*path, field.name))
            continue
        yield Option(
            path=(*path, field.name),
            kind=kind,
            default=field.default,
            group=group,
            **field.metadata,
        )


def _unwrap(hint: Any) -> type:
    """Take X from `X | None`: an absent option is how None is said. All of a tuple are texts."""
    if isinstance(hint, types.UnionType):
        (hint,) = [part for part in typing.get_args(hint) if part is not type(None)]
    return typing.cast(type, typing.get_origin(hint) or hint)


OPTIONS: Final = tuple(options_of(Settings))


def resolve(
    flags: Mapping[str, Given],
    environment: Mapping[str, str],
    file: Mapping[str, Any],
    file_name: str,
) -> Settings:
    """Build the settings: a flag wins over a variable, that over the file, that over the default.

    `flags` is keyed by option name; `file` by name too, with dashes or underscores. Where a flag
    may be repeated, the file has a list, and the variable words between spaces.

    Raises:
        SettingsError: names the flag, the variable, or the file and its key as it is written there,
            and what it takes.
    """
    keys = _keys_by_name(file, file_name)
    values: dict[tuple[str, ...], Any] = {}
    for option in OPTIONS:
        if option.name in flags:
            values[option.path] = parse(option, flags[option.name], option.flag)
        elif option.variable in environment:
            text = environment[option.variable]
            words: Given = text.split() if option.repeats else text
            values[option.path] = parse(option, words, option.variable)
        elif option.name in keys:
            key = keys[option.name]
            source = f"{file_name}: {key}"
            values[option.path] = parse(option, _given(option, file[key], source), source)
    return _with_goal(typing.cast(Settings, _build(Settings, values)))


def _with_goal(settings: Settings) -> Settings:
    """Let the engine size its steps for the goal that `--slo itl=…` names, unless told another."""
    engine, slo = settings.engine, settings.telemetry.slo
    goal_ns = parse_slo(slo).get("itl") if slo is not None else None
    if goal_ns is None or engine.scheduler.itl_goal is not None:
        return settings
    limits = dataclasses.replace(engine.scheduler, itl_goal=goal_ns / 1e9)
    return dataclasses.replace(settings, engine=dataclasses.replace(engine, scheduler=limits))


def parse(option: Option, given: Given, source: str) -> Any:
    """Read one value, or all of an option that may be repeated: those are keys.

    Raises:
        SettingsError: it is of another kind or out of range; names `source`.
    """
    if option.repeats:
        texts = (given,) if isinstance(given, str) else tuple(given)
        parse_keys(texts, source)
        return texts
    assert isinstance(given, str), f"{option.flag} is not repeated"
    return _parse_one(option, given, source)


def _parse_one(option: Option, text: str, source: str) -> Any:
    if text == AUTO and option.kind is int and option.default is None:
        return None
    if not text:
        raise SettingsError(f"{source}: must not be empty")
    if option.unit in _NOTATIONS:
        return _NOTATIONS[option.unit].read(text, source)
    try:
        value = _convert(option.kind, text)
    except ValueError:
        raise SettingsError(f"{source}: {text!r} is not {_words(option)}") from None
    if option.unit and isinstance(value, int | float) and not value > 0:
        raise SettingsError(f"{source}: {text!r} must be above zero")
    if option.name == "port" and not 0 <= value <= MAX_PORT:
        raise SettingsError(f"{source}: {text!r} is not {_words(option)}")
    if option.metavar == "SIZE":
        parse_bytes(value, source)
    return value


_MAX_WHOLE: Final = 2**63 - 1  # what crosses the engine's socket
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _convert(kind: type, text: str) -> Any:
    if kind is bool:
        if text.lower() not in _BOOLEANS:
            raise ValueError
        return _BOOLEANS[text.lower()]
    value = kind(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    if isinstance(value, int) and abs(value) > _MAX_WHOLE:
        raise ValueError
    return value


def _words(option: Option) -> str:
    if issubclass(option.kind, StrEnum):
        return "one of " + ", ".join(option.kind)
    whole = f"between 0 and {MAX_PORT}" if option.name == "port" else "of 64 bits"
    return {int: f"a whole number {whole}", float: "a number", bool: "true or false"}.get(
        option.kind, "a text"
    )


def _keys_by_name(file: Mapping[str, Any], file_name: str) -> dict[str, str]:
    """Find the key of each option that the file sets.

    Raises:
        SettingsError: a key is no option's, or sets one a second time.
    """
    keys: dict[str, str] = {}
    for key in file:
        name = key.replace("-", "_")
        if name in keys:
            raise SettingsError(f"{file_name}: {keys[name]} and {key} are the same key")
        keys[name] = key
    known = {option.name for option in OPTIONS}
    unknown = sorted(key for name, key in keys.items() if name not in known)
    if unknown:
        raise SettingsError(f"{file_name}: unknown key: {', '.join(unknown)}")
    return keys


def _given(option: Option, value: Any, source: str) -> Given:
    """Take a key's value out of the file."""
    if option.repeats and isinstance(value, list):
        return [_text(each, source) for each in value]
    return _text(value, source)


def _text(value: Any, source: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise SettingsError(f"{source}: must be a text, a number, true or false")


def _build(tree: type, values: Mapping[tuple[str, ...], Any], path: tuple[str, ...] = ()) -> Any:
    hints = typing.get_type_hints(tree)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(tree):
        here = (*path, field.name)
        if dataclasses.is_dataclass(hints[field.name]):
            given[field.name] = _build(typing.cast(type, hints[field.name]), values, here)
        elif here in values:
            given[field.name] = values[here]
    return tree(**given)
