from __future__ import annotations

import pytest

from loadgen.draws import map_by_rank, parse_lengths
from loadgen.options import gather, parser_of
from loadgen.spec import PlanSpec, RunSpec, ratio, seconds


def parsed(*words: str) -> tuple[PlanSpec, RunSpec]:
    given = parser_of("run").parse_args(words)
    return gather(PlanSpec, given), gather(RunSpec, given)


def test_defaults_come_from_the_specs() -> None:
    assert parsed() == (PlanSpec(), RunSpec())


@pytest.mark.parametrize(
    ("foreign", "own"),
    [
        (["--request-rate", "2"], ["--rate", "2"]),
        (["--num-prompts", "9"], ["--requests", "9"]),
        (["--max-concurrency", "3"], ["--max-inflight", "3"]),
        (["--burstiness", "0.25"], ["--arrival", "gamma:2.0"]),
        (["--random-input-len", "64"], ["--prompt", "=64"]),
        (["--random-output-len", "8"], ["--output", "=8"]),
        (["--goodput", "ttft:500", "tpot:50"], ["--slo", "ttft=500ms", "--slo", "tpot=50ms"]),
        (["--goodput", "e2el:900"], ["--slo", "e2e=900ms"]),
    ],
)
def test_spellings_of_other_tools_mean_ours(foreign: list[str], own: list[str]) -> None:
    assert parsed(*foreign) == parsed(*own)


def test_units_are_read() -> None:
    assert [seconds(text) for text in ("500ms", "2s", "1.5m", "3")] == [0.5, 2.0, 90.0, 3.0]
    assert [ratio(text) for text in ("5%", "0.05", "100%")] == [0.05, 0.05, 1.0]


def test_lengths_stay_in_their_range() -> None:
    import random

    for text, low, high in (("=5", 5, 5), ("norm:50,40,1,60", 1, 60), ("lognorm:50,1,8,90", 8, 90)):
        drawn = [parse_lengths(text).draw(random.Random(n)) for n in range(400)]
        assert low == min(drawn)
        assert high == max(drawn)


def test_mapping_by_rank_keeps_order_and_ties() -> None:
    assert map_by_rank([10, 14_000, 10, 300], parse_lengths("32-96")) == [32, 96, 32, 64]
    assert map_by_rank([5, 5], parse_lengths("32-96")) == [32, 32]
