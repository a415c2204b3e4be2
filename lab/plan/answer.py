"""Answer a plan's question from the cost model, for every device."""

from __future__ import annotations

import math
from dataclasses import replace

from costmodel.planning.capacity import crossover_read_tokens, crossover_tokens
from costmodel.planning.levers import levers
from costmodel.planning.scenario import PlanFloor, Scenario, curve
from costmodel.planning.sizes import Size
from lab.ask.question import Question
from lab.plan.figures import (
    BatchGoal,
    ClaimFigures,
    DecodeFigures,
    DeviceFigures,
    DraftFigures,
    Goals,
    LeverFigures,
    ModelFigures,
    PlanFigures,
    PrefillFigures,
    Prefills,
    PromptGoal,
    WeightsAlone,
)


def answer_question(question: Question) -> PlanFigures:
    """Answer for every device; the model's own numbers stand once."""
    scenarios = [question.scenario(device) for device in question.devices]
    priced = zip(scenarios, question.prices, strict=True)
    return PlanFigures(
        model=_model(question, scenarios[0]),
        context_tokens=question.context,
        concurrency=question.concurrency,
        devices=[_device(question, scenario, price) for scenario, price in priced],
    )


def _model(question: Question, scenario: Scenario) -> ModelFigures:
    sums, context = scenario.sums, question.context
    kv_bytes, weight_bytes = sums.kv_token_bytes, sums.stored_bytes
    matrix_flops = context * sums.linear_flops_per_token + sums.lm_head_flops_per_row
    experts = sums.experts
    model = ModelFigures(
        name=question.name,
        parameters=sums.parameters,
        longest_context_tokens=question.longest,
        weights=question.weights.name,
        weight_bytes=weight_bytes,
        kv_dtype=question.kv.name,
        prefill_matrix_flops=matrix_flops,
        read_parameters=_read_parameters(question) if experts else None,
        experts=experts.count if experts else None,
        experts_per_token=experts.top_k if experts else None,
        bounds_every_step=not isinstance(question.model, Size) or question.model.whole,
    )
    if not scenario.kv_known:
        return model
    request_bytes, work = context * kv_bytes, sums.uniform_step(1, context, 1)
    crossover = crossover_tokens(weight_bytes, kv_bytes) if kv_bytes else None
    return replace(
        model,
        kv_bytes_per_token=kv_bytes,
        kv_bytes_per_request=request_bytes,
        kv_bytes_at_concurrency=question.concurrency * request_bytes,
        weights_share_of_storage=weight_bytes / (weight_bytes + request_bytes),
        weights_share_of_step=work.weight_bytes / work.bytes,
        crossover_tokens=crossover,
        crossover_requests=crossover / context if crossover else None,
        crossover_read_tokens=crossover_read_tokens(sums, question.concurrency),
        state_bytes_per_request=sums.state_bytes or None,
        prefill_flops=sums.uniform_step(1, 0, context).flops,
    )


def _read_parameters(question: Question) -> int:
    """Count what one token multiplies with, its experts and the output head included."""
    model = question.model
    if isinstance(model, Size):
        return model.layer_parameters + model.table
    return model.token_parameters + model.vocab_size * model.hidden_size


def _device(question: Question, scenario: Scenario, price: float | None) -> DeviceFigures:
    device, batch = scenario.device, question.concurrency
    drafted = replace(scenario, speculation=question.speculation)
    alone, usd = scenario.weights_alone(), None if price is None else price * device.count
    return DeviceFigures(
        name=device.name,
        source=device.source,
        bytes_per_s=device.bytes_per_s,
        flops_per_s=_finite(device.rate(scenario.arithmetic)),
        memory_bytes=_finite(scenario.memory_bytes),
        devices=device.count,
        arithmetic=scenario.arithmetic,
        link_bytes_per_s=device.link_bytes_per_s or None,
        price_usd_per_hour=price,
        weights_fit=scenario.weights_fit if math.isfinite(scenario.memory_bytes) else None,
        requests_that_fit=scenario.requests_that_fit,
        concurrency_fits=scenario.fits(batch),
        weights_alone=WeightsAlone(alone.s * 1e3, 1 / alone.s),
        prefill=Prefills(_prefill(scenario, 1), _prefill(scenario, batch)),
        decode_alone=_decode(scenario, 1, usd),
        decode=_decode(scenario, batch, usd),
        goals=_goals(question, drafted),
        curve=[_decode(scenario, point.batch, usd) for point in curve(scenario, batch)],
        levers=_levers(question, scenario),
        speculation=_speculation(scenario, drafted, batch),
        measured=_measured(question, drafted),
    )


def _compute(scenario: Scenario, floor: PlanFloor) -> tuple[float | None, str | None]:
    """Give the term of the FLOPs, and which term is the larger; None where FLOPs are unknown."""
    if not scenario.flops_known:
        return None, None
    return floor.compute_s * 1e3, floor.term


