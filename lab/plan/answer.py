"""A plan as one dictionary, from which text, JSON and page are drawn.

Names end in their unit; None is "not known", or "no limit" where it stands for a count. `fits` says
of each rate whether the device can hold what it takes: where it is false, nobody reaches it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from costmodel.floor import Floor
from costmodel.planning.capacity import crossover_tokens
from costmodel.planning.levers import levers
from costmodel.planning.scenario import Scenario, curve
from lab.plan.question import Question


def answer_question(question: Question) -> dict[str, Any]:
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
    matrix_flops = context * totals.linear_flops_per_token + totals.lm_head_flops_per_row
    return {
        "name": question.name,
        "parameters": totals.parameters,
        "longest_context_tokens": question.longest,
        "weights": question.weights.name,
        "weight_bytes": totals.weight_bytes,
        "kv_dtype": question.kv.name,
        **_kv(question, scenario),
        "prefill_matrix_flops": matrix_flops,
        "prefill_flops": totals.work(1, 0, context).flops if scenario.kv_known else None,
    }


def _kv(question: Question, scenario: Scenario) -> dict[str, Any]:
    totals, context = scenario.totals, question.context
    kv_bytes, weight_bytes = totals.kv_token_bytes, totals.weight_bytes
    request_bytes, work = context * kv_bytes, totals.work(1, context, 1)
    crossover = crossover_tokens(weight_bytes, kv_bytes) if scenario.kv_known else 0
    return _if_known(
        scenario.kv_known,
        {
            "kv_bytes_per_token": kv_bytes,
            "kv_bytes_per_request": request_bytes,
            "kv_bytes_at_concurrency": question.concurrency * request_bytes,
            "weights_share_of_storage": weight_bytes / (weight_bytes + request_bytes),
            "weights_share_of_step": work.weight_bytes / work.bytes,
            "crossover_tokens": crossover,
            "crossover_requests": crossover / context,
        },
    )


def _if_known(known: bool, values: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the names, and the values where they rest on what is known."""
    return dict(values) if known else dict.fromkeys(values)


def _device(question: Question, scenario: Scenario, price: float | None) -> dict[str, Any]:
    device, batch = scenario.device, question.concurrency
    drafted = replace(scenario, speculation=question.speculation)
    alone = scenario.weights_alone()
    return {
        "name": device.name,
        "source": device.source,
        "bytes_per_s": device.bytes_per_s,
        "flops_per_s": _finite(device.flops_per_s),
        "memory_bytes": _finite(device.memory_bytes),
        "price_usd_per_hour": price,
        "weights_fit": scenario.weights_fit if math.isfinite(device.memory_bytes) else None,
        "requests_that_fit": scenario.requests_that_fit,
        "concurrency_fits": scenario.fits(batch),
        "weights_alone": {"floor_ms": alone.s * 1e3, "tokens_per_s": 1 / alone.s},
        "prefill": {"alone": _prefill(scenario, 1), "all_at_once": _prefill(scenario, batch)},
        "decode_alone": _decode(scenario, 1, price),
        "decode": _decode(scenario, batch, price),
        "goals": _goals(question, drafted),
        "curve": [_decode(scenario, point.batch, price) for point in curve(scenario, batch)],
        "levers": _levers(question, scenario),
        "speculation": _speculation(scenario, drafted, batch),
        "measured": _measured(question, drafted),
    }


def _floor(scenario: Scenario, floor: Floor) -> dict[str, Any]:
    """Tell both terms; which is the larger is known where both are."""
    by_flops = {
        "compute_ms": floor.compute_s * 1e3,
        "regime": "memory" if floor.memory_bound else "compute",
    }
    return {"memory_ms": floor.memory_s * 1e3, **_if_known(scenario.flops_known, by_flops)}


def _prefill(scenario: Scenario, requests: int) -> dict[str, Any]:
    """Floor prompts. FLOPs are most of that: without them the bytes stand alone, as no floor."""
    floor = scenario.prefill(requests)
    return {
        "fits": scenario.fits(requests),
        "floor_ms": floor.s * 1e3 if scenario.flops_known else None,
        **_floor(scenario, floor),
    }


