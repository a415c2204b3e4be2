"""Read recorded arrivals: Azure 2023 CSV, BurstGPT CSV, Mooncake JSONL. Nothing is sent here."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from core.errors import SettingsError


@dataclass(frozen=True, slots=True)
class TraceRow:
    t_s: float
    prompt_tokens: int
    output_tokens: int


def read_trace(path: str) -> list[TraceRow]:
    """Read a whole trace, times from its first row on. Rows without output (failures) are left out.

    Raises:
        SettingsError: the file or one row cannot be read; names the line.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in _rows(path, file) if row.output_tokens > 0]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--trace {path}: {error}") from None
    if not rows:
        raise SettingsError(f"--trace {path}: no requests in it")
    rows.sort(key=lambda row: row.t_s)
    start_s = rows[0].t_s
    return [replace(row, t_s=row.t_s - start_s) for row in rows]


def _azure(row: dict[str, str]) -> TraceRow:
    # fromisoformat takes six digits of fraction; the files have seven
    stamp = datetime.fromisoformat(row["TIMESTAMP"].strip()[:26])
    t_s = (stamp - datetime(2023, 1, 1)).total_seconds()
    return TraceRow(t_s, int(row["ContextTokens"]), int(row["GeneratedTokens"]))


def _burstgpt(row: dict[str, str]) -> TraceRow:
    prompt, output = int(row["Request tokens"]), int(row["Response tokens"])
    return TraceRow(float(row["Timestamp"]), prompt, output)


def _mooncake(line: str) -> TraceRow:
    row = json.loads(line)
    t_s = float(row["timestamp"]) / 1000
    return TraceRow(t_s, int(row["input_length"]), int(row["output_length"]))


CSV_READERS = {"TIMESTAMP": _azure, "Timestamp": _burstgpt}


def _rows(path: str, file: TextIO) -> Iterator[TraceRow]:
    first = file.readline()
    file.seek(0)
    reader: Callable[[Any], TraceRow] | None = _mooncake
    numbered: Iterator[tuple[int, Any]] = (
        (n, line) for n, line in enumerate(file, 1) if line.strip()
    )
    if not first.lstrip().startswith("{"):
        table = csv.DictReader(file)
        columns = table.fieldnames or ()
        reader = next((CSV_READERS[name] for name in columns if name in CSV_READERS), None)
        numbered = ((table.line_num, row) for row in table)
    if reader is None:
        raise SettingsError(f"--trace {path}: neither Azure, BurstGPT nor Mooncake by line 1")
    for number, raw in numbered:
        try:
            row = reader(raw)
            if row.prompt_tokens < 1 or row.output_tokens < 0:
                raise ValueError("a token count below its least value")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsError(f"--trace {path}, line {number}: {error!r}") from None
        yield row
