"""Finds tool calls in an answer's text as it comes. The calls' arguments stay JSON text.

What it gives does not depend on how the text is cut into pieces: each character decides by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from server.contract.tools import CLOSE_TAG, OPEN_TAG
from server.text.json_prefix import JsonPrefix

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
    """Follows one call's JSON object. Of a name, and of arguments, the first that comes counts."""

    def __init__(self) -> None:
        self.raw: list[str] = []  # all characters, until the call began
        self.name: str | None = None
        self.arguments: str | None = None  # JSON text that is not an object; None: there is none
        self.new: list[str] = []  # characters of an object of arguments that nobody was told
        self.is_object = False  # the arguments are one, as far as they came
        self._json = JsonPrefix()
        self._key: str | None = None
        self._part: list[str] = []  # of the member's key, or of its value
        self._blanks: list[str] = []  # after the last character of `new`: the object may end here

    @property
    def done(self) -> bool:
        return self._json.ended

    def push(self, character: str) -> bool:
        """Take a character; False where it cannot follow, and is not a part of the call."""
        was_outside = self._json.depth == 0
        if (was_outside and character not in "{ \t\r\n") or not self._json.push(character):
            return False
        if self.done:
            self._end_member()
        elif was_outside or self._json.in_text or self._json.depth > 1 or character not in ":,":
            if not was_outside:
                self._grow(character)
        elif character == ":":
            self._key, self._part = _text("".join(self._part)), []
        else:
            self._end_member()
        return True

    def _grow(self, character: str) -> None:
        """Take a character of a key or of a value; blanks before and behind are no part of it."""
        if self._key in _ARGUMENT_KEYS and self.arguments is None:
            self._argue(character)
        elif self._part or not character.isspace():
            self._part.append(character)
            whole = self._json.behind_value and self._json.depth == 1
            if whole and self._key == "name" and self.name is None:
                self.name = _text("".join(self._part)) or None

    def _argue(self, character: str) -> None:
        if not self.is_object and not self._part:
            self.is_object = character == "{"
        if self.is_object:
            blank = character.isspace() and not self._json.in_text
            self._blanks.append(character)
            if not blank:
                self.new += self._blanks
                self._blanks = []
        elif self._part or not character.isspace():
            self._part.append(character)

    def _end_member(self) -> None:
        if self._key in _ARGUMENT_KEYS and self.arguments is None:
            self.arguments = "".join(self._part).rstrip()
        self._key, self._part, self._blanks = None, [], []


