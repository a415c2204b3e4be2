"""How much memory this process may still take: of the machine, and within its control groups.

Knows no model. Source: proc_meminfo(5); Linux, Documentation/admin-guide/cgroup-v2.rst and
cgroup-v1/memory.rst.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True, order=True)
class Room:
    """Memory that can be had without swapping."""

    available_bytes: int
    owner: str  # whose bound it is, as messages name it


@dataclass(frozen=True, slots=True)
class _Files:
    """The names that a version of control groups gives to a limit, what is used, and its cache."""

    limit: str
    used: str
    cache: str  # a pattern of lines of memory.stat


_V1: Final = _Files(
    "memory.limit_in_bytes", "memory.usage_in_bytes", r"^total_(?:in)?active_file (\d+)$"
)
_V2: Final = _Files("memory.max", "memory.current", r"^(?:in)?active_file (\d+)$")


def least_room(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Room:
    """Give the tightest of all bounds; the physical memory if no file names one."""
    return min([_machine(proc / "meminfo"), *_containers(proc / "self/cgroup", groups)])


def _machine(meminfo: Path) -> Room:
    found = re.search(r"MemAvailable:\s+(\d+) kB", _text(meminfo))
    physical_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Room(int(found[1]) * 1024 if found else physical_bytes, "this machine")


def _containers(membership: Path, groups: Path) -> Iterator[Room]:
    """Yield the bounds of this process's group and of all visible groups above it."""
    for line in _text(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        files, top = (_V1, groups / "memory") if controllers else (_V2, groups)
        own = top / path.lstrip("/")
        for folder in (own, *own.parents):
            if folder.is_relative_to(top) and (room := _group(folder, files)) is not None:
                yield room


def _group(folder: Path, files: _Files) -> Room | None:
    """Read one group's room: limit − used + file cache; None if it has no limit."""
    limit, used = _text(folder / files.limit).strip(), _text(folder / files.used).strip()
    if not (limit.isdecimal() and used.isdecimal()):
        return None
    stat = _text(folder / "memory.stat")
    cache_bytes = sum(int(count) for count in re.findall(files.cache, stat, re.MULTILINE))
    return Room(max(int(limit) - int(used) + cache_bytes, 0), "this container")


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # not Linux, or not readable for us
        return ""
