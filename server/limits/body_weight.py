"""How many keys and values a JSON text holds, before it is decoded. It decodes nothing.

Decoding keeps the interpreter lock from its begin to its end, and takes a microsecond for each key:
a body of 500,000 keys would stop every stream for half a second.
"""

from __future__ import annotations

import re
from typing import Final

from core.errors import InvalidValue

LONG_BYTES: Final = 16 * 1024  # a quarter of a millisecond of parsing: more goes off the loop
MAX_KEYS: Final = 2**16  # keys of all objects of a body together
MAX_CONTAINERS: Final = 2**19  # its objects and lists
MAX_VALUES: Final = 2**20 + 2**16  # a prompt of 2^20 ids, and what else there is

# a string to its end, or what lies between strings; possessive, so that nothing is read twice
_PART: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[^"]+', re.DOTALL)


def is_long(body: bytes) -> bool:
    """Say whether work on the body belongs off the event loop."""
    return len(body) > LONG_BYTES


def check_weight(body: bytes) -> None:
    """Count what lies outside of strings.

    Cost: three scans for a character; one pass more where these find many.

    Raises:
        InvalidValue: there are more keys, containers or values than the limit that it names.
    """
    if len(body) <= MAX_KEYS or not _heavy(*_counts(body)):
        return
    keys = containers = values = 0
    for part in _PART.finditer(body):
        if not part[0].startswith(b'"'):
            counts = _counts(part[0])
            keys, containers, values = keys + counts[0], containers + counts[1], values + counts[2]
    if _heavy(keys, containers, values):
        raise InvalidValue(
            f"the body has {keys} keys, {containers} objects and lists, and about {values} values; "
            f"the limits are {MAX_KEYS}, {MAX_CONTAINERS} and {MAX_VALUES}"
        )


def _counts(text: bytes) -> tuple[int, int, int]:
    return text.count(b":"), text.count(b"{") + text.count(b"["), text.count(b",")


def _heavy(keys: int, containers: int, values: int) -> bool:
    return keys > MAX_KEYS or containers > MAX_CONTAINERS or values > MAX_VALUES
