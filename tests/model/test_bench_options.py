"""Every benchmark says in its help what it measures and what each of its options takes."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
PEERS_OWN = "llamacpp_bench"  # imports what only a peer's environment has
NAMES = [
    path.stem
    for path in sorted(BENCH.glob("*.py"))
    if '__name__ == "__main__"' in path.read_text("utf-8") and path.stem != PEERS_OWN
]


def test_there_are_benchmarks() -> None:
    assert {"peers", "server", "record_run"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_explains_itself_and_each_option(name: str) -> None:
    text = importlib.import_module(f"bench.{name}").options().format_help()
    usage, line, rest = text.split("\n\n", 2)
    assert f"python -m bench.{name}" in usage
    assert line.endswith(".")
    assert "\n" not in line
    described = re.split(r"^  (?=-)", rest.split("options:\n")[1].split("\n\n")[0], flags=re.M)
    for option in described[1:]:
        flag, *words = option.split("  ", 1)
        assert words, f"{flag} has no help"
        optional = f"[{flag.split()[0]}" in usage
        assert not optional or "default:" in option or flag == "-h, --help", flag
