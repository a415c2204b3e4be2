"""An engine made of messages: it keeps a clock and sends what a real one would."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from core.formats import KVFormat, MatrixFormat, Storage, WeightFormat
from core.request import FinishReason, RequestId
from core.settings import TelemetrySettings
from core.wire import Ended, Fault, Idle, PoolState, Ready, SliceRecord
from costmodel.storage import kv_bytes_per_token, weight_bytes
from telemetry.bill.cost import CostObject
from telemetry.telemetry import Telemetry
from tests.fakes import FakeClock
from tests.unit.costmodel.models import POOL, TINYGPT, peaks, report

MS = 1_000_000
NUM_BLOCKS, BLOCK_SIZE = 64, 16


def ready(ready_ns: int, **changes: object) -> Ready:
    fields: dict[str, object] = {
        "ready_ns": ready_ns,
        "model": TINYGPT,
        "model_dir": "",
        "weights": WeightFormat.FP32,
        "storage": Storage(MatrixFormat.FP32),
        "kv_dtype": KVFormat.FP32,
        "weight_bytes": weight_bytes(TINYGPT, Storage(MatrixFormat.FP32)),
        "kv_bytes": NUM_BLOCKS * BLOCK_SIZE * kv_bytes_per_token(TINYGPT, KVFormat.FP32),
        "block_size": BLOCK_SIZE,
        "num_blocks": NUM_BLOCKS,
        "max_model_len": 1024,
        "threads": 2,
        "peaks": peaks(),
        "backend": "torch",
        "isa": "avx2",
        "max_num_seqs": 4,
        "max_step_tokens": 128,
    }
    return Ready(**(fields | changes))  # type: ignore[arg-type]


class Scripted:
    """Drives one `Telemetry` with a fake clock that both sides share."""

    def __init__(self, settings: TelemetrySettings | None = None, **changes: object) -> None:
        self.clock = FakeClock()
        self.telemetry = Telemetry("tiny", settings or TelemetrySettings(), clock=self.clock)
        self.start(**changes)
        self.index = 0

    def start(self, **changes: object) -> None:
        self.telemetry.on_ready(ready(self.clock.now_ns, **changes))
        self.mark_ns = self.clock.now_ns

    def receive(self, id: str, prompt_tokens: int = 32, tenant: str = "default") -> RequestId:
        self.telemetry.on_received(RequestId(id), prompt_tokens, tenant)
        return RequestId(id)

    def step(
        self,
        *slices: SliceRecord,
        ms: int = 10,
        ended: dict[str, FinishReason] | None = None,
        pool: PoolState = POOL,
        **changes: Any,
    ) -> None:
        """Run a step of `ms` from the last record's end: 8 parts forward, 1 sample, 1 host."""
        self.index += 1
        self.clock.now_ns = end_ns = self.mark_ns + ms * MS
        self.telemetry.on_report(
            report(
                *slices,
                index=self.index,
                start_ns=self.mark_ns,
                end_ns=end_ns,
                forward_ns=8 * ms * MS // 10,
                sample_ns=ms * MS // 10,
                ended=_ended(ended),
                pool=pool,
                **changes,
            )
        )
        self.mark_ns = end_ns

    def measure(self, ms: int) -> None:
        """Measure the peaks from now on; `ms` later something else comes."""
        self.telemetry.on_idle(Idle(self.mark_ns, 0, (), POOL, measuring=True))
        self.clock.now_ns = self.mark_ns = self.mark_ns + ms * MS

    def idle(self, ms: int, ended: dict[str, FinishReason] | None = None) -> None:
        """Rest after 50 µs of publishing; work comes `ms` later."""
        start_ns = self.mark_ns + 50_000
        self.clock.now_ns = start_ns
        self.telemetry.on_idle(Idle(start_ns, 50_000, _ended(ended), POOL))
        self.clock.now_ns = self.mark_ns = start_ns + ms * MS

    def fault(self, ms: int, ended: dict[str, FinishReason], kind: str = "RuntimeError") -> None:
        self.clock.now_ns = end_ns = self.mark_ns + ms * MS
        self.telemetry.on_fault(Fault(kind, "", self.mark_ns, end_ns, _ended(ended), POOL))
        self.mark_ns = end_ns

    def scrape(self) -> Scrape:
        return Scrape(self.telemetry.render().decode())


def ns(ms: float | None) -> int:
    assert ms is not None
    return round(ms * 1e6)


def assert_phases_add_up(cost: CostObject) -> None:
    assert ns(cost.prefill_floor_ms) + ns(cost.decode_floor_ms) == ns(cost.floor_ms)
    assert ns(cost.prefill_lost_ms) + ns(cost.decode_lost_ms) == ns(cost.lost_ms)


class Scrape:
    """What a scrape says, read from its text alone."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = [s for f in text_string_to_metric_families(text) for s in f.samples]

    def __call__(self, name: str, **labels: str) -> float:
        """Sum the series of `name` that carry `labels`; there must be one."""
        found = [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"no series {name} {labels}"
        return sum(found)

    def has(self, name: str, **labels: str) -> bool:
        return any(s.name == name and labels.items() <= s.labels.items() for s in self.samples)


def _ended(reasons: dict[str, FinishReason] | None) -> tuple[Ended, ...]:
    return tuple(Ended(RequestId(id), reason) for id, reason in (reasons or {}).items())
