"""The command line: read options, hand over, print. No number is computed here."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import SettingsError
from loadgen.load.plan import Plan, follows_rate, load_plan, make_plan
from loadgen.load.spec import PlanSpec, RunSpec
from loadgen.options import flags_given, gather, parser_of
from loadgen.report import sweep
from loadgen.report.summary import (
    Summary,
    as_json,
    prepare_folder,
    read_run,
    report,
    write_file,
    write_run,
)
from loadgen.report.verdict import Exit, exit_code
from loadgen.run.campaign import run_plan
from loadgen.run.record import Record
from loadgen.selftest import selftest
from loadgen.show.table import render_pair, render_rate, render_rates, render_run


def _folder(given: Namespace, *inside: str) -> Path | None:
    return prepare_folder(str(Path(given.out, *inside))) if given.out else None


def _send(given: Namespace, plan: Plan, folder: Path | None) -> Summary:
    """Run a plan and write its files."""
    run = asyncio.run(run_plan(given.url, plan, gather(RunSpec, given), given.quiet))
    summary = report(run)
    if folder:
        write_run(folder, summary, run.records)
        _write_page(folder, summary, run.records)
    return summary


def _write_page(folder: Path, summary: Summary, records: Sequence[Record]) -> None:
    from loadgen.show.html import run_page  # plotly takes a second to import

    run_page(summary, records).write(folder / "report.html")


def _measure(given: Namespace, rate: float) -> Summary:
    """Run the load at one rate of several."""
    spec = replace(gather(PlanSpec, given), rate=rate)
    if not follows_rate(spec):
        raise SettingsError(
            "--rate does not change a trace, closed:N or ramp:A-B: nothing to compare"
        )
    plan = make_plan(spec)
    summary = _send(given, plan, _folder(given, f"rate-{rate:g}"))
    if not given.quiet:
        print(render_rate(rate, summary), file=sys.stderr)
    return summary


def _show(given: Namespace, found: dict[str, Any], text: str) -> None:
    print(json.dumps(found) if given.format == "json" else text)


def _show_rates(given: Namespace, runs: dict[float, Summary], text: str, **more: Any) -> None:
    """Print and write what several runs have shown together."""
    predicted = sweep.predicted(runs)
    points = [{"rate": rate, **as_json(summary)} for rate, summary in runs.items()]
    found = {**more, "points": points, "predicted": [asdict(point) for point in predicted]}
    if folder := _folder(given):
        from loadgen.show.html import sweep_page  # plotly takes a second to import

        write_file(folder / "sweep.json", json.dumps(found, indent=1) + "\n")
        sweep_page(text, list(runs.values()), predicted).write(folder / "report.html")
    _show(given, found, text)


def run_command(given: Namespace) -> int:
    """Plan, run, report."""
    stored, load = gather(RunSpec, given).plan, flags_given(PlanSpec, given)
    if stored and load:
        raise SettingsError(
            f"--plan holds the whole load and cannot be combined with {', '.join(load)}"
        )
    plan = load_plan(stored) if stored else make_plan(gather(PlanSpec, given))
    summary = _send(given, plan, _folder(given))
    _show(given, as_json(summary), render_run(summary))
    return summary.exit_code


def plan_command(given: Namespace) -> int:
    """Make a plan and write it."""
    plan = make_plan(gather(PlanSpec, given))
    write_file(Path(given.to), plan.dump())
    print(f"{given.to}: {len(plan.requests)} requests, sha256 {plan.sha256}")
    return Exit.OK


def sweep_command(given: Namespace) -> int:
    """Run one load at several rates."""
    runs = sweep.sweep(given.rates, partial(_measure, given))
    _show_rates(given, runs, render_rates(runs))
    return exit_code({summary.exit_code for summary in runs.values()})


def search_command(given: Namespace) -> int:
    """Find the highest rate that meets the objectives."""
    if not gather(RunSpec, given).slo:
        raise SettingsError("search needs an objective, such as --slo ttft.p90=500ms")
    load = gather(PlanSpec, given)

    def lasts_s(rate: float) -> float:
        return make_plan(replace(load, rate=rate)).span_s

    found = sweep.search(load.rate or 1.0, partial(_measure, given), given.time_limit, lasts_s)
    lines = [render_rates(found.runs), f"highest rate that meets all: {found.passing:g}/s"]
    if found.broken:
        lines.append(f"first to break, at {found.failing:g}/s: {', '.join(found.broken)}")
    lines.append(f"stopped: {found.ended}")
    verdict = {name: getattr(found, name) for name in ("passing", "failing", "broken", "ended")}
    _show_rates(given, found.runs, "\n".join(lines), **verdict)
    if found.cut_short:
        return found.last.exit_code
    return Exit.OK if found.passing else Exit.SLO_MISSED


def compare_command(given: Namespace) -> int:
    """Show two stored runs side by side."""
    print(render_pair(read_run(given.a)[0], read_run(given.b)[0]))
    return Exit.OK


def report_command(given: Namespace) -> int:
    """Show a stored run again, and draw its page again."""
    summary, records = read_run(given.folder)
    _write_page(prepare_folder(given.folder), summary, records)
    print(render_run(summary))
    return summary.exit_code


HANDLERS: dict[str, Callable[[Namespace], int]] = {
    "run": run_command,
    "sweep": sweep_command,
    "search": search_command,
    "compare": compare_command,
    "plan": plan_command,
    "report": report_command,
    "selftest": lambda _: selftest(),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `loadgen`. Bad input is one line on standard error and exit code 1."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = words.pop(0) if words and words[0] in HANDLERS else "run"
    try:
        return HANDLERS[name](parser_of(name).parse_args(words))
    except SettingsError as error:
        print(f"loadgen: {' '.join(str(error).split())}", file=sys.stderr)
        return Exit.USAGE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # the reader closed the pipe; Python must not write the rest when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK


if __name__ == "__main__":
    sys.exit(main())
