"""What the tests of `plan` share: models given by hand, and answers without a process."""

from __future__ import annotations

import argparse
import json
from typing import Any

from core.formats import MatrixFormat, Storage
from lab.ask.question import Question
from lab.commands import add_commands
from lab.plan.answer import answer_question
from lab.plan.figures import as_json
from lab.plan.text import render_plan

SEVEN_B = ("--params", "7e9", "--dtype", "bf16")
SEVEN_B_HEADS = (*SEVEN_B, "--layers", "32", "--kv-heads", "32", "--head-dim", "128")
BILLION = ("--params", "1e9", "--layers", "16", "--kv-heads", "8", "--head-dim", "128")

MIXED = Storage(  # as a checkpoint may have them: of lm_head's 260 rows, 272 are stored
    MatrixFormat.INT4_G32,
    panels=True,
    exceptions=(("embed", MatrixFormat.INT8_G32), ("lm_head", MatrixFormat.FP16)),
)


def asked(*words: str) -> Question:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    return Question.read(parser.parse_args(["plan", *words]))


def plan(*words: str) -> dict[str, Any]:
    """Give the plan as its JSON is read back, so that nothing in it is no JSON."""
    found = as_json(answer_question(asked(*words)))
    shown: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
    return shown


def text(*words: str) -> str:
    return render_plan(answer_question(asked(*words)))


def only(plan: dict[str, Any]) -> dict[str, Any]:
    (device,) = plan["devices"]
    return dict(device)
