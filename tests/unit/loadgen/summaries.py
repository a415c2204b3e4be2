"""A summary of a run that never was, for tests of what is made from summaries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loadgen.load.plan import make_plan
from loadgen.load.spec import PlanSpec, RunSpec
from loadgen.report.summary import Summary, report
from loadgen.run.campaign import Run
from loadgen.run.target import PromptSource, Target


def summary_of(mean_inflight: float = 0.0, **more: Any) -> Summary:
    """Report on a plan of which nothing was sent, with the fields in `more` instead of its own."""
    prompts = PromptSource(pool=[1], exact=True, label="token ids, exact")
    target = Target(
        "http://nowhere", "none", "completions", prompts, floorline=False, metrics=False
    )
    plan = make_plan(PlanSpec(rate=1.0, requests=1))
    empty = report(Run(plan, RunSpec(), target, "", [], [], [], interrupted=False))
    return replace(empty, **{"client": replace(empty.client, mean_inflight=mean_inflight), **more})
