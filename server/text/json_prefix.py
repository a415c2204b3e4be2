"""Reads JSON a character at a time, and says at which one a text stops being the start of a value.

It keeps no values. What is to be read of a text, its caller cuts out.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

_SPACE: Final = " \t\r\n"
_LITERALS: Final = {"t": "rue", "f": "alse", "n": "ull"}
_OPENS: Final = {"{": "}", "[": "]"}
_DIGITS: Final = "0123456789"

# A number's parts: what has been read of it, and where each next character leads.
_NUMBER: Final = {
    "-": {"0": "0", **dict.fromkeys("123456789", "int")},
    "0": {".": ".", "e": "e", "E": "e"},
    "int": {**dict.fromkeys(_DIGITS, "int"), ".": ".", "e": "e", "E": "e"},
    ".": dict.fromkeys(_DIGITS, "fraction"),
    "fraction": {**dict.fromkeys(_DIGITS, "fraction"), "e": "e", "E": "e"},
    "e": {**dict.fromkeys("+-", "sign"), **dict.fromkeys(_DIGITS, "exponent")},
    "sign": dict.fromkeys(_DIGITS, "exponent"),
    "exponent": dict.fromkeys(_DIGITS, "exponent"),
}
_NUMBER_ENDS: Final = frozenset({"0", "int", "fraction", "exponent"})


class _At(Enum):
    VALUE = auto()  # a value must begin
    FIRST_VALUE = auto()  # or the list ends
    KEY = auto()
    FIRST_KEY = auto()  # or the object ends
    COLON = auto()
    STRING = auto()
    KEY_STRING = auto()
    NUMBER = auto()
    LITERAL = auto()
    BEHIND = auto()  # a value ended: a comma, or what closes its container
    END = auto()


_IN_TEXT: Final = frozenset({_At.STRING, _At.KEY_STRING})


class JsonPrefix:
    """One value, as it comes. It takes what RFC 8259 allows, and nothing else."""

    def __init__(self) -> None:
        self._at = _At.VALUE
        self._closers: list[str] = []  # of the containers that are open
        self._rest = ""  # of a literal, or of an escape: what must come
        self._number = ""
        self._hex = 0  # digits that must come

    @property
    def depth(self) -> int:
        """How many containers are open."""
        return len(self._closers)

    @property
    def ended(self) -> bool:
        """Whether the value is whole; a number at the top is so only when something follows."""
        return self._at is _At.END

    @property
    def in_key(self) -> bool:
        """Whether an object's key is expected, or being read."""
        return self._at in (_At.KEY, _At.FIRST_KEY, _At.KEY_STRING)

    @property
    def behind_value(self) -> bool:
        """Whether a value has just ended, within a container."""
        return self._at is _At.BEHIND

    @property
    def in_text(self) -> bool:
        """Whether a string is being read, in which a blank is a character like any other."""
        return self._at in _IN_TEXT

    def push(self, character: str) -> bool:
        """Take the next character; False where it cannot follow, and nothing more is taken."""
        if self._at in _IN_TEXT:
            return self._in_string(character)
        if self._at is _At.NUMBER:
            if (then := _NUMBER[self._number].get(character)) is not None:
                self._number = then
                return True
            if self._number not in _NUMBER_ENDS:
                return False
            self._value_ended()
        if self._at is _At.LITERAL:
            expected, self._rest = self._rest[0], self._rest[1:]
            if not self._rest:
                self._value_ended()
            return character == expected
        return character in _SPACE or self._mark(character)

    def _mark(self, character: str) -> bool:
        match self._at:
            case _At.COLON:
                self._at = _At.VALUE
                return character == ":"
            case _At.KEY | _At.FIRST_KEY if character == '"':
                self._at = _At.KEY_STRING
                return True
            case _At.BEHIND if character == ",":
                self._at = _At.KEY if self._closers[-1] == "}" else _At.VALUE
                return True
            case _At.VALUE | _At.FIRST_VALUE if self._begins(character):
                return True
        closes = self._at in (_At.BEHIND, _At.FIRST_KEY, _At.FIRST_VALUE)
        if closes and character == self._closers[-1]:
            self._closers.pop()
            self._value_ended()
            return True
        return False

    def _begins(self, character: str) -> bool:
        if character in _OPENS:
            self._closers.append(_OPENS[character])
            self._at = _At.FIRST_KEY if character == "{" else _At.FIRST_VALUE
        elif character == '"':
            self._at = _At.STRING
        elif character in _LITERALS:
            self._at, self._rest = _At.LITERAL, _LITERALS[character]
        elif character == "-" or character in _DIGITS:
            self._at, self._number = _At.NUMBER, character if character in "-0" else "int"
        else:
            return False
        return True

    def _in_string(self, character: str) -> bool:
        if self._hex:
            self._hex -= 1
            return character in "0123456789abcdefABCDEF"
        if self._rest:  # behind a backslash
            self._rest = ""
            self._hex = 4 * (character == "u")
            return character in '"\\/bfnrtu'
        if character == '"':
            if self._at is _At.KEY_STRING:
                self._at = _At.COLON
            else:
                self._value_ended()
        elif character == "\\":
            self._rest = character
        return character >= " "

    def _value_ended(self) -> None:
        self._at = _At.BEHIND if self._closers else _At.END
