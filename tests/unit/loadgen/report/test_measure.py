from __future__ import annotations

from typing import Any

import pytest

from loadgen.report.measure import rates
from loadgen.run.record import Record


def streamed(begun_s: float, tokens: int, counts: bool = True, **more: Any) -> Record:
    """A request that got its first token a second after its start, and one each second."""
    arrivals = [begun_s + 1 + n for n in range(tokens)]
    known: dict[str, Any] = {
        "i": 0, "intended_s": begun_s, "woke_s": begun_s, "sent_s": begun_s,
        "end_s": arrivals[-1], "outcome": "ok", "detail": "", "asked_prompt_tokens": 3,
        "asked_output_tokens": tokens, "counted_tokens": tokens, "cost": None,
        "content": [(t_s, 1 if counts else None) for t_s in arrivals], "finish_reason": "length",
        "usage": {"prompt_tokens": 3, "completion_tokens": tokens},
    }  # fmt: skip
    return Record(**(known | more))


def test_what_arrives_in_the_window_counts_though_it_began_in_the_warm_up() -> None:
    """Two at once all the time: 2 tokens a second arrive, whichever request they belong to."""
    records = [streamed(begun_s, 10) for begun_s in range(0, 40, 5)]  # the last ends at 45 s
    found = rates(records, warmup_s=10.0, span_s=35.0)
    assert found.window_s == 35.0
    assert found.offered_per_s == 6 / 25, "those begun at 10, 15, 20, 25, 30 and 35 s"
    assert found.answered == 8, "the first ended at 10 s"
    assert found.output_tokens == 80 - 9 - 4, "nine of the first and four of the second came before"
    assert found.steady_tokens_per_s == pytest.approx(52 / 25)


def test_without_counted_chunks_a_part_of_an_answer_is_not_guessed() -> None:
    records = [streamed(begun_s, 10, counts=False) for begun_s in (0.0, 20.0)]
    assert rates(records, warmup_s=0.0, span_s=20.0).output_tokens == 20
    assert rates(records, warmup_s=0.0, span_s=25.0).steady_tokens_per_s is None
    assert rates(records, warmup_s=5.0, span_s=20.0).output_tokens is None


def test_what_a_request_that_broke_off_had_received_counts_too() -> None:
    broken = streamed(0.0, 4, outcome="timeout", usage=None)
    uncounted = streamed(0.0, 4, counts=False, outcome="timeout", usage=None)
    found = rates([broken, uncounted, streamed(0.0, 10)], warmup_s=0.0, span_s=0.0)
    assert found.output_tokens == 14
    assert found.answered == 1