def _link_ms(scenario: Scenario, floor: PlanFloor) -> float | None:
    """Give the term of what several devices tell each other; None where it is not known."""
    return floor.link_s * 1e3 or None if scenario.device.count > 1 else None


def _prefill(scenario: Scenario, requests: int) -> PrefillFigures:
    floor = scenario.prefill(requests)
    floor_ms = floor.s * 1e3 if scenario.flops_known else None
    terms = (floor.memory_s * 1e3, *_compute(scenario, floor))
    return PrefillFigures(scenario.fits(requests), floor_ms, *terms, _link_ms(scenario, floor))


def _decode(scenario: Scenario, batch: int, price: float | None) -> DecodeFigures:
    point, fits = scenario.decode(batch), scenario.fits(batch)
    if not scenario.kv_known:
        return DecodeFigures(batch=batch, fits=fits, weight_bytes=point.work.weight_bytes)
    compute_ms, regime = _compute(scenario, point.floor)
    spread = replace(scenario, spread=True).decode(batch) if scenario.sums.experts else None
    return DecodeFigures(
        batch=batch,
        fits=fits,
        weight_bytes=point.work.weight_bytes,
        itl_ms=point.itl_s * 1e3,
        tokens_per_s=point.tokens_per_s,
        usd_per_million_tokens=None if price is None else point.usd_per_million_tokens(price),
        kv_bytes=point.work.kv_bytes + point.work.state_bytes,
        flops=point.work.flops,
        floor_ms=point.floor.s * 1e3,
        memory_ms=point.floor.memory_s * 1e3,
        compute_ms=compute_ms,
        link_ms=_link_ms(scenario, point.floor),
        regime=regime,
        spread_itl_ms=spread.itl_s * 1e3 if spread else None,
    )


def _at_least(scenario: Scenario) -> Scenario:
    """Give the same with the least that a model given by hand may read."""
    model = scenario.model
    return replace(scenario, model=model.at_least()) if isinstance(model, Size) else scenario


def _goals(question: Question, scenario: Scenario) -> Goals:
    """Find the largest batch: within the memory alone, and within each goal. Drafts help."""
    itl_s, ttft_s = question.itl_goal_s, question.ttft_goal_s
    prompts = scenario.prompts_within(ttft_s) if ttft_s else 0
    shown = prompts if scenario.flops_known or prompts == 0 else None
    return Goals(
        memory=_batch_goal(scenario, math.inf),
        itl=_batch_goal(scenario, itl_s) if itl_s else None,
        ttft=PromptGoal(ttft_s * 1e3, shown) if ttft_s else None,
    )


def _batch_goal(scenario: Scenario, goal_s: float) -> BatchGoal:
    """Without KV all that is known is whether the weights alone are too much."""
    limit, goal_ms = scenario.largest_batch(goal_s), _finite(goal_s * 1e3)
    if limit.binding is None or not (scenario.kv_known or limit.batch == 0):
        return BatchGoal(goal_ms, None, None)
    decided = limit.batch > 0 or _at_least(scenario).largest_batch(goal_s).batch == 0
    return BatchGoal(goal_ms, limit.batch, str(limit.binding), decided)


def _levers(question: Question, scenario: Scenario) -> list[LeverFigures]:
    batch = question.concurrency
    now, ttft_s = scenario.decode(batch), scenario.prefill().s
    known = scenario.flops_known
    return [
        LeverFigures(
            lever=lever.name,
            term=lever.term,
            itl_ms=lever.decode.itl_s * 1e3,
            tokens_per_s=lever.decode.tokens_per_s,
            throughput_gain=lever.decode.tokens_per_s / now.tokens_per_s,
            ttft_gain=ttft_s / lever.scenario.prefill().s if known else None,
            requests_that_fit=lever.scenario.requests_that_fit,
            fits=lever.fits,
        )
        for lever in levers(scenario, batch, question.speculation)
    ]


def _speculation(scenario: Scenario, drafted: Scenario, batch: int) -> DraftFigures | None:
    spec = drafted.speculation
    if spec is None:
        return None
    tokens, fits = spec.tokens_per_pass, scenario.fits(batch)
    if not scenario.kv_known:
        return DraftFigures(tokens, fits, None, None)
    plain, then = scenario.decode(batch), drafted.decode(batch)
    return DraftFigures(tokens, fits, then.itl_s * 1e3, plain.itl_s / then.itl_s)


def _measured(question: Question, scenario: Scenario) -> ClaimFigures | None:
    """Hold a claimed rate against the floor: a term that is not known could only lower it."""
    rate, fit = question.measured_tokens_per_s, scenario.requests_that_fit
    if rate is None:
        return None
    batch = question.concurrency if fit is None else min(question.concurrency, fit)
    ceiling = scenario.decode(batch).tokens_per_s if batch else 0.0
    if rate <= ceiling:
        return ClaimFigures(rate, batch, ceiling, True, rate / ceiling)
    highest = _at_least(scenario).decode(batch).tokens_per_s if batch else 0.0
    return ClaimFigures(rate, batch, ceiling, None if rate <= highest else False, None)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
