"""Options from dataclasses: a field is a flag, a variable and a key of a file. It reads neither."""

from __future__ import annotations

import argparse
import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NoReturn, TypeVar

from core.errors import SettingsError
from core.inputs.quantities import BANDWIDTH, FLOPS, number, parse_bytes, whole

ENV_PREFIX: Final = "FLOORLINE_"
AUTO: Final = "auto"  # says of a number that it is resolved at start
USAGE_ERROR: Final = 2
Given = str | Sequence[str]
T = TypeVar("T")
_READERS: Final[dict[str, Callable[[str, str], float]]] = {  # by unit
    "bytes/s": BANDWIDTH.read,
    "FLOP/s": FLOPS.read,
    "bytes": parse_bytes,
}
_MOST_WHOLE: Final = 2**63 - 1  # what crosses the engine's socket
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting. A text keeps what was written; its reader only checks it."""

    path: tuple[str, ...]  # from the root of the tree
    kind: type
    default: Any
    group: str  # the title of its dataclass
    help: str
    unit: str = ""
    metavar: str = ""
    otherwise: str = ""  # what holds where nothing is given and the default is None
    also: tuple[str, ...] = ()  # how other programs spell the flag
    read: Callable[[str], Any] | None = None  # raises ValueError, and says what is wrong
    check: Callable[[Sequence[str], str], object] | None = None  # of all texts that are repeated
    most: int | None = None  # of a whole number from 0

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


def setting(default: Any, help: str, unit: str = "", metavar: str = "", **how: Any) -> Any:
    """Make a dataclass field that is also an option: `max_num_seqs` is `--max-num-seqs`.

    `how` is of `Option`'s fields.
    """
    words = {"help": help, "unit": unit, "metavar": metavar}
    return dataclasses.field(default=default, metadata={**words, **how})


def options_of(tree: type, path: tuple[str, ...] = ()) -> Iterator[Option]:
    """Walk a settings dataclass; a field whose type is a dataclass is a group of its own."""
    hints = typing.get_type_hints(tree)
    group = (tree.__doc__ or "").strip().rstrip(".")
    for field in dataclasses.fields(tree):
        kind, here = _unwrap(hints[field.name]), (*path, field.name)
        if dataclasses.is_dataclass(kind):
            yield from options_of(kind, here)
        else:
            yield Option(path=here, kind=kind, default=field.default, group=group, **field.metadata)


def _unwrap(hint: Any) -> type:
    """Take X from `X | None`: an absent option is how None is said. All of a tuple are texts."""
    if isinstance(hint, types.UnionType):
        (hint,) = [part for part in typing.get_args(hint) if part is not type(None)]
    return typing.cast(type, typing.get_origin(hint) or hint)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, of a flag that is cut short too."""

    def __init__(self, **how: Any) -> None:
        super().__init__(allow_abbrev=False, **how)

    def error(self, message: str) -> NoReturn:
        hint = "expected one argument (as FLAG=VALUE where it begins with -)"
        self.refuse(message.replace("expected one argument", hint))

    def refuse(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: error: {message}\n")


def add_options(
    parser: argparse.ArgumentParser, options: Iterable[Option], parsed: bool = False
) -> None:
    """Add a flag for each option; one that is not given leaves no trace.

    Texts stay texts for `resolve`, unless they are to be `parsed` at once.
    """
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in options:
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        how: dict[str, Any] = {"action": "append" if option.repeats else "store"}
        if option.kind is bool:
            how = {"action": argparse.BooleanOptionalAction}
        else:
            how["metavar"] = _metavar(option)
            how["type"] = _reader(option) if parsed else str
        groups[option.group].add_argument(
            option.flag, *option.also, default=argparse.SUPPRESS, help=_help(option), **how
        )


def _reader(option: Option) -> Callable[[str], Any]:
    return lambda text: _parse_one(option, text, option.flag)


def _help(option: Option) -> str:
    missing = option.default is None or option.default == ()
    default = option.otherwise if missing else _shown(option.default)
    notes = [option.unit] if option.unit else []
    notes += [f"default: {default}"] if default else []
    text = f"{option.help} ({'; '.join(notes)})" if notes else option.help
    return text.replace("%", "%%")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _metavar(option: Option) -> str:
    if not option.metavar and issubclass(option.kind, StrEnum):
        return "|".join(option.kind)
    return option.metavar or option.name.upper()


def resolve(
    tree: type[T],
    options: Sequence[Option],
    flags: Mapping[str, Given],
    environment: Mapping[str, str],
    file: Mapping[str, Any],
    file_name: str,
) -> T:
    """Build the tree: a flag wins over a variable, that over the file, that over the default.

    `flags` is keyed by option name; `file` by name too, with dashes or underscores. Where a flag
    may be repeated, the file has a list, and the variable words between spaces.

    Raises:
        SettingsError: names the flag, the variable, or the file and its key as it is written there,
            and what it takes.
    """
    keys = _keys_by_name(file, file_name, {option.name for option in options})
    values: dict[tuple[str, ...], Any] = {}
    for option in options:
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
    return typing.cast(T, _build(tree, values))


def parse(option: Option, given: Given, source: str) -> Any:
    """Read one value, or all of an option that may be repeated.

    Raises:
        SettingsError: it is of another kind or out of range; names `source`.
    """
    if option.repeats:
        texts = (given,) if isinstance(given, str) else tuple(given)
        if option.check is not None:
            option.check(texts, source)
        return texts
    assert isinstance(given, str), f"{option.flag} is not repeated"
    return _parse_one(option, given, source)


def _parse_one(option: Option, text: str, source: str) -> Any:
    keeps_text = option.kind in (str, tuple)
    if option.read is not None:
        value = named(option.read, source)(text)
        return text if keeps_text else value
    if text == AUTO and option.kind is int and option.default is None:
        return None
    if not text:
        raise SettingsError(f"{source}: must not be empty")
    if option.unit in _READERS:
        amount = _READERS[option.unit](text, source)
        return text if keeps_text else amount
    try:
        value = text if keeps_text else _convert(option, text)
    except ValueError:
        raise SettingsError(f"{source}: {text!r} is not {_words(option)}") from None
    if option.unit and isinstance(value, int | float) and not value > 0:
        raise SettingsError(f"{source}: {text!r} must be above zero")
    return value


def named(read: Callable[[str], T], source: str) -> Callable[[str], T]:
    """Let a reader's refusal name the flag, the variable or the key that was read."""

    def reader(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise SettingsError(f"{source}: {error}") from None

    return reader


def _convert(option: Option, text: str) -> Any:
    if option.kind is bool:
        if text.lower() not in _BOOLEANS:
            raise ValueError
        return _BOOLEANS[text.lower()]
    if option.kind is int:
        least, most = (-_MOST_WHOLE, _MOST_WHOLE) if option.most is None else (0, option.most)
        return whole(least, most)(text)
    if option.kind is float and not math.isfinite(number(text)):
        raise ValueError
    return option.kind(text)


def _words(option: Option) -> str:
    if issubclass(option.kind, StrEnum):
        return "one of " + ", ".join(option.kind)
    whole = "of 64 bits" if option.most is None else f"between 0 and {option.most}"
    return {int: f"a whole number {whole}", float: "a number", bool: "true or false"}[option.kind]


def _keys_by_name(file: Mapping[str, Any], file_name: str, known: set[str]) -> dict[str, str]:
    """Find the key of each option that the file sets.

    Raises:
        SettingsError: a key sets no option, or sets one a second time.
    """
    keys: dict[str, str] = {}
    for key in file:
        name = key.replace("-", "_")
        if name in keys:
            raise SettingsError(f"{file_name}: {keys[name]} and {key} are the same key")
        keys[name] = key
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
