"""The table of simulated bytes in docs/cost-model.md: whole, and of today's arithmetic."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

from bench.verify_bytes import BATCHES, CONTEXTS, HEADS, LIMIT, kinds, predicted
from core.formats import FILE_OWN, KVFormat, MatrixFormat

PAGE = (Path(__file__).parents[2] / "docs/cost-model.md").read_text("utf-8")


def rows() -> list[list[str]]:
    """Give the cells of the one table that has these heads."""
    (table,) = re.findall(rf"^\| {re.escape(' | '.join(HEADS))} \|\n((?:\|.*\n)+)", PAGE, re.M)
    return [row.strip("| ").split(" | ") for row in table.splitlines()[1:]]


def test_the_table_has_every_width_and_batch() -> None:
    shown = [tuple(row[:3]) for row in rows()]
    assert shown == [(weights, kv, str(batch)) for weights, kv, batch in kinds()]


def test_every_width_and_batch_is_a_case() -> None:
    assert {(weights, batch) for weights, _, batch in kinds()} == set(
        product(MatrixFormat, BATCHES)
    )
    for weights in set(MatrixFormat) - FILE_OWN:
        assert {kv for other, kv, _ in kinds() if other is weights} == set(KVFormat)


def test_the_table_gives_the_bytes_that_the_cost_model_predicts() -> None:
    for weights, kv, batch, *cells in rows():
        for context, shown in zip(CONTEXTS, cells[::2], strict=False):
            step_bytes, _ = predicted(MatrixFormat(weights), KVFormat(kv), context, int(batch))
            assert shown == f"{step_bytes:,}", (weights, kv, batch, context)


def test_the_table_shows_no_step_that_is_off() -> None:
    for row in rows():
        for ratio in (row[4], row[6]):
            assert abs(float(ratio) - 1) <= LIMIT, row