class ToolCallParser:
    """Splits text into content and calls; what looks like a call and is none stays content.

    `id_prefix` and its number are a call's id. With `calls_first`, a text is content as a whole
    where it does not begin with a call: such an answer follows a schema, and may hold any tag.
    """

    def __init__(self, id_prefix: str, calls_first: bool = False) -> None:
        self._id_prefix, self._calls_first = id_prefix, calls_first
        self.calls = 0  # begun so far
        self._blanks = ""  # outside of calls: space that may be around one
        self._tag = ""  # the beginning of a tag, behind it
        self._scanner: _CallScanner | None = None
        self._begun = False  # the call that is read has a name, which was told
        self._closing = False  # a call ended, and its closing tag has not come yet
        self._only_text = False

    def push(self, text: str) -> Parsed:
        parsed = Parsed()
        self._read(text, parsed)
        self._tell(parsed)
        return parsed

    def close(self) -> Parsed:
        """End the text: what was held back is content, unless it is what is around calls."""
        parsed = Parsed()
        if self._scanner is not None and not self._begun:
            parsed.content = self._blanks + OPEN_TAG + "".join(self._scanner.raw)
        elif self._scanner is None:
            cut = self._closing and CLOSE_TAG.startswith(self._tag)
            if not (cut or (self.calls and not self._tag)):
                parsed.content = self._blanks + self._tag
        self._scanner, self._blanks, self._tag = None, "", ""
        return parsed

    def _read(self, text: str, parsed: Parsed) -> None:
        at = 0
        while at < len(text):
            if self._scanner is not None:
                self._inside(self._scanner, text[at], parsed)
                at += 1
            elif self._only_text:
                parsed.content += text[at:]
                return
            elif self._tag or text[at] == "<":
                self._in_tag(text[at], parsed)
                at += 1
            else:
                tag = text.find("<", at)
                end = len(text) if tag < 0 else tag
                self._plain(text[at:end], parsed)
                at = end

    def _plain(self, text: str, parsed: Parsed) -> None:
        """Take text without a tag; space at its end is held back, a call may follow."""
        if shown := text.rstrip():
            self._show(self._blanks + shown, parsed)
            self._blanks = text[len(shown) :]
        else:
            self._blanks += text

    def _show(self, text: str, parsed: Parsed) -> None:
        parsed.content += text
        self._blanks = ""
        self._only_text = self._calls_first and self.calls == 0

    def _in_tag(self, character: str, parsed: Parsed) -> None:
        tag = self._tag + character
        if tag == OPEN_TAG:
            self._scanner, self._begun, self._closing = _CallScanner(), False, False
            self._tag = ""
        elif self._closing and tag == CLOSE_TAG:
            self._closing, self._blanks, self._tag = False, "", ""
        elif OPEN_TAG.startswith(tag) or (self._closing and CLOSE_TAG.startswith(tag)):
            self._tag = tag
        else:
            self._tag = ""
            self._show(self._blanks + tag[:-1], parsed)
            self._read(character, parsed)

    def _inside(self, scanner: _CallScanner, character: str, parsed: Parsed) -> None:
        if scanner.push(character):
            if not self._begun:
                scanner.raw.append(character)
            if not self._begun and scanner.is_object and scanner.name is not None:
                self._begin(scanner.name, parsed)  # it is a call, whatever follows
            if scanner.done:
                self._end(scanner, parsed)
        elif self._begun:  # what was told is the start of a call, and stays one
            self._leave(parsed)
            self._read(character, parsed)
        else:
            self._no_call(scanner, parsed)
            self._read(character, parsed)

    def _end(self, scanner: _CallScanner, parsed: Parsed) -> None:
        if not self._begun:
            arguments = _whole_arguments(scanner.arguments)
            if scanner.name is None or arguments is None:
                self._no_call(scanner, parsed)
                return
            self._begin(scanner.name, parsed)
            scanner.new.append(arguments)
        self._leave(parsed)

    def _no_call(self, scanner: _CallScanner, parsed: Parsed) -> None:
        """Make the tag content, and read again what came after it: another tag may be in it."""
        self._scanner = None
        self._show(self._blanks + OPEN_TAG, parsed)
        self._read("".join(scanner.raw), parsed)

    def _leave(self, parsed: Parsed) -> None:
        self._tell(parsed)
        self._scanner, self._closing = None, True

    def _begin(self, name: str, parsed: Parsed) -> None:
        self.calls, self._begun, self._blanks = self.calls + 1, True, ""
        parsed.calls.append(self._delta("", name))

    def _tell(self, parsed: Parsed) -> None:
        """Give what is new of the arguments, once the call has begun."""
        scanner = self._scanner
        if scanner is not None and self._begun and scanner.new:
            parsed.calls.append(self._delta("".join(scanner.new)))
            scanner.new = []

    def _delta(self, arguments: str, name: str | None = None) -> CallDelta:
        index = self.calls - 1
        return CallDelta(index, f"{self._id_prefix}{index}", name, arguments)


def _whole_arguments(text: str | None) -> str | None:
    """Read arguments that are no object: none at all, or an object's text as a text."""
    value = _decoded(text) if text is not None else "{}"
    return value if isinstance(value, str) and isinstance(_decoded(value), dict) else None


def _text(text: str) -> str | None:
    value = _decoded(text)
    return value if isinstance(value, str) else None


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
