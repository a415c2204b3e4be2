"""Shows what serves: engine, model, build, faults, HTTP responses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.metadata import version

from core.wire import Ready
from telemetry.books.ledger import OTHER
from telemetry.series.labels import CODES, FAULTS, ROUTES
from telemetry.series.registry import Counter, Instruments


class ServiceSeries:
    """Gauges of value 1 carry facts in their labels; a new engine replaces them."""

    def __init__(self, make: Instruments) -> None:
        self._make = make
        self._up = make.gauge("engine_up")
        self._restarts = make.counter("engine_restarts_total")
        self._faults = make.counters("engine_faults_total", "kind")
        self._coverage = make.gauges("cost_model_coverage_ratio", "of")
        self._weights = make.gauges("step_weight_bytes", "copy")
        self._responses: dict[tuple[str, str], Counter] = {}
        self._started = False
        make.gauge("build_info", version=version("floorline")).set(1)

    def ready(self, ready: Ready, coverage: Mapping[str, float], step_weight_bytes: int) -> None:
        self._up.set(1)
        self._restarts.inc(self._started)
        self._started = True
        for part, ratio in coverage.items():
            self._coverage[part].set(ratio)
        checkpoint = ready.checkpoint
        self._weights["checkpoint"].set(math.nan if checkpoint is None else checkpoint.step_bytes)
        self._weights["served"].set(step_weight_bytes)
        for name in ("model_info", "kernel_info"):
            self._make.clear(name)
        self._make.gauge(
            "model_info",
            weights=str(ready.weights),
            kv_dtype=str(ready.kv_dtype),
            parameters=str(ready.model.parameters),
            layers=str(ready.model.num_layers),
            hidden_size=str(ready.model.hidden_size),
        ).set(1)
        self._make.gauge("kernel_info", backend=ready.backend, isa=ready.isa).set(1)

    def down(self) -> None:
        self._up.set(0)

    def fault(self, kind: str) -> None:
        self._faults[kind if kind in FAULTS else OTHER].inc(1)

    def response(self, route: str, code: int) -> None:
        key = (route if route in ROUTES else OTHER, str(code) if str(code) in CODES else OTHER)
        if key not in self._responses:
            self._responses[key] = self._make.counter(
                "http_responses_total", route=key[0], code=key[1]
            )
        self._responses[key].inc(1)
