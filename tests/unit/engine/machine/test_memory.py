"""Available memory is the tightest of what the machine and its control groups have left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.machine.memory import Room, least_room

MEMINFO = "MemTotal:  24684000 kB\nMemFree:  7 kB\nMemAvailable:   1000 kB\n"
MACHINE = Room(1_024_000, "this machine")
UNBOUND_V1 = "9223372036854771712"


class System:
    """A made-up /proc and /sys/fs/cgroup."""

    def __init__(self, root: Path) -> None:
        self.proc, self.groups = root / "proc", root / "cgroup"
        self.tell("proc/meminfo", MEMINFO)

    def tell(self, path: str, text: str) -> None:
        file = self.proc.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def belongs(self, *lines: str) -> None:
        self.tell("proc/self/cgroup", "".join(f"{line}\n" for line in lines))

    def v2(self, group: str, limit: str, used: int, cache: tuple[int, int] = (0, 0)) -> None:
        inactive, active = cache
        stat = f"anon 9\nfile {used}\ninactive_anon 9\n"
        stat += f"inactive_file {inactive}\nactive_file {active}\nworkingset_refault_file 9\n"
        self.tell(f"cgroup/{group}/memory.max", f"{limit}\n")
        self.tell(f"cgroup/{group}/memory.current", f"{used}\n")
        self.tell(f"cgroup/{group}/memory.stat", stat)

    def v1(self, group: str, limit: str, used: int, cache: tuple[int, int] = (0, 0)) -> None:
        inactive, active = cache
        stat = f"cache 9\ninactive_file 5\nactive_file 5\ntotal_cache {used}\n"
        stat += f"total_inactive_file {inactive}\ntotal_active_file {active}\n"
        self.tell(f"cgroup/memory/{group}/memory.limit_in_bytes", f"{limit}\n")
        self.tell(f"cgroup/memory/{group}/memory.usage_in_bytes", f"{used}\n")
        self.tell(f"cgroup/memory/{group}/memory.stat", stat)

    @property
    def room(self) -> Room:
        return least_room(self.proc, self.groups)


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def container(available_bytes: int) -> Room:
    return Room(available_bytes, "this container")


def test_without_groups_it_is_what_the_system_says_or_else_all_there_is(
    system: System, tmp_path: Path
) -> None:
    assert system.room == MACHINE
    physical_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert least_room(tmp_path / "none", tmp_path / "none").available_bytes == physical_bytes
    system.tell("proc/meminfo", "MemTotal:  24684000 kB\n")
    assert system.room.available_bytes == physical_bytes


def test_a_group_has_its_limit_less_what_is_used_and_its_file_cache_counts_as_free(
    system: System,
) -> None:
    system.belongs("0::/")
    system.v2("", limit="700000", used=600000, cache=(1000, 200))
    assert system.room == container(101_200)


def test_a_group_without_a_limit_or_with_a_loose_one_bounds_nothing(system: System) -> None:
    system.belongs("0::/a")
    for limit in ("max", "9000000"):
        system.v2("a", limit=limit, used=600000)
        assert system.room == MACHINE


def test_the_tightest_of_a_group_and_those_above_it_counts(system: System) -> None:
    system.belongs("0::/slice/pod/box")
    system.v2("slice/pod/box", limit="800000", used=100)
    system.v2("slice/pod", limit="max", used=100)
    system.v2("slice", limit="900000", used=500_000)
    system.v2("slice/other", limit="10", used=0)
    assert system.room == container(400_000)


def test_a_group_of_version_1_is_read_by_its_own_names(system: System) -> None:
    system.belongs("5:cpu,memory:/docker/box", "4:freezer:/else", "0::/docker/box")
    system.v1("docker/box", limit="500000", used=450_000, cache=(30_000, 10_000))
    system.v1("else", limit="10", used=0)
    system.v1("", limit=UNBOUND_V1, used=10**12)
    assert system.room == container(90_000)


def test_a_container_that_sees_its_own_group_as_the_top_is_bounded_by_it(system: System) -> None:
    """Its membership names a path of the host, which it does not see."""
    system.belongs("4:memory:/docker/0123456789abcdef")
    system.v1("", limit="300000", used=0)
    assert system.room == container(300_000)


def test_more_in_use_than_the_limit_leaves_nothing(system: System) -> None:
    system.belongs("0::/a")
    system.v2("a", limit="1000", used=1500)
    assert system.room == container(0)
