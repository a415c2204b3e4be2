"""The command line: read options, hand over, print. No number is computed here."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.errors import SettingsError
from loadgen import sweep
from loadgen.campaign import run_plan
from loadgen.options import gather, parser_of
from loadgen.plan import Plan, load_plan, make_plan
from loadgen.report import prepare_folder, read_run, report, write_file, write_run
from loadgen.selftest import selftest
from loadgen.spec import OutputSpec, PlanSpec, RunSpec, positive
from loadgen.table import render, render_pair, render_rate, render_rates
from loadgen.verdict import Exit, exit_code


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command that sends was asked for."""

    url: str
    plan: PlanSpec
    run: RunSpec
    output: OutputSpec
    folder: Path | None

    @staticmethod
    def of(given: Namespace) -> Asked:
        output = gather(OutputSpec, given)
        plan, run = gather(PlanSpec, given), gather(RunSpec, given)
        folder = prepare_folder(output.out) if output.out else None
        return Asked(given.url, plan, run, output, folder)

    def send(self, plan: Plan, folder: Path | None) -> dict[str, Any]:
        """Run a plan and write its files."""
        run = asyncio.run(run_plan(self.url, plan, self.run, self.output.quiet))
        summary = report(run)
        if folder:
            from loadgen.html import run_page  # plotly takes a second to import

            write_run(folder, summary, run.records)
            run_page(summary, run.records).write(folder / "report.html")
        return summary

    def measure(self, rate: float) -> dict[str, Any]:
        """Run the load at one rate of several."""
        plan = make_plan(replace(self.plan, rate=rate))
        folder = prepare_folder(str(self.folder / f"rate-{rate:g}")) if self.folder else None
        summary = self.send(plan, folder)
        if not self.output.quiet:
            print(render_rate(rate, summary), file=sys.stderr)
        return summary

    def show(self, summary: Any, text: str) -> None:
        print(json.dumps(summary) if self.output.format == "json" else text)

    def show_rates(self, runs: dict[float, dict[str, Any]], text: str, **more: Any) -> None:
        """Print and write what several runs have shown together."""
        predicted = sweep.predicted(runs)
        points = [{"rate": rate, **summary} for rate, summary in runs.items()]
        summary = {**more, "points": points, "predicted": predicted}
        if self.folder:
            from loadgen.html import sweep_page  # plotly takes a second to import

            write_file(self.folder / "sweep.json", json.dumps(summary, indent=1) + "\n")
            sweep_page(text, points, predicted).write(self.folder / "report.html")
        self.show(summary, text)


def run_command(given: Namespace) -> int:
    """Plan, run, report."""
    spec, stored = gather(PlanSpec, given), gather(RunSpec, given).plan
    plan = load_plan(stored) if stored else make_plan(spec)
    asked = Asked.of(given)
    summary = asked.send(plan, asked.folder)
    asked.show(summary, render(summary))
    return int(summary["exit_code"])


def plan_command(given: Namespace) -> int:
    """Make a plan and write it."""
    plan = make_plan(gather(PlanSpec, given))
    try:
        write_file(Path(given.to), plan.dump())
    except OSError as error:
        raise SettingsError(f"-o {given.to}: {error.strerror}") from None
    print(f"{given.to}: {len(plan.requests)} requests, sha256 {plan.sha256}")
    return Exit.OK


def sweep_command(given: Namespace) -> int:
    """Run one load at several rates."""
    try:
        rates = [positive(text) for text in given.rates.split(",")]
    except ValueError as error:
        raise SettingsError(f"--rates {given.rates}: {error}") from None
    asked = Asked.of(given)
    runs = sweep.sweep(rates, asked.measure)
    asked.show_rates(runs, render_rates(runs))
    return exit_code({Exit(summary["exit_code"]) for summary in runs.values()})


def search_command(given: Namespace) -> int:
    """Find the highest rate that meets the objectives."""
    asked = Asked.of(given)
    if not asked.run.slo:
        raise SettingsError("search needs an objective, such as --slo ttft.p90=500ms")
    found = sweep.search(asked.plan.rate or 1.0, asked.measure)
    lines = [render_rates(found.runs), f"highest rate that meets all: {found.passing:g}/s"]
    if found.broken:
        lines.append(f"first to break, at {found.failing:g}/s: {', '.join(found.broken)}")
    if not found.last["valid"]:
        lines.append("ended there: the client was the limit")
    verdict = {"passing": found.passing, "failing": found.failing, "broken": found.broken}
    asked.show_rates(found.runs, "\n".join(lines), **verdict)
    if found.cut_short:
        return int(found.last["exit_code"])
    return Exit.OK if found.passing else Exit.SLO_MISSED


def compare_command(given: Namespace) -> int:
    """Show two stored runs side by side."""
    print(render_pair(read_run(given.a)[0], read_run(given.b)[0]))
    return Exit.OK


def report_command(given: Namespace) -> int:
    """Show a stored run again, and draw its page anew."""
    from loadgen.html import run_page  # plotly takes a second to import

    summary, records = read_run(given.folder)
    run_page(summary, records).write(prepare_folder(given.folder) / "report.html")
    print(render(summary))
    return int(summary["exit_code"])


def selftest_command(_: Namespace) -> int:
    """Check the client against a server with known answers, and find its own limit."""
    return selftest()


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
    name = words.pop(0) if words and words[0] in COMMANDS else "run"
    try:
        return COMMANDS[name](parser_of(name).parse_args(words))
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
