"""Read recorded arrivals: Azure 2023 CSV, BurstGPT CSV, Mooncake JSONL. Nothing is sent here."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import SettingsError


class TraceRow(NamedTuple):
    """An arrival and its lengths."""

    t_s: float
    prompt_tokens: int
    output_tokens: int


def _azure_s(text: str) -> float:
    # fromisoformat takes six digits of fraction; the files have seven
    return (datetime.fromisoformat(text.strip()[:26]) - datetime(2023, 1, 1)).total_seconds()


FORMATS: dict[str, Any] = {  # the start's column: how to read it, the columns of token counts
    "TIMESTAMP": (_azure_s, "ContextTokens", "GeneratedTokens"),
    "Timestamp": (float, "Request tokens", "Response tokens"),  # BurstGPT
    "timestamp": (lambda ms: float(ms) / 1000, "input_length", "output_length"),  # Mooncake
}


def read_trace(path: str) -> list[TraceRow]:
    """Read a whole trace, times from its first row on. Rows without output (failures) are left out.

    Raises:
        SettingsError: the file or one row cannot be read; names the line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise SettingsError(f"--trace {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"--trace {path}: not a text in UTF-8") from None
    answered = (row for row in _rows(path, lines) if row.output_tokens > 0)
    rows = sorted(answered, key=lambda row: row.t_s)
    if not rows:
        raise SettingsError(f"--trace {path}: no requests in it")
    return [row._replace(t_s=row.t_s - rows[0].t_s) for row in rows]


def _rows(path: str, lines: list[str]) -> Iterator[TraceRow]:
    table = csv.DictReader(lines)
    numbered: Iterator[tuple[int, Any]] = ((table.line_num, row) for row in table)
    column = next((name for name in FORMATS if name in (table.fieldnames or ())), None)
    if lines and lines[0].lstrip().startswith("{"):
        numbered = ((n, line) for n, line in enumerate(lines, 1) if line.strip())
        column = "timestamp"
    if column is None:
        raise SettingsError(f"--trace {path}: neither Azure, BurstGPT nor Mooncake by line 1")
    read, prompt, output = FORMATS[column]
    for number, raw in numbered:
        try:
            cells = json.loads(raw) if isinstance(raw, str) else raw
            row = TraceRow(read(cells[column]), int(cells[prompt]), int(cells[output]))
            if row.prompt_tokens < 1 or row.output_tokens < 0:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError):
            told = f"no {column} with {prompt} from 1 and {output} from 0"
            raise SettingsError(f"--trace {path}, line {number}: {told}") from None
        yield row
