"""What holds for every test: drawn examples are the same in each run, and none is timed."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,  # a busy machine may stand still in any example
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")
