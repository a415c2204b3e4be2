"""The real run of docs/cost-model.md: its bill is the sum of its records, and the page says so.

`docs/real-run.json` holds records that `bench/record_run.py` took from an engine.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import pytest

from bench.record_run import RealRun
from costmodel.account import StepAccounts
from costmodel.sums import ModelSums
from telemetry.bill.money import TimePrice
from tests.unit.costmodel.models import Share, account_step, shares_of

DOCS = Path(__file__).parents[3] / "docs"


@cache
def run() -> RealRun:
    return msgspec.json.decode((DOCS / "real-run.json").read_bytes(), type=RealRun)


@cache
def accounts() -> tuple[StepAccounts, ...]:
    sums = ModelSums.of(run().model, run().storage, run().kv_dtype)
    return tuple(account_step(sums, run().peaks, record, {}) for record in run().steps)


def own(record: int) -> Share | None:
    """Give the billed request's share of a step, None where it took no part."""
    slices = run().steps[record].slices
    charges = shares_of(accounts()[record])
    return next((c for c in charges if slices[c.slice].id == run().request), None)


def steps_table() -> str:
    lines = [
        "| step | slices | bytes | FLOPs | floor | measured | a's bytes | a's floor | a's time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for index, (record, account) in enumerate(zip(run().steps, accounts(), strict=True)):
        assert account.floors.known
        slices = ", ".join(f"{s.id}: {s.length} after {s.start}" for s in record.slices)
        charge = own(index)
        share = "– | – | –"
        if charge is not None:
            moved = charge.bytes_read + charge.bytes_written
            share = f"{moved:,} | {charge.floor_ns / 1e6:.6f} | {charge.time_ns / 1e6:.6f}"
        work = account.work
        lines.append(
            f"| {record.index} | {slices} | {work.bytes_total.item():,} | {work.flops.item():,} "
            f"| {account.floors.ns.item() / 1e6:.6f} | {account.wall_ns.item() / 1e6:.6f} "
            f"| {share} |"
        )
    return "\n".join(lines)


def bill_table() -> str:
    cost = run().cost
    charges = [charge for index in range(len(run().steps)) if (charge := own(index))]
    sums = {
        "bytes_read": sum(c.bytes_read for c in charges),
        "bytes_written": sum(c.bytes_written for c in charges),
        "flops": sum(c.flops for c in charges),
        "floor_ms": sum(c.floor_ns for c in charges) / 1e6,
        "steps": len(charges),
        "interference_ms": round((walls_ns() - sum(c.time_ns for c in charges)) / 1e6, 6),
    }
    lines = ["| field of `cost` | in the answer | sum over the records |", "|---|---|---|"]
    lines += [f"| `{name}` | {cost[name]:,} | {value:,} |" for name, value in sums.items()]
    return "\n".join(lines)


def walls_ns() -> int:
    """Sum the whole time of the steps that the request took part in."""
    return sum(account.wall_ns.item() for index, account in enumerate(accounts()) if own(index))


@pytest.mark.parametrize(
    "name", ["bytes_read", "bytes_written", "flops", "floor_ms", "steps", "interference_ms"]
)
def test_the_answer_says_what_its_records_sum_to(name: str) -> None:
    row = next(line for line in bill_table().splitlines() if line.startswith(f"| `{name}` |"))
    _, _, answered, summed, _ = row.split("|")
    assert answered == summed


def test_efficiency_and_price_follow_from_the_shares_of_time() -> None:
    charges = [charge for index in range(len(run().steps)) if (charge := own(index))]
    time_ns = sum(charge.time_ns for charge in charges)
    floor_ns = sum(charge.floor_ns for charge in charges)
    assert run().cost["efficiency"] == round(floor_ns / time_ns, 6)
    usd = TimePrice(round(run().usd_per_hour * 1e9)).of_next(time_ns) / 1e9
    assert run().cost["cost_usd"] == pytest.approx(usd, abs=len(charges) * 1e-9)


def test_the_steps_charge_all_that_they_moved_and_all_their_time() -> None:
    for account in accounts():
        assert sum(c.bytes_read for c in shares_of(account)) == account.work.bytes_read
        assert sum(c.flops for c in shares_of(account)) == account.work.flops
        assert sum(c.time_ns for c in shares_of(account)) == account.wall_ns
        assert account.useful_floor_ns + sum(account.lost_of(0).values()) == account.wall_ns


def test_the_run_shows_a_prompt_decode_and_a_shared_prefix() -> None:
    assert any(record.shared for record in run().steps)
    assert {len(record.slices) for record in run().steps} == {1, 2}


@pytest.mark.parametrize("table", [steps_table, bill_table])
def test_the_page_shows_the_run_as_it_is_computed(table: object) -> None:
    assert callable(table)
    assert table() in (DOCS / "cost-model.md").read_text("utf-8")


def test_the_readme_shows_the_same_bill() -> None:
    assert bill_table() in (DOCS.parent / "README.md").read_text("utf-8")
