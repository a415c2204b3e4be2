from __future__ import annotations

import pytest

from loadgen.report.verdict import Exit, client_verdict, exit_code
from loadgen.run.player import Health
from loadgen.run.record import Record


def record(i: int, late_s: float = 0.0, took_s: float = 1.0) -> Record:
    return Record(
        i=i, intended_s=i, woke_s=i + late_s, sent_s=i + late_s, end_s=i + took_s, outcome="ok",
        detail="", asked_prompt_tokens=1, asked_output_tokens=1, content=[(i + took_s, 1)],
        counted_tokens=1, usage=None, cost=None, finish_reason=None,
    )  # fmt: skip


def health(lag_s: float = 0.001, inflight: float = 1.0, cpu_s: float = 10.0) -> Health:
    return Health([lag_s] * 10_000, inflight * 10_000, cpu_s, 100.0)


RECORDS = [record(i) for i in range(100)]


def test_a_client_that_keeps_up_is_valid() -> None:
    assert client_verdict(RECORDS, [health()]).valid is True


@pytest.mark.parametrize(
    ("records", "watched", "said"),
    [
        (RECORDS, health(lag_s=0.05), "event loop late"),
        ([record(i, late_s=0.05) for i in range(100)], health(), "schedule late"),
        (RECORDS, health(cpu_s=95.0), "CPU"),
        (RECORDS, health(inflight=2.0), "Little's law"),
    ],
)
def test_each_limit_of_the_client_is_told(records, watched: Health, said: str) -> None:
    verdict = client_verdict(records, [watched])
    assert verdict.valid is False
    assert any(said in line for line in verdict.limits)


@pytest.mark.parametrize(
    ("causes", "code"),
    [
        (set(), 0),
        ({Exit.SLO_MISSED, Exit.ERRORS}, 4),
        ({Exit.ERRORS, Exit.UNBALANCED}, 5),
        ({Exit.UNBALANCED, Exit.CLIENT_LIMITED}, 3),
        ({Exit.CLIENT_LIMITED, Exit.INTERRUPTED}, 130),
    ],
)
def test_the_gravest_cause_gives_the_exit_code(causes: set[Exit], code: int) -> None:
    assert exit_code(causes) == code
