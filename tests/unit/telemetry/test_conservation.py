"""On random workloads all that is charged sums to all that was spent, read from a scrape alone."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.request import FinishReason, RequestId
from core.settings import TelemetrySettings
from core.wire import SharedRun, SliceRecord
from telemetry.bill.cost import CostObject
from telemetry.history import Timeline
from tests.unit.costmodel.models import peaks, piece
from tests.unit.telemetry.scripted import Scripted, assert_phases_add_up


class Workload:
    """Requests that prefill in chunks, decode, get preempted, aborted, stopped late, and fail."""

    def __init__(self, seed: int, script: Scripted) -> None:
        self.random, self.script = Random(seed), script
        self.computed: dict[str, int] = {}  # of requests that hold blocks
        self.highest: dict[str, int] = {}
        self.known: dict[str, int] = {}
        self.tenants: dict[str, str] = {}
        self.paid: list[CostObject] = []
        self.count = 0

    def run(self, turns: int) -> None:
        for _ in range(turns):
            for action, odds in (
                (self.receive, 0.5),
                (self.idle, 0.1 if not self.known else 0.0),
                (self.measure, 0.05 if not self.known else 0.0),
                (self.late_stop, 0.1),
                (self.abort, 0.05),
                (self.fault, 0.03),
                (self.scrape, 0.1),
            ):
                if self.random.random() < odds:
                    action()
            self.step()

    def receive(self) -> None:
        id, self.count = f"r{self.count}", self.count + 1
        self.known[id] = self.random.randint(1, 60)
        self.highest[id] = 0
        self.tenants[id] = self.random.choice(("red", "blue"))
        self.script.receive(id, self.known[id], tenant=self.tenants[id])

    def step(self) -> None:
        running = [id for id in self.known if id in self.computed or self.random.random() < 0.7]
        if not running:
            return
        admitted = [id for id in running if id not in self.computed]
        slices, ended = [], {}
        for id in running:
            start = self.computed.setdefault(id, 0)
            length = min(self.known[id] - start, self.random.randint(1, 40))
            again = max(min(self.highest[id] - start, length), 0)
            rows = int(start + length == self.known[id])
            slices.append(piece(id, start, length, rows, again, blocks=start // 16 + 1))
            self.computed[id] = start + length
            self.highest[id] = max(self.highest[id], start + length)
            self.known[id] += rows
            if rows and self.random.random() < 0.15:
                ended[id] = self.random.choice((FinishReason.LENGTH, FinishReason.STOP))
        victims = [id for id in self.computed if id not in running and self.random.random() < 0.5]
        shared = ()
        if len(slices) > 1 and min(slices[0].start, slices[1].start) > 16:
            shared = (SharedRun((0, 1), 16),)
        keys = tuple(RequestId(id) for id in admitted)
        self.script.step(
            *slices,
            ms=self.random.randint(0, 30),
            ended=ended,
            admitted=keys,
            preempted=tuple(RequestId(id) for id in victims),
            shared=shared,
            distinct_token_ids=self.random.randint(1, 100),
        )
        for id in victims:
            del self.computed[id]
        self.settle(ended)
        if running and self.random.random() < 0.2 and len(self.computed) > 1:
            self.preempt_alone()

    def preempt_alone(self) -> None:
        """Drop one request's blocks, as the next step's record will say."""
        id = self.random.choice(sorted(self.computed))
        del self.computed[id]
        self.script.step(ms=1, preempted=(RequestId(id),))

    def timeline(self, id: str) -> Timeline:
        timeline = self.script.telemetry.request_timeline(RequestId(id), self.tenants[id])
        assert timeline is not None
        return timeline

    def late_stop(self) -> None:
        for id in list(self.known)[:1]:
            tokens = self.timeline(id).generated_tokens
            if tokens:
                self.script.telemetry.on_finish_sent(RequestId(id), tokens, FinishReason.STOP)

    def abort(self) -> None:
        for id in list(self.known)[:1]:
            ended = {id: FinishReason.ABORTED}
            self.script.step(ms=1, ended=ended)
            self.settle(ended)

    def fault(self) -> None:
        ended = dict.fromkeys(self.computed, FinishReason.FAILED)
        self.script.fault(self.random.randint(0, 9), ended)
        self.settle(ended)

    def idle(self) -> None:
        self.script.idle(self.random.randint(0, 50))

    def measure(self) -> None:
        self.script.measure(self.random.randint(0, 50))

    def scrape(self) -> None:
        self.script.scrape()

    def settle(self, ended: dict[str, FinishReason]) -> None:
        for id in ended:
            self.paid.append(self.script.telemetry.cost([RequestId(id)]))
            self.script.telemetry.forget([RequestId(id)])
            for state in (self.computed, self.highest, self.known):
                state.pop(id, None)

    def bills(self) -> list[CostObject]:
        return self.paid + [self.script.telemetry.cost([RequestId(id)]) for id in self.known]


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32), memory=st.sampled_from((1e8, 1e10, 1e12)))
def test_bills_and_waste_and_idle_sum_to_what_was_spent(seed: int, memory: float) -> None:
    script = Scripted(TelemetrySettings(price_per_hour=7.2), peaks=peaks(bytes_per_s=memory))
    workload = Workload(seed, script)
    workload.run(25)
    scrape, bills = script.scrape(), workload.bills()
    cost = "floorline_cost_usd_total"
    billed_nusd = round(sum(bill.cost_usd or 0.0 for bill in bills) * 1e9)
    used = scrape(cost) - sum(
        s.value for s in scrape.samples if s.labels.get("tenant") == "_shared"
    )
    assert billed_nusd == round(used * 1e9)
    wall = scrape("floorline_engine_wall_seconds_total")
    assert abs(round(scrape(cost) * 1e9) - wall * 7.2 / 3600 * 1e9) <= 1
    lost = scrape("floorline_lost_seconds_total")
    assert scrape("floorline_floor_seconds_total") + lost == pytest.approx(wall, rel=1e-9)
    received = scrape("floorline_requests_received_total")
    assert received == workload.count == scrape("floorline_requests_total") + len(workload.known)
    assert sum(bill.bytes_read for bill in bills) <= scrape(
        "floorline_bytes_moved_total", op="read"
    )
    assert sum(bill.flops for bill in bills) <= scrape("floorline_flops_total")
    for bill in bills:
        assert_phases_add_up(bill)
    useful_s = scrape("floorline_floor_seconds_total")
    assert sum(bill.floor_ms or 0.0 for bill in bills) / 1e3 == pytest.approx(useful_s)
    steps = script.telemetry.recent_steps(10_000)
    assert sum(step.bytes for step in steps) == scrape("floorline_bytes_moved_total")


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_stages_of_a_request_sum_to_its_time_in_the_engine(seed: int) -> None:
    workload = Workload(seed, Scripted())
    workload.run(20)
    now_ns = workload.script.clock.now_ns
    for id in workload.known:
        cost = workload.script.telemetry.cost([RequestId(id)])
        timeline = workload.timeline(id)
        stages_ms = cost.queue_ms + cost.prefill_ms + cost.decode_ms + cost.stalled_ms
        until_ns = timeline.ended_ns or now_ns
        assert stages_ms == pytest.approx((until_ns - timeline.received_ns) / 1e6)


class OneByOne(Scripted):
    """Has each step booked before the next one runs."""

    def step(self, *slices: SliceRecord, **changes: Any) -> None:
        super().step(*slices, **changes)
        self.telemetry.recent_steps(0)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), memory=st.sampled_from((1e8, 1e10, 1e12)))
@example(seed=18825844, memory=1e10)  # a request with as much time in one regime as in another
def test_books_kept_in_bursts_are_those_kept_step_by_step(seed: int, memory: float) -> None:
    priced = TelemetrySettings(price_per_hour=7.2, slo="ttft=20ms,itl=15ms")
    workloads = [
        Workload(seed, script(priced, peaks=peaks(bytes_per_s=memory)))
        for script in (Scripted, OneByOne)
    ]
    for workload in workloads:
        workload.run(25)
    bursts, singles = (workload.script.scrape() for workload in workloads)
    many, one = (
        {(s.name, *sorted(s.labels.items())): s.value for s in scrape.samples}
        for scrape in (bursts, singles)
    )
    assert many.keys() == one.keys()
    for name, value in many.items():
        own = name[0] == "floorline_telemetry_seconds_total"
        assert own or value == pytest.approx(one[name], nan_ok=True), name
    assert workloads[0].bills() == workloads[1].bills()
    steps, ones = (workload.script.telemetry.recent_steps(10_000) for workload in workloads)
    assert steps == ones
