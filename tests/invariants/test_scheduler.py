"""The invariants at the length of a test: the same moves every time.

FLOORLINE_INVARIANTS chooses how long: `quick` for mutants, `suite` else; soak.py runs for long.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

from tests.invariants.machine import SchedulerMachine

QUICK = os.environ.get("FLOORLINE_INVARIANTS") == "quick"

TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=200 if QUICK else 600,
    stateful_step_count=30 if QUICK else 40,
    phases=[Phase.generate] if QUICK else list(Phase),
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
