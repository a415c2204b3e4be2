"""The command line: read options, hand over, print. No number is computed here."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from core.errors import SettingsError
from loadgen import compare, selftest, sweep
from loadgen.campaign import Run, run_plan
from loadgen.measure import counted
from loadgen.options import Parser, add_aliases, gather, load_parser
from loadgen.plan import Plan, load_plan, make_plan
from loadgen.predict import work_of
from loadgen.report import prepare_folder, read_run, report, write_file, write_run
from loadgen.spec import OutputSpec, PlanSpec, RunSpec, positive
from loadgen.table import render
from loadgen.verdict import Exit


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command that sends was asked for."""

    url: str
    plan: PlanSpec
    run: RunSpec
    output: OutputSpec
    folder: Path | None

    @staticmethod
    def of(given: argparse.Namespace) -> Asked:
        output = gather(OutputSpec, given)
        plan, run = gather(PlanSpec, given), gather(RunSpec, given)
        folder = prepare_folder(output.out) if output.out else None
        return Asked(given.url, plan, run, output, folder)

    def show(self, summary: Any, text: str) -> None:
        print(json.dumps(summary) if self.output.format == "json" else text)


def send(asked: Asked, plan: Plan, folder: Path | None) -> tuple[Run, dict[str, Any]]:
    """Run a plan and write its files."""
    run = asyncio.run(run_plan(asked.url, plan, asked.run, asked.output.quiet))
    summary = report(run)
    if folder:
        from loadgen.html import run_page  # plotly takes a second to import

        write_run(folder, summary, run.records)
        write_file(folder / "report.html", run_page(summary, run.records))
    return run, summary


def run_command(argv: Sequence[str]) -> int:
    """Plan, run, report."""
    parser = load_parser("run")
    add_aliases(parser)
    given = parser.parse_args(argv)
    spec = gather(PlanSpec, given)
    plan = load_plan(given.plan) if given.plan else make_plan(spec)
    asked = Asked.of(given)
    _, summary = send(asked, plan, asked.folder)
    asked.show(summary, render(summary))
    return int(summary["exit_code"])


def plan_command(argv: Sequence[str]) -> int:
    """Make a plan and write it."""
    parser = load_parser("plan")
    parser.add_argument("-o", dest="to", required=True, metavar="FILE", help="where to write it")
    given = parser.parse_args(argv)
    plan = make_plan(gather(PlanSpec, given))
    try:
        write_file(Path(given.to), plan.dump())
    except OSError as error:
        raise SettingsError(f"-o {given.to}: {error.strerror}") from None
    print(f"{given.to}: {len(plan.requests)} requests, sha256 {plan.sha256}")
    return Exit.OK


def measure_at(asked: Asked) -> Callable[[float], sweep.Measured]:
    """Bind everything but the rate."""

    def measure(rate: float) -> sweep.Measured:
        plan = make_plan(replace(asked.plan, rate=rate))
        folder = prepare_folder(str(asked.folder / f"rate-{rate:g}")) if asked.folder else None
        run, summary = send(asked, plan, folder)
        work = work_of(run.scrapes, counted(run.records, asked.run.warmup))
        point = sweep.Measured(rate, summary, work)
        if not asked.output.quiet:
            print(sweep.render_row(point), file=sys.stderr)
        return point

    return measure


def show_points(asked: Asked, points: list[sweep.Measured], text: str, **more: Any) -> None:
    """Print and write what several runs have shown together."""
    predicted = sweep.predicted(points)
    rows = [{"rate": p.rate, "work": p.work and asdict(p.work), **p.summary} for p in points]
    summary = {**more, "points": rows, "predicted": predicted}
    if asked.folder:
        from loadgen.html import sweep_page  # plotly takes a second to import

        write_file(asked.folder / "sweep.json", json.dumps(summary, indent=1) + "\n")
        page = sweep_page(text, [point.summary for point in points], predicted)
        write_file(asked.folder / "report.html", page)
    asked.show(summary, text)


def sweep_command(argv: Sequence[str]) -> int:
    """Run one load at several rates."""
    parser = load_parser("sweep")
    parser.add_argument("--rates", required=True, metavar="R,R,…", help="rates to measure")
    given = parser.parse_args(argv)
    try:
        rates = [positive(text) for text in given.rates.split(",")]
    except ValueError as error:
        raise SettingsError(f"--rates {given.rates}: {error}") from None
    asked = Asked.of(given)
    points = sweep.sweep(rates, measure_at(asked))
    show_points(asked, points, sweep.render(points))
    return sweep.combined_exit(points)


def search_command(argv: Sequence[str]) -> int:
    """Find the highest rate that meets the objectives."""
    given = load_parser("search").parse_args(argv)
    asked = Asked.of(given)
    if not asked.run.slo:
        raise SettingsError("search needs an objective, such as --slo ttft.p90=500ms")
    found = sweep.search(asked.plan.rate or 1.0, measure_at(asked))
    last = found.points[-1]
    lines = [sweep.render(found.points), f"highest rate that meets all: {found.passing:g}/s"]
    if found.broken:
        lines.append(f"first to break, at {found.failing:g}/s: {', '.join(found.broken)}")
    if not last.summary["valid"]:
        lines.append(f"ended at {last.rate:g}/s: the client was the limit")
    verdict = {"passing": found.passing, "failing": found.failing, "broken": found.broken}
    show_points(asked, found.points, "\n".join(lines), **verdict)
    if last.interrupted or not last.summary["valid"]:
        return int(last.summary["exit_code"])
    return Exit.OK if found.passing else Exit.SLO_MISSED


def compare_command(argv: Sequence[str]) -> int:
    """Show two stored runs side by side."""
    parser = Parser(prog="loadgen compare")
    parser.add_argument("a")
    parser.add_argument("b")
    given = parser.parse_args(argv)
    print(compare.render(read_run(given.a)[0], read_run(given.b)[0]))
    return Exit.OK


def report_command(argv: Sequence[str]) -> int:
    """Show a stored run again, and draw its page anew."""
    from loadgen.html import run_page  # plotly takes a second to import

    parser = Parser(prog="loadgen report")
    parser.add_argument("folder")
    folder = parser.parse_args(argv).folder
    summary, records = read_run(folder)
    write_file(prepare_folder(folder) / "report.html", run_page(summary, records))
    print(render(summary))
    return int(summary["exit_code"])


def selftest_command(argv: Sequence[str]) -> int:
    """Check the client against a server with known answers, and find its own limit."""
    Parser(prog="loadgen selftest").parse_args(argv)
    return selftest.selftest()


COMMANDS = {
    "run": run_command,
    "sweep": sweep_command,
    "search": search_command,
    "compare": compare_command,
    "plan": plan_command,
    "report": report_command,
    "selftest": selftest_command,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `loadgen`. Bad input is one line on standard error and exit code 1."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = COMMANDS[words.pop(0)] if words and words[0] in COMMANDS else run_command
    try:
        return command(words)
    except SettingsError as error:
        print(f"loadgen: {' '.join(str(error).split())}", file=sys.stderr)
        return Exit.USAGE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has enough; Python must not write the rest when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK


if __name__ == "__main__":
    sys.exit(main())
