"""The worked example of docs/cost-model.md, computed anew and compared to the letter."""

from __future__ import annotations

from pathlib import Path

from core.formats import KVFormat, MatrixFormat, Storage
from core.wire import StepReport
from costmodel.account import StepAccounts
from costmodel.sums import ModelSums
from tests.unit.costmodel.models import TINYGPT, account_step, peaks, piece, report, shares_of

PAGE = Path(__file__).parents[3] / "docs/cost-model.md"
ARITHMETIC = ModelSums.of(TINYGPT, Storage(MatrixFormat.FP32), KVFormat.FP32)
MS = 1_000_000

# Request a: 32 prompt tokens; b: 24. Each step: 1 ms of host time, 0.5 ms of sampling.
STEPS = (
    (8, 29, (piece("a", 0, 32),)),
    (7, 25, (piece("a", 32, 1), piece("b", 0, 24))),
    (4, 2, (piece("a", 33, 1), piece("b", 24, 1))),
    (4, 2, (piece("a", 34, 1), piece("b", 25, 1))),
)


def records() -> list[StepReport]:
    made, start_ns = [], 0
    for index, (forward_ms, distinct, slices) in enumerate(STEPS, 1):
        end_ns = start_ns + forward_ms * MS + 3 * MS // 2
        made.append(
            report(
                *slices,
                index=index,
                start_ns=start_ns,
                end_ns=end_ns,
                forward_ns=forward_ms * MS,
                sample_ns=MS // 2,
                distinct_token_ids=distinct,
            )
        )
        start_ns = end_ns
    return made


def accounts() -> list[StepAccounts]:
    return [account_step(ARITHMETIC, peaks(), record, {}) for record in records()]


def steps_table() -> str:
    lines = [
        "| step | slices | bytes | FLOPs | bytes / peak | FLOPs / peak | floor | measured |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for record, account in zip(records(), accounts(), strict=True):
        slices = ", ".join(f"{s.id}: {s.length} after {s.start}" for s in record.slices)
        work, floor = account.work, account.floors
        assert floor.known
        lines.append(
            f"| {record.index} | {slices} | {work.bytes_total.item():,} | {work.flops.item():,} "
            f"| {floor.memory_s.item() * 1e3:.3f} ms | {floor.compute_s.item() * 1e3:.3f} ms "
            f"| {floor.ns.item() / 1e6:.6f} ms | {account.wall_ns.item() / 1e6:.1f} ms |"
        )
    return "\n".join(lines)


def bills_table() -> str:
    sums = {"a": [0] * 5, "b": [0] * 5}
    for record, account in zip(records(), accounts(), strict=True):
        for charge in shares_of(account):
            own = sums[record.slices[charge.slice].id]
            own[:] = [a + b for a, b in zip(own, charge[5:10], strict=True)]
    lines = [
        "| | bytes read | bytes written | FLOPs | floor | time |",
        "|---|---|---|---|---|---|",
    ]
    rows = sums | {"sum": [a + b for a, b in zip(sums["a"], sums["b"], strict=True)]}
    for name, (read, written, flops, floor_ns, time_ns) in rows.items():
        lines.append(
            f"| {name} | {read:,} | {written:,} | {flops:,} "
            f"| {floor_ns / 1e6:.6f} ms | {time_ns / 1e6:.6f} ms |"
        )
    return "\n".join(lines)


def time_sentence() -> str:
    lost_ns: dict[str, int] = {}
    for account in accounts():
        for cause, ns in account.lost_of(0).items():
            lost_ns[cause] = lost_ns.get(cause, 0) + ns
    wall_ns = sum(account.wall_ns.item() for account in accounts())
    floor_ns = sum(account.useful_floor_ns.item() for account in accounts())
    lost = ", ".join(f"{cause} {ns / 1e6:.6f} ms" for cause, ns in sorted(lost_ns.items()))
    return f"Of {wall_ns / 1e6:.6f} ms, {floor_ns / 1e6:.6f} ms are useful floor; lost are {lost}."


def test_the_page_says_where_the_time_went() -> None:
    assert time_sentence() in PAGE.read_text("utf-8")


def test_the_page_shows_the_steps_as_they_are_computed() -> None:
    assert steps_table() in PAGE.read_text("utf-8")


def test_the_page_shows_the_bills_as_they_are_computed() -> None:
    assert bills_table() in PAGE.read_text("utf-8")


def test_the_bills_of_the_page_sum_to_its_steps() -> None:
    for account in accounts():
        assert sum(c.bytes_read + c.bytes_written for c in shares_of(account)) == (
            account.work.bytes_total
        )
        assert sum(c.time_ns for c in shares_of(account)) == account.wall_ns
        assert account.useful_floor_ns + sum(account.lost_of(0).values()) == account.wall_ns
