"""A queue that gives turns by name: the many of one hold up only their own. It runs nothing."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """First come, first served within a name; one of each name at a time between names.

    May be used by several threads.

    Cost: O(1) for each call.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()
        self._lock = threading.Lock()

    def push(self, name: str, item: T) -> None:
        with self._lock:
            self._lines.setdefault(name, deque()).append(item)

    def pop(self) -> T:
        """Take the next item of a queue that is not empty; its name goes to the end."""
        with self._lock:
            name, line = next(iter(self._lines.items()))
            item = line.popleft()
            if line:
                self._lines.move_to_end(name)
            else:
                del self._lines[name]
            return item
