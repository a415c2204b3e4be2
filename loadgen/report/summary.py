"""From a run to its summary, from which every other output is drawn, and to `run.json` and back."""

from __future__ import annotations

import json
import math
import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from core.errors import SettingsError
from loadgen.load.spec import parse_slo
from loadgen.report import measure
from loadgen.report.bill import Bill, bill_of, price_of
from loadgen.report.join import ServerView, ServerWork, floors_ms, server_view, work_of
from loadgen.report.stats import QUANTILES, Distribution
from loadgen.report.verdict import ClientVerdict, Exit, client_verdict, exit_code
from loadgen.run.campaign import Run
from loadgen.run.record import Record
from loadgen.run.scrape import divide

SCHEMA = 3
SECRET = ("api_key", "header")


@dataclass(frozen=True, slots=True)
class Host:
    system: str
    cores: int | None


@dataclass(frozen=True, slots=True)
class PlanFacts:
    sha256: str
    requests: int
    spec: dict[str, Any]  # as the plan's file holds it


@dataclass(frozen=True, slots=True)
class PromptFacts:
    label: str
    nonce: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All that a run shows. The fields' names and order are those of run.json."""

    schema: int
    version: str
    url: str
    model: str
    started: str
    host: Host
    plan: PlanFacts
    run: dict[str, Any]  # the options of the run; keys and headers stay out
    prompts: PromptFacts
    definitions: dict[str, str]
    interrupted: bool
    valid: bool
    client: ClientVerdict
    sent: int
    counted: int
    failed: int
    outcomes: dict[str, int]
    rates: measure.Throughput
    metrics: dict[str, Distribution]
    metrics_with_failures: dict[str, Distribution] | None  # each failure an endless wait
    floors_ms: dict[str, float | None]
    slos: list[measure.Judgement]
    attainment: float | None
    server: ServerView | None
    work: ServerWork | None
    bill: Bill
    causes: list[Exit]
    exit_code: Exit


def report(run: Run) -> Summary:
    """Draw every conclusion from a run. The exit code is among them."""
    spec, plan, target = run.spec, run.plan, run.target
    records = measure.counted(run.records, spec.warmup)
    slos = [slo for text in spec.slo for slo in parse_slo(text)]
    failed = sum(record.failed for record in records)
    good = sum(measure.is_good(record, slos) for record in records)
    judged = [measure.judge(slo, records) for slo in slos]
    client = client_verdict(run.records, run.healths)
    rates = measure.rates(run.records, spec.warmup, _span_s(run, records))
    server = server_view(run.scrapes, spec.warmup)
    ended = [record for record in run.records if record.end_s >= spec.warmup]
    price = price_of(spec.price_per_hour, rates, sum(measure.is_good(r, slos) for r in ended))
    account = bill_of(run.records, run.scrapes, target.prompts.exact, price)
    error_rate = failed / len(records) if records else 0.0
    causes = _causes(spec.max_error_rate < error_rate, run, client, account, judged)
    return Summary(
        schema=SCHEMA,
        version=version("floorline"),
        url=target.url,
        model=target.model,
        started=run.started,
        host=Host(platform.platform(), os.cpu_count()),
        plan=PlanFacts(plan.sha256, len(plan.requests), plan.spec),
        run={name: value for name, value in asdict(spec).items() if name not in SECRET},
        prompts=PromptFacts(target.prompts.label, target.prompts.nonce),
        definitions=measure.DEFINITIONS | {"words": measure.WORDS},
        interrupted=run.interrupted,
        valid=client.valid,
        client=client,
        sent=len(run.records),
        counted=len(records),
        failed=failed,
        outcomes=measure.outcomes(run.records),
        rates=rates,
        metrics=measure.all_metrics(records),
        metrics_with_failures=measure.with_failures(records) if failed else None,
        floors_ms=floors_ms(records, server),
        slos=judged,
        attainment=divide(good, len(records)),
        server=server,
        work=work_of(run.scrapes, records),
        bill=account,
        causes=sorted(causes),
        exit_code=exit_code(causes),
    )


def _causes(
    errors: bool,
    run: Run,
    client: ClientVerdict,
    account: Bill,
    judged: Sequence[measure.Judgement],
) -> set[Exit]:
    causes = {
        Exit.INTERRUPTED: run.interrupted,
        Exit.CLIENT_LIMITED: not client.valid,
        Exit.UNBALANCED: account.balanced is False,
        Exit.ERRORS: errors,
        Exit.SLO_MISSED: any(verdict.met is False for verdict in judged),
    }
    return {code for code, holds in causes.items() if holds}


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


def as_json(summary: Summary) -> dict[str, Any]:
    """Give what run.json holds."""
    found = asdict(summary, dict_factory=_json_object)
    found["server"] = found["server"] or {}
    found["bill"] |= found["bill"].pop("price") or {}
    return found


def _json_object(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Write an endless wait as "inf": JSON has no number for it."""
    return {name: "inf" if value == math.inf else value for name, value in fields}


def _from_json(found: dict[str, Any]) -> Summary:
    """Give the summary that `as_json` was given."""
    bill = found["bill"]
    bill["price"] = dict(bill) if "window_usd" in bill else None
    found["server"] = found["server"] or None
    return msgspec.convert(found, Summary, strict=False)  # not strict, so that "inf" is a number


def write_run(folder: Path, summary: Summary, records: Sequence[Record]) -> None:
    """Write the records, the summary, and its metrics as one row each; an empty cell is n/a."""
    bounds = [f"{name}{part}" for name in QUANTILES for part in ("", "_lo", "_hi")]
    rows: list[list[Any]] = [["metric", "unit", "n", "mean", *bounds]]
    for metric, numbers in summary.metrics.items():
        rows.append([metric, numbers.unit, numbers.n, numbers.mean])
        for found in numbers.percentiles().values():
            rows[-1] += [found.value, found.lo, found.hi] if found else [None] * 3
    shown = (",".join("" if cell is None else str(cell) for cell in row) for row in rows)
    write_file(folder / "run.csv", "".join(f"{row}\n" for row in shown))
    lines = (json.dumps(asdict(record)) for record in records)
    write_file(folder / "requests.jsonl", "".join(f"{line}\n" for line in lines))
    write_file(folder / "run.json", json.dumps(as_json(summary), indent=1) + "\n")


def read_run(folder: str) -> tuple[Summary, list[Record]]:
    """Read what `write_run` wrote.

    Raises:
        SettingsError: no run there, or one of another schema.
    """
    try:
        found = json.loads((Path(folder) / "run.json").read_text(encoding="utf-8"))
        lines = (Path(folder) / "requests.jsonl").read_text(encoding="utf-8").splitlines()
        if found["schema"] != SCHEMA:
            raise SettingsError(f"{folder}: schema {found['schema']}, not {SCHEMA}")
        return _from_json(found), [Record(**json.loads(line)) for line in lines]
    except OSError as error:
        told = f"no run to read: {error.filename}: {error.strerror}"
        raise SettingsError(told) from None
    except (ValueError, KeyError, TypeError):
        raise SettingsError(f"{folder}: no run to read: not what --out wrote") from None
