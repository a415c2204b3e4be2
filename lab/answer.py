"""A plan as one dictionary, from which text, JSON and page are drawn.

Names end in their unit; None is "not known", or "no limit" where it stands for a count.
"""

from __future__ import annotations

import math
from typing import Any

from costmodel.capacity import crossover_tokens
from costmodel.floor import Floor
from costmodel.levers import levers
from costmodel.planning import Decoding, Scenario, curve
from lab.question import Question


def answer(question: Question) -> dict[str, Any]:
    """Answer for every device; the model's own numbers stand once."""
    scenarios = [question.scenario(device) for device in question.devices]
    priced = zip(scenarios, question.prices, strict=True)
    return {
        "model": _model(question, scenarios[0]),
        "context_tokens": question.context,
        "concurrency": question.concurrency,
        "devices": [_device(question, scenario, price) for scenario, price in priced],
    }


def _model(question: Question, scenario: Scenario) -> dict[str, Any]:
    totals, context = scenario.totals, question.context
    kv_bytes, weight_bytes = totals.kv_token_bytes, totals.weight_bytes
    request_bytes = context * kv_bytes
    work = totals.work(1, context, 1)
    crossover = crossover_tokens(weight_bytes, kv_bytes) if kv_bytes else None
    return {
        "name": question.name,
        "parameters": totals.parameters,
        "longest_context_tokens": question.longest,
        "weights": question.weights.name,
        "weight_bytes": weight_bytes,
        "kv_dtype": question.kv.name,
        "kv_bytes_per_token": kv_bytes or None,
        "kv_bytes_per_request": request_bytes or None,
        "kv_bytes_at_concurrency": question.concurrency * request_bytes or None,
        "weights_share_of_storage": weight_bytes / (weight_bytes + request_bytes),
        "weights_share_of_step": work.weight_bytes / work.bytes,
        "crossover_tokens": crossover,
        "crossover_requests": crossover / context if crossover else None,
        "prefill_matrix_flops": context * totals.linear_flops_per_token
        + totals.lm_head_flops_per_row,
        "prefill_flops": totals.work(1, 0, context).flops,
    }


def _device(question: Question, scenario: Scenario, price: float | None) -> dict[str, Any]:
    device, batch = scenario.device, question.concurrency
    alone = scenario.weights_alone()
    prefills = {"alone": scenario.prefill(), "all_at_once": scenario.prefill(batch)}
    fit = scenario.requests_that_fit
    return {
        "name": device.name,
        "source": device.source,
        "bytes_per_s": device.bytes_per_s,
        "flops_per_s": _finite(device.flops_per_s),
        "memory_bytes": _finite(device.memory_bytes),
        "price_usd_per_hour": price,
        "weights_fit": scenario.weights_fit,
        "requests_that_fit": fit,
        "concurrency_fits": scenario.weights_fit and (fit is None or batch <= fit),
        "weights_alone": {"floor_ms": alone.s * 1e3, "tokens_per_s": 1 / alone.s},
        "prefill": {name: _floor(floor) for name, floor in prefills.items()},
        "decode_alone": _decode(scenario.decode(1), price),
        "decode": _decode(scenario.decode(batch), price),
        "goals": _goals(question, scenario),
        "curve": [_decode(point, price) for point in curve(scenario, batch)],
        "levers": _levers(question, scenario),
        "speculation": _speculation(question, scenario),
        "measured": _measured(question, scenario),
    }


def _floor(floor: Floor) -> dict[str, Any]:
    return {
        "floor_ms": floor.s * 1e3,
        "memory_ms": floor.memory_s * 1e3,
        "compute_ms": floor.compute_s * 1e3,
        "regime": "memory" if floor.memory_bound else "compute",
    }


def _decode(point: Decoding, price: float | None) -> dict[str, Any]:
    return {
        "batch": point.batch,
        "itl_ms": point.itl_s * 1e3,
        "tokens_per_s": point.tokens_per_s,
        "usd_per_million_tokens": None if price is None else point.usd_per_million_tokens(price),
        "weight_bytes": point.work.weight_bytes,
        "kv_bytes": point.work.kv_bytes,
        "flops": point.work.flops,
        **_floor(point.floor),
    }


def _goals(question: Question, scenario: Scenario) -> dict[str, Any]:
    """Find the largest batch: within the memory alone, and within each goal."""
    bounds = {"memory": math.inf} | ({"itl": question.itl_goal_s} if question.itl_goal_s else {})
    goals: dict[str, Any] = {}
    for name, goal_s in bounds.items():
        limit = scenario.largest_batch(goal_s)
        unbounded = limit.binding is None
        goals[name] = {
            "goal_ms": _finite(goal_s * 1e3),
            "largest_batch": None if unbounded else limit.batch,
            "binding": limit.binding and str(limit.binding),
        }
    if question.ttft_goal_s:
        prompts = scenario.prompts_within(question.ttft_goal_s)
        goals["ttft"] = {"goal_ms": question.ttft_goal_s * 1e3, "prompts_at_once": prompts}
    return goals


def _levers(question: Question, scenario: Scenario) -> list[dict[str, Any]]:
    batch = question.concurrency
    now, ttft_s = scenario.decode(batch), scenario.prefill().s
    rows = []
    for lever in levers(scenario, batch, question.speculation):
        then = lever.decode
        rows.append(
            {
                "lever": lever.name,
                "term": lever.term,
                "itl_ms": then.itl_s * 1e3,
                "tokens_per_s": then.tokens_per_s,
                "throughput_gain": then.tokens_per_s / now.tokens_per_s,
                "ttft_gain": ttft_s / lever.scenario.prefill().s,
                "requests_that_fit": lever.scenario.requests_that_fit,
            }
        )
    return rows


def _speculation(question: Question, scenario: Scenario) -> dict[str, Any] | None:
    spec = question.speculation
    if spec is None:
        return None
    plain, batch = scenario.decode(question.concurrency), question.concurrency
    (lever,) = [lever for lever in levers(scenario, batch, spec) if lever.scenario.speculation]
    return {
        "tokens_per_pass": spec.tokens_per_pass,
        "itl_ms": lever.decode.itl_s * 1e3,
        "speedup": plain.itl_s / lever.decode.itl_s,
    }


def _measured(question: Question, scenario: Scenario) -> dict[str, Any] | None:
    """Hold a claimed rate against the floor at this concurrency; above it nobody can be."""
    rate = question.measured_tokens_per_s
    if rate is None:
        return None
    ceiling = scenario.decode(question.concurrency).tokens_per_s
    possible = rate <= ceiling
    return {
        "tokens_per_s": rate,
        "ceiling_tokens_per_s": ceiling,
        "possible": possible,
        "efficiency": rate / ceiling if possible else None,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
