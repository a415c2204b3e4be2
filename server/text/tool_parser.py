"""Finds tool calls in an answer's text as it comes. The calls' arguments stay JSON text.

What it gives does not depend on how the text is cut into pieces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from server.contract.tools import CLOSE_TAG, OPEN_TAG

_MAYBE_OPEN: Final = re.compile(  # spaces, and what may become a tag, at the end of a text
    r"\s*(?:" + "|".join(re.escape(OPEN_TAG[:n]) for n in range(len(OPEN_TAG) - 1, 0, -1)) + r")?$"
)
_ARGUMENT_KEYS: Final = ("arguments", "parameters")


@dataclass(frozen=True, slots=True)
class CallDelta:
    """More of one call; `name` is set on its first delta, whose `arguments` are empty."""

    index: int
    id: str
    name: str | None
    arguments: str


@dataclass(slots=True)
class Parsed:
    content: str = ""
    calls: list[CallDelta] = field(default_factory=list)


class _CallScanner:
    """Follows one call's JSON object, character by character; it does not check all of JSON."""

    def __init__(self) -> None:
        self.raw = ""
        self.done = self.broken = False
        self.members: dict[str, str] = {}  # JSON text by key; the last one may be unfinished
        self._key: str | None = None
        self._part, self._depth = "", 0
        self._in_string = self._escaped = False

    @property
    def name(self) -> str | None:
        value = _decoded(self.members.get("name", ""))
        return value if isinstance(value, str) and value else None

    @property
    def arguments(self) -> str:
        found = (self.members[key] for key in _ARGUMENT_KEYS if key in self.members)
        return next(found, "").rstrip()

    def push(self, character: str) -> None:
        self.raw += character
        if self._in_string:
            self._in_string = self._escaped or character != '"'
            self._escaped = character == "\\" and not self._escaped
            self._grow(character)
        elif self._depth == 0:
            self._depth, self.broken = int(character == "{"), character not in "{ \t\r\n"
        elif self._depth == 1 and character in ":,}":
            self._punctuate(character)
        else:
            self._depth += (character in "{[") - (character in "}]")
            self._in_string = character == '"'
            if self._part or not character.isspace():
                self._grow(character)

    def _grow(self, character: str) -> None:
        self._part += character
        if self._key is not None:
            self.members[self._key] = self._part

    def _punctuate(self, character: str) -> None:
        """Take a mark between members; `:` ends a key."""
        if character == ":":
            key = _decoded(self._part)
            self.broken = self._key is not None or not isinstance(key, str)
            self._key = str(key)
        else:
            self._key, self.done = None, character == "}"
        self._part = ""


class ToolCallParser:
    """Splits text into content and calls; what looks like a call and is none stays content.

    `id_prefix` and its number are a call's id.
    """

    def __init__(self, id_prefix: str) -> None:
        self._id_prefix = id_prefix
        self.calls = 0  # begun so far
        self._held = ""  # outside of calls: spaces and a tag's beginning
        self._scanner: _CallScanner | None = None
        self._sent: int | None = None  # characters of the arguments; None before the call began
        self._closing = False  # a call ended, and its closing tag has not come yet

    def push(self, text: str) -> Parsed:
        parsed = Parsed()
        for character in text:
            if self._scanner is None:
                self._outside(character, parsed)
            else:
                self._inside(self._scanner, character, parsed)
        if self._scanner is not None:
            self._tell(self._scanner, parsed)
        return parsed

    def close(self) -> Parsed:
        """End the text: what was held back is content, unless it is the space around calls."""
        parsed = Parsed()
        if self._scanner is not None and self._sent is None:
            parsed.content = OPEN_TAG + self._scanner.raw
        elif self._scanner is None and not (self.calls and not self._held.strip()):
            parsed.content = self._held
        self._scanner, self._held = None, ""
        return parsed

    def _outside(self, character: str, parsed: Parsed) -> None:
        self._held += character
        if self._closing and CLOSE_TAG.startswith(self._held.lstrip()):
            if self._held.lstrip() == CLOSE_TAG:
                self._held, self._closing = "", False
            return
        if self._held.endswith(OPEN_TAG):
            before = self._held[: -len(OPEN_TAG)].rstrip()
            parsed.content += before
            self._held, self._scanner, self._sent = "", _CallScanner(), None
            self._closing = False
            return
        keep = _MAYBE_OPEN.search(self._held)
        assert keep is not None
        parsed.content += self._held[: keep.start()]
        self._held = self._held[keep.start() :]

    def _inside(self, scanner: _CallScanner, character: str, parsed: Parsed) -> None:
        scanner.push(character)
        if scanner.done:
            self._end(scanner, parsed)
        elif scanner.broken:
            if self._sent is None:
                parsed.content += OPEN_TAG + scanner.raw
            self._scanner, self._closing = None, self._sent is not None

    def _end(self, scanner: _CallScanner, parsed: Parsed) -> None:
        self._tell(scanner, parsed)
        if self._sent is None:
            arguments = _whole_arguments(scanner.arguments)
            if scanner.name is None or arguments is None:
                parsed.content += OPEN_TAG + scanner.raw
                self._scanner = None
                return
            self._begin(scanner.name, parsed)
            parsed.calls.append(self._delta(arguments))
        self._scanner, self._closing = None, True

    def _tell(self, scanner: _CallScanner, parsed: Parsed) -> None:
        """Give what is new of the arguments, once name and arguments have both begun."""
        arguments = scanner.arguments
        if not arguments.startswith("{") or scanner.name is None:
            return
        if self._sent is None:
            self._begin(scanner.name, parsed)
        if new := arguments[self._sent or 0 :]:
            parsed.calls.append(self._delta(new))
            self._sent = len(arguments)

    def _begin(self, name: str, parsed: Parsed) -> None:
        self.calls, self._sent = self.calls + 1, 0
        parsed.calls.append(self._delta("", name))

    def _delta(self, arguments: str, name: str | None = None) -> CallDelta:
        index = self.calls - 1
        return CallDelta(index, f"{self._id_prefix}{index}", name, arguments)


def _whole_arguments(text: str) -> str | None:
    """Read arguments that do not begin with a brace: none at all, or an object's text as a text."""
    value = _decoded(text) if text else "{}"
    return value if isinstance(value, str) and isinstance(_decoded(value), dict) else None


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
