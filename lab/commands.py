"""`floorline plan` and `floorline lab`: their options, and the order in which things are done.

What takes a second to import waits until a command needs it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from core.errors import SettingsError
from core.inputs.options import named
from lab.ask.options import add_plan_options
from lab.ask.question import Question
from lab.plan.answer import answer_question
from lab.plan.figures import as_json
from lab.plan.text import render_plan
from loadgen.load.spec import filename


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    plan = commands.add_parser(
        "plan", help="predict what a model can do on a device, before anything is bought"
    )
    add_plan_options(plan)
    plan.set_defaults(command=plan_command)
    lab = commands.add_parser(
        "lab", help="run the experiments that teach the arithmetic, on this machine"
    )
    lab.add_argument("which", nargs="*", metavar="N", help="experiments by number; default: all")
    lab.add_argument("--model", default="tinygpt", help="what to measure (default: tinygpt)")
    lab.add_argument("--threads", metavar="N", help="threads of the engine")
    files = "write report.html, lab.json, predictions.json"
    lab.add_argument("--out", type=named(filename, "--out"), metavar="DIR", help=files)
    lab.add_argument("--short", action="store_true", help="fewer conditions, in about a minute")
    lab.set_defaults(command=lab_command)


def plan_command(given: argparse.Namespace) -> int:
    """Answer one question; "no" is an answer, and its exit status is 0 too.

    Raises:
        SettingsError: an option that cannot be used, or a page that cannot be written.
    """
    plan = answer_question(Question.read(given))
    if given.html:
        from lab.plan.page import plan_page

        plan_page(plan).write(Path(given.html))
    print(json.dumps(as_json(plan), indent=1) if given.json else render_plan(plan))
    return 0


def lab_command(given: argparse.Namespace) -> int:
    """Run the experiments that were asked for.

    Raises:
        SettingsError: no such experiment, or a model that cannot be served.
    """
    from lab.experiments import EXPERIMENTS
    from lab.run import Lab, run_lab, server_of

    known = tuple(kind.number for kind in EXPERIMENTS)
    asked = [word for word in given.which if word != "all"]
    for word in asked:
        if not (word.isascii() and word.isdigit() and int(word) in known):
            shown = ", ".join(map(str, known))
            raise SettingsError(f"no experiment {word!r}: one of {shown}, or all")
    lab = Lab(
        numbers=tuple(map(int, asked)) if asked and "all" not in given.which else known,
        model=given.model,
        flags=() if given.threads is None else ("--threads", given.threads),
        short=given.short,
        out=Path(given.out) if given.out else None,
    )
    return run_lab(lab, server_of(lab))