def _decode(scenario: Scenario, batch: int, price: float | None) -> dict[str, Any]:
    """Floor decode. Without KV nothing of it is known but the weights that it reads."""
    point = scenario.decode(batch)
    usd = None if price is None else point.usd_per_million_tokens(price)
    rest = {
        "itl_ms": point.itl_s * 1e3,
        "tokens_per_s": point.tokens_per_s,
        "usd_per_million_tokens": usd,
        "kv_bytes": point.work.kv_bytes,
        "flops": point.work.flops,
        "floor_ms": point.floor.s * 1e3,
        **_floor(scenario, point.floor),
    }
    return {
        "batch": batch,
        "fits": scenario.fits(batch),
        "weight_bytes": point.work.weight_bytes,
        **_if_known(scenario.kv_known, rest),
    }


def _goals(question: Question, scenario: Scenario) -> dict[str, Any]:
    """Find the largest batch: within the memory alone, and within each goal.

    Without KV all that is known of it is whether the weights alone are too much. Drafts help.
    """
    bounds = {"memory": math.inf} | ({"itl": question.itl_goal_s} if question.itl_goal_s else {})
    goals: dict[str, Any] = {}
    for name, goal_s in bounds.items():
        limit = scenario.largest_batch(goal_s)
        known = limit.binding is not None and (scenario.kv_known or limit.batch == 0)
        found = {"largest_batch": limit.batch, "binding": str(limit.binding)}
        goals[name] = {"goal_ms": _finite(goal_s * 1e3), **_if_known(known, found)}
    if question.ttft_goal_s:
        prompts = scenario.prompts_within(question.ttft_goal_s)
        known = scenario.flops_known or prompts == 0
        found = {"prompts_at_once": prompts}
        goals["ttft"] = {"goal_ms": question.ttft_goal_s * 1e3, **_if_known(known, found)}
    return goals


def _levers(question: Question, scenario: Scenario) -> list[dict[str, Any]]:
    batch = question.concurrency
    now, ttft_s = scenario.decode(batch), scenario.prefill().s
    rows = []
    for lever in levers(scenario, batch, question.speculation):
        then, known = lever.decode, scenario.flops_known
        rows.append(
            {
                "lever": lever.name,
                "term": lever.term,
                "itl_ms": then.itl_s * 1e3,
                "tokens_per_s": then.tokens_per_s,
                "throughput_gain": then.tokens_per_s / now.tokens_per_s,
                "ttft_gain": ttft_s / lever.scenario.prefill().s if known else None,
                "requests_that_fit": lever.scenario.requests_that_fit,
                "fits": lever.fits,
            }
        )
    return rows


def _speculation(scenario: Scenario, drafted: Scenario, batch: int) -> dict[str, Any] | None:
    spec = drafted.speculation
    if spec is None:
        return None
    plain, then = scenario.decode(batch), drafted.decode(batch)
    gain = {"itl_ms": then.itl_s * 1e3, "speedup": plain.itl_s / then.itl_s}
    known = _if_known(scenario.kv_known, gain)
    return {"tokens_per_pass": spec.tokens_per_pass, "fits": scenario.fits(batch), **known}


def _measured(question: Question, scenario: Scenario) -> dict[str, Any] | None:
    """Hold a claimed rate against the floor, of as many of the requests as fit at once.

    Above it nobody can be: a term that is not known could only lower it. Drafts raise it.
    """
    rate, fit = question.measured_tokens_per_s, scenario.requests_that_fit
    if rate is None:
        return None
    batch = question.concurrency if fit is None else min(question.concurrency, fit)
    ceiling = scenario.decode(batch).tokens_per_s if batch else 0.0
    possible = rate <= ceiling
    return {
        "tokens_per_s": rate,
        "batch": batch,
        "ceiling_tokens_per_s": ceiling,
        "possible": possible,
        "efficiency": rate / ceiling if possible else None,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
