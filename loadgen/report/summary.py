"""From a run to `run.json`: one dictionary that every other output is drawn from."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from core.errors import SettingsError
from loadgen.load.spec import parse_slo
from loadgen.report import measure
from loadgen.report.bill import bill, money
from loadgen.report.join import floors_ms, server_view
from loadgen.report.predict import work_of
from loadgen.report.stats import QUANTILES
from loadgen.report.verdict import Exit, client_verdict, exit_code
from loadgen.run.campaign import Run
from loadgen.run.record import Record
from loadgen.run.scrape import divide

SCHEMA = 2
SECRET = ("api_key", "header")


def report(run: Run) -> dict[str, Any]:
    """Draw every conclusion from a run. The exit code is among them."""
    spec = run.spec
    records = measure.counted(run.records, spec.warmup)
    slos = [slo for text in spec.slo for slo in parse_slo(text)]
    judged = [measure.judge(slo, records) for slo in slos]
    failed = sum(record.failed for record in records)
    good = sum(measure.is_good(record, slos) for record in records)
    client = client_verdict(run.records, run.healths)
    rates = measure.rates(records, spec.warmup, _span_s(run, records))
    server, work = server_view(run.scrapes, spec.warmup), work_of(run.scrapes, records)
    account = bill(run.records, run.scrapes, run.target.prompts.exact)
    causes = {
        Exit.INTERRUPTED: run.interrupted,
        Exit.CLIENT_LIMITED: not client["valid"],
        Exit.UNBALANCED: account["balanced"] is False,
        Exit.ERRORS: bool(records) and failed / len(records) > spec.max_error_rate,
        Exit.SLO_MISSED: any(verdict["met"] is False for verdict in judged),
    }
    holding = {code for code, holds in causes.items() if holds}
    return _identity(run) | {
        "definitions": measure.DEFINITIONS | {"words": measure.WORDS},
        "interrupted": run.interrupted,
        "valid": client["valid"],
        "client": client,
        "sent": len(run.records),
        "counted": len(records),
        "failed": failed,
        "outcomes": measure.outcomes(run.records),
        "rates": rates,
        "metrics": measure.all_metrics(records),
        "metrics_with_failures": measure.with_failures(records) if failed else None,
        "floors_ms": floors_ms(records, server),
        "slos": judged,
        "attainment": divide(good, len(records)),
        "server": server,
        "work": work and asdict(work),
        "bill": account | money(spec.price_per_hour, rates, len(records) - failed, good),
        "causes": sorted(holding),
        "exit_code": int(exit_code(holding)),
    }


def _identity(run: Run) -> dict[str, Any]:
    """Say what was run, where and how; keys and headers stay out."""
    plan, target = run.plan, run.target
    return {
        "schema": SCHEMA,
        "version": version("floorline"),
        "url": target.url,
        "model": target.model,
        "started": run.started,
        "host": {"system": platform.platform(), "cores": os.cpu_count()},
        "plan": {"sha256": plan.sha256, "requests": len(plan.requests), "spec": plan.spec},
        "run": {name: value for name, value in asdict(run.spec).items() if name not in SECRET},
        "prompts": {"label": target.prompts.label, "nonce": target.prompts.nonce},
    }


def _span_s(run: Run, records: Sequence[Record]) -> float:
    """Give how long the load was offered: by the plan, or up to the last start where it follows
    the server (a closed loop, later turns, an interrupt).
    """
    planned = run.plan.spec["duration"] or run.plan.span_s
    started = max((record.intended_s for record in records), default=0.0)
    return started if run.interrupted else max(planned, started)


def prepare_folder(out: str) -> Path:
    """Make the output folder before anything is sent.

    Raises:
        SettingsError: it cannot be made or written.
    """
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SettingsError(f"--out {out}: {error.strerror}") from None
    return folder


def write_file(path: Path, text: str) -> None:
    """Write all of a file or nothing: beside it first, then in its place.

    Raises:
        SettingsError: it cannot be written there.
    """
    beside = path.parent / f".{path.name}.part"
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}") from None


def write_run(folder: Path, summary: dict[str, Any], records: Sequence[Record]) -> None:
    """Write the records, the summary, and its metrics as one row each; an empty cell is n/a."""
    bounds = [f"{name}{part}" for name in QUANTILES for part in ("", "_lo", "_hi")]
    rows: list[list[Any]] = [["metric", "unit", "n", "mean", *bounds]]
    for metric, numbers in summary["metrics"].items():
        found = [numbers[name] or {} for name in QUANTILES]
        cells = [value.get(part) for value in found for part in ("value", "lo", "hi")]
        rows.append([metric, numbers["unit"], numbers["n"], numbers["mean"], *cells])
    shown = (",".join("" if cell is None else str(cell) for cell in row) for row in rows)
    write_file(folder / "run.csv", "".join(f"{row}\n" for row in shown))
    lines = (json.dumps(asdict(record)) for record in records)
    write_file(folder / "requests.jsonl", "".join(f"{line}\n" for line in lines))
    write_file(folder / "run.json", json.dumps(summary, indent=1) + "\n")


def read_run(folder: str) -> tuple[dict[str, Any], list[Record]]:
    """Read what `write_run` wrote.

    Raises:
        SettingsError: no run there, or one of another schema.
    """
    try:
        summary = json.loads((Path(folder) / "run.json").read_text(encoding="utf-8"))
        lines = (Path(folder) / "requests.jsonl").read_text(encoding="utf-8").splitlines()
        if summary["schema"] != SCHEMA:
            raise SettingsError(f"{folder}: schema {summary['schema']}, not {SCHEMA}")
        return summary, [Record(**json.loads(line)) for line in lines]
    except OSError as error:
        told = f"no run to read: {error.filename}: {error.strerror}"
        raise SettingsError(told) from None
    except (ValueError, KeyError, TypeError):
        raise SettingsError(f"{folder}: no run to read: not what --out wrote") from None
