"""A request's pieces sum to its time, to the nanosecond, whatever happens to it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.request import FinishReason, Obstacle, RequestId
from core.settings import TelemetrySettings
from core.wire import PoolState
from telemetry.bill.cost import CostObject
from telemetry.spent.pieces import Piece
from tests.unit.costmodel.models import peaks, piece
from tests.unit.telemetry.scripted import MS, Scripted, ns
from tests.unit.telemetry.test_conservation import Workload

A, B = RequestId("a"), RequestId("b")


def spent(cost: CostObject) -> dict[str, int]:
    return {str(name): ns(ms) for name, ms in cost.spent_ms.items()}


def waiting(**count: int) -> PoolState:
    return PoolState(8, 0, 0, 1, {Obstacle(name): n for name, n in count.items()})


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), memory=st.sampled_from((1e8, 1e10, 1e12)))
def test_the_pieces_of_every_request_sum_to_its_time(seed: int, memory: float) -> None:
    script = Scripted(TelemetrySettings(), peaks=peaks(bytes_per_s=memory))
    workload = Workload(seed, script)
    workload.run(25)
    script.scrape()
    ledger = script.telemetry._ledger
    entries = [*ledger._entries.values(), *ledger._recent.values()]
    assert entries
    for entry in entries:
        pieces, until_ns = entry.life.spent_ns(), entry.ended_ns or entry.life.mark_ns
        assert sum(pieces.values()) == until_ns - entry.received_ns
        assert min(pieces.values(), default=1) > 0
        if entry.first_token_ns is not None:
            first = sum(entry.life.first_ns().values())
            assert first == entry.first_token_ns - entry.received_ns


def test_the_queue_is_named_by_what_it_waited_for() -> None:
    script = Scripted()
    script.receive("a", 32)
    script.step(piece("a", 0, 32, 1), ms=10, admitted=(A,))
    script.clock.now_ns += 4 * MS  # in the middle of the next step
    script.receive("b", 16)
    script.step(piece("a", 32, 1, 1), ms=10, pool=waiting(slots=1))
    script.step(piece("a", 33, 1, 1), ms=7, pool=waiting(slots=1))
    script.step(piece("a", 34, 1, 1), ms=5, pool=waiting(kv=1))
    script.step(piece("a", 35, 1, 1), ms=3, pool=waiting(budget=1), ended={"a": LENGTH})
    script.step(piece("b", 0, 16, 1), ms=2, admitted=(B,), ended={"b": LENGTH})
    found = spent(script.telemetry.cost([B]))
    assert found.pop("wait_step") == 6 * MS
    assert found.pop("wait_slots") == 7 * MS
    assert found.pop("wait_kv") == 5 * MS
    assert found.pop("wait_budget") == 3 * MS
    assert sum(found.values()) == 2 * MS


LENGTH = FinishReason.LENGTH


def test_a_grammar_is_compiled_before_the_queue() -> None:
    script = Scripted()
    telemetry, start_ns = script.telemetry, script.clock.now_ns
    telemetry.on_received(A, 16, received_ns=start_ns - 3 * MS, has_grammar=True)
    script.receive("b", 32)
    script.step(piece("b", 0, 32, 1), ms=10, admitted=(B,), pool=waiting(grammar=1))
    script.step(piece("b", 32, 1, 1), ms=10, compiled=((A, start_ns + 14 * MS),))
    script.step(
        piece("a", 0, 16, 1), piece("b", 33, 1, 1), ms=4, admitted=(A,), ended={"a": LENGTH}
    )
    found = spent(telemetry.cost([A]))
    assert found.pop("accept") == 3 * MS
    assert found.pop("grammar") == 14 * MS
    assert found.pop("wait_step") == 6 * MS
    assert sum(found.values()) == 4 * MS
    assert found["others_decode"] > 0


def test_others_prompts_answers_and_steps_without_it_are_told_apart() -> None:
    script = Scripted()
    script.receive("a", 16)
    script.receive("b", 64)
    script.step(piece("a", 0, 16, 1), ms=10, admitted=(A,))
    script.step(piece("a", 16, 1, 1), piece("b", 0, 64, 1), ms=20, admitted=(B,))
    script.step(piece("b", 64, 1, 1), ms=6)
    script.step(piece("a", 17, 1, 1), piece("b", 65, 1, 1), ms=10, ended={"a": LENGTH})
    found = spent(script.telemetry.cost([A]))
    assert found["sat_out"] == 6 * MS
    assert found["others_prefill"] > 15 * MS
    assert 0 < found["others_decode"] <= 6 * MS
    assert sum(found.values()) == 46 * MS
    timeline = script.telemetry.request_timeline(A, "default")
    assert timeline is not None
    assert timeline.why.spent_ms["others_prefill"] == found["others_prefill"] / 1e6  # type: ignore[index]


def test_a_preempted_request_is_stalled_and_computes_again() -> None:
    script = Scripted()
    script.receive("a", 16)
    script.receive("b", 16)
    script.step(piece("a", 0, 16, 1), ms=10, admitted=(A,))
    script.step(piece("b", 0, 16, 1), ms=10, admitted=(B,), preempted=(A,))
    script.step(piece("b", 16, 1, 1), ms=8, ended={"b": LENGTH})
    script.step(piece("a", 0, 17, 1, 17), ms=4, admitted=(A,), ended={"a": LENGTH})
    found = spent(script.telemetry.cost([A]))
    assert (found["stalled"], found["recompute"]) == (18 * MS, 4 * MS)
    assert sum(found.values()) == 32 * MS


def test_an_engine_that_ends_fails_what_is_left() -> None:
    script = Scripted()
    script.receive("a", 16)
    script.step(piece("a", 0, 16, 1), ms=10, admitted=(A,))
    script.clock.now_ns += 50 * MS
    script.telemetry.on_engine_down()
    assert spent(script.telemetry.cost([A]))["failed"] == 50 * MS


def test_an_engine_that_wakes_before_its_request_is_noted_costs_no_time() -> None:
    """The request is sent first and booked after that; an idle engine may be faster."""
    script = Scripted()
    telemetry, start_ns = script.telemetry, script.mark_ns
    script.clock.now_ns += 20_000
    telemetry.on_received(A, 16, received_ns=start_ns - MS)
    script.step(piece("a", 0, 16, 1), ms=10, admitted=(A,), ended={"a": LENGTH})
    found = spent(telemetry.cost([A]))
    assert found.pop("accept") == MS
    assert sum(found.values()) == 10 * MS


def test_all_pieces_are_named_once() -> None:
    fields: dict[str, Any] = Piece.__members__
    assert len({str(piece) for piece in Piece}) == len(fields)
