"""Read recorded arrivals: Azure 2023 CSV, BurstGPT CSV, Mooncake JSONL. Nothing is sent here."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from core.errors import SettingsError


@dataclass(frozen=True, slots=True)
class TraceRow:
    t_s: float
    prompt_tokens: int
    output_tokens: int


Row = dict[str, str]
T = TypeVar("T")


def _azure(row: Row) -> TraceRow:
    # fromisoformat takes six digits of fraction; the files have seven
    stamp = datetime.fromisoformat(row["TIMESTAMP"].strip()[:26])
    t_s = (stamp - datetime(2023, 1, 1)).total_seconds()
    return TraceRow(t_s, int(row["ContextTokens"]), int(row["GeneratedTokens"]))


def _burstgpt(row: Row) -> TraceRow:
    prompt, output = int(row["Request tokens"]), int(row["Response tokens"])
    return TraceRow(float(row["Timestamp"]), prompt, output)


def _mooncake(line: str) -> TraceRow:
    row = json.loads(line)
    t_s = float(row["timestamp"]) / 1000
    return TraceRow(t_s, int(row["input_length"]), int(row["output_length"]))


CSV_READERS: dict[str, Callable[[Row], TraceRow]] = {
    "TIMESTAMP": _azure,
    "Timestamp": _burstgpt,
}


def read_trace(path: str) -> list[TraceRow]:
    """Read a whole trace, times from its first row on. Rows without output (failures) are left out.

    Raises:
        SettingsError: the file or one row cannot be read; names the line.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as lines:
            rows = [row for row in _rows(path, lines) if row.output_tokens > 0]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--trace {path}: {error}") from None
    if not rows:
        raise SettingsError(f"--trace {path}: no requests in it")
    rows.sort(key=lambda row: row.t_s)
    start = rows[0].t_s
    return [TraceRow(row.t_s - start, row.prompt_tokens, row.output_tokens) for row in rows]


def _rows(path: str, lines: Iterable[str]) -> Iterator[TraceRow]:
    iterator = iter(lines)
    first = next(iterator, "")
    if first.lstrip().startswith("{"):
        numbered: Iterable[tuple[int, str]] = enumerate((first, *iterator), 1)
        yield from (_read(path, n, _mooncake, line) for n, line in numbered if line.strip())
        return
    columns = next(csv.reader([first]), [])
    reader = next((CSV_READERS[name] for name in columns if name in CSV_READERS), None)
    if reader is None:
        raise SettingsError(f"--trace {path}: neither Azure, BurstGPT nor Mooncake by line 1")
    for number, cells in enumerate(csv.reader(iterator), 2):
        if cells:
            yield _read(path, number, reader, dict(zip(columns, cells, strict=False)))


def _read(path: str, line: int, reader: Callable[[T], TraceRow], raw: T) -> TraceRow:
    try:
        row = reader(raw)
        if row.prompt_tokens < 1 or row.output_tokens < 0:
            raise ValueError("a token count below its least value")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(f"--trace {path}, line {line}: {error!r}") from None
    return row
