"""A plan for the terminal, drawn from the answer. Nothing is computed here.

An unknown number is n/a, beside the flag that would give it. A bound says of what it is one. What
the device cannot hold says so.
"""

from __future__ import annotations

from typing import Final

from core.inputs.quantities import counted, ms, rate, scaled
from lab.measure.columns import table
from lab.plan.figures import ClaimFigures, DeviceFigures, ModelFigures, PlanFigures
from lab.plan.tables import comparison, curve_rows, lever_rows

_KV_FLAGS: Final = "--layers, --kv-heads and --head-dim"
_UNFIT: Final = "if it fitted: "
_LESS_READ: Final = "fewer parameters are read for each token than are given here"
_BY_HAND: Final = (
    "each token is taken to read all of them; --vocab and --hidden tell how much is only looked"
    " up, --active-params how much experts leave out"
)


def render_plan(plan: PlanFigures) -> str:
    """Write the whole plan: one device in full, or several in one table."""
    devices = plan.devices
    lines = [*model_lines(plan), ""]
    if len(devices) == 1:
        lines += _one_device(plan, devices[0])
    else:
        lines += [*table(comparison(devices)), *_remarks(plan, devices)]
    return "\n".join(lines)


def model_lines(plan: PlanFigures) -> list[str]:
    model, context, batch = plan.model, plan.context_tokens, plan.concurrency
    rows = [
        ("model", f"{model.name}, {counted(model.parameters, 'parameter')}{_chosen(model)}"),
        ("weights", f"{scaled(model.weight_bytes, 'B')} in {model.weights}"
         f" ({counted(model.weight_bytes, 'byte')})"),
    ]  # fmt: skip
    if not model.bounds_every_step:
        rows.append(("by hand", _BY_HAND))
    per_token, at_once = model.kv_bytes_per_token, model.kv_bytes_at_concurrency
    if per_token is None or at_once is None:
        attention = "n/a"
        rows.append(("KV", f"n/a: unknown without {_KV_FLAGS}"))
    else:
        attention = f"{model.prefill_flops:.3g}"
        more = ", more than the weights" if at_once > model.weight_bytes else ""
        rows += [
            ("KV", f"{counted(per_token, 'byte')} per token"
             f" in {model.kv_dtype}"),
            ("a request", f"{counted(context, 'token')}:"
             f" {scaled(model.kv_bytes_per_request, 'B')} of KV;"
             f" {batch:,} of them {scaled(at_once, 'B')}{more}"),
            ("share", f"weights are {model.weights_share_of_storage:.1%} of weights + KV of one"
             f" request, {model.weights_share_of_step:.1%} of the bytes of its step"),
            ("crossover", crossover_line(plan)),
        ]  # fmt: skip
        if model.state_bytes_per_request:
            state = scaled(model.state_bytes_per_request, "B")
            rows.append(("state", f"{state} a request, read and written by each step"))
    rows.append(("prefill", f"{model.prefill_matrix_flops:.3g} FLOPs of matrices,"
                 f" {attention} with attention"))  # fmt: skip
    return _labelled(rows)


def _chosen(model: ModelFigures) -> str:
    if model.experts is None or model.read_parameters is None:
        return ""
    read = counted(model.read_parameters, "parameter")
    return f"; a token reads {read}: {model.experts_per_token} of {model.experts:,} experts"


def crossover_line(plan: PlanFigures) -> str:
    """Say when a step reads as many bytes of KV as of weights; then by all that is stored."""
    model = plan.model
    read, stored = model.crossover_read_tokens, model.crossover_tokens
    if stored is None or model.crossover_requests is None:
        return "none: no layer has keys"
    by_storage = f"context × batch = {counted(stored, 'token')}"
    requests = f"({model.crossover_requests:.1f} requests of this length)"
    if read == stored:
        return f"KV passes the weights at {by_storage} {requests}"
    if read is None:
        told = "a step never reads as much KV as weights: windows hide it"
    else:
        told = f"a step reads more KV than weights from {counted(read, 'token')} on"
        told += f", {plan.concurrency:,} at once" if plan.concurrency > 1 else ""
    return f"{told}; all KV passes all weights at {by_storage} {requests}"


def _one_device(plan: PlanFigures, device: DeviceFigures) -> list[str]:
    alone, decode = device.weights_alone, device.decode
    rows = [
        ("device", device_line(device)),
        ("fits", fits_line(plan, device)),
        ("weights only", f"{_unfit(device.weights_fit)}floor {ms(alone.floor_ms)} per token,"
         f" {rate(alone.tokens_per_s)} tokens/s at batch 1"),
        ("TTFT", ttft_line(plan, device)),
        ("ITL", itl_line(plan, device)),
        ("a step moves", f"{_unfit(decode.fits)}{scaled(decode.weight_bytes, 'B')} of weights"
         f" and {scaled(decode.kv_bytes, 'B')} of KV at batch {decode.batch}"),
    ]  # fmt: skip
    rows += [("goal", line) for line in goal_lines(plan, device)]
    if found := device.speculation:
        tokens = counted(found.tokens_per_pass, "token")
        gain = f"{ms(found.itl_ms)}: {found.speedup:.3g} ×" if _kv_known(plan) else "n/a"
        rows.append(("speculation", f"{_unfit(found.fits)}{tokens} a pass, ITL {gain}"))
    if device.measured:
        rows.append(("measured", measured_line(plan, device, device.measured)))
    return [*_labelled(rows), *_tables(plan, device)]


def _tables(plan: PlanFigures, device: DeviceFigures) -> list[str]:
    if not _kv_known(plan):
        return ["", "  What each batch gives and each lever buys: n/a while KV is unknown"]
    lines, rests = [], _rests_on(plan, device)
    if device.curve:
        lines += ["", f"  What each batch gives, at the floor{rests}", *table(curve_rows(device))]
    unfit = ", which does not fit" if device.concurrency_fits is False else ""
    title = f"  What each lever buys at batch {plan.concurrency:,}{unfit}{rests}"
    return [*lines, "", title, *table(lever_rows(device))]


def _kv_known(plan: PlanFigures) -> bool:
    return plan.model.kv_bytes_per_token is not None


def _flops_known(device: DeviceFigures) -> bool:
    return device.flops_per_s is not None


def _unfit(fits: bool | None) -> str:
    return _UNFIT if fits is False else ""


def _drafts(device: DeviceFigures) -> str:
    return " with the drafts" if device.speculation else ""


def _rests_on(plan: PlanFigures, device: DeviceFigures) -> str:
    """Say what a floor is made of where a term of it is not known."""
    if _kv_known(plan):
        return "" if _flops_known(device) else ", by bytes alone"
    return ", by the weights alone" if _flops_known(device) else ", by the weights' bytes alone"


def device_line(device: DeviceFigures) -> str:
    known, missing = [scaled(device.bytes_per_s, "B/s")], []
    for value, unit, flag in (
        (device.flops_per_s, "FLOP/s", "--peak-flops"),
        (device.memory_bytes, "B of memory", "--memory"),
    ):
        if value is None:
            missing.append(f"no {flag}")
        else:
            known.append(scaled(value, unit))
    told = f"{device.name}: {', '.join(known)} ({device.source})"
    return "; ".join([told, *missing])


def fits_line(plan: PlanFigures, device: DeviceFigures) -> str:
    if device.memory_bytes is None:
        return "n/a: no --memory"
    if not device.weights_fit:
        weights = scaled(plan.model.weight_bytes, "B")
        memory = scaled(device.memory_bytes, "B")
        return f"NO: the weights take {weights}, the device has {memory}"
    fit = device.requests_that_fit
    if fit is None:
        return "the weights do; requests beside them n/a, since KV is unknown"
    verdict = f"{counted(fit, 'request')} of this length beside the weights"
    if device.concurrency_fits:
        return f"yes: {verdict}"
    return f"NO: {verdict}, {plan.concurrency:,} wanted"


def ttft_line(plan: PlanFigures, device: DeviceFigures) -> str:
    first, last = device.prefill.alone, device.prefill.all_at_once
    of_weights, of_matrices = ("", "") if _kv_known(plan) else (" of weights", " of matrices")
    by_bytes = f"bytes{of_weights} {ms(first.memory_ms)}"
    if not _flops_known(device):
        return f"n/a: no --peak-flops ({_unfit(first.fits)}{by_bytes})"
    least = "floor" if _kv_known(plan) else "at least"
    line = (
        f"{_unfit(first.fits)}{least} {ms(first.floor_ms)} alone"
        f" ({by_bytes}, FLOPs{of_matrices} {ms(first.compute_ms)}{_links(device, first.link_ms)})"
    )
    if plan.concurrency == 1:
        return line
    unfit = _unfit(last.fits) if first.fits else ""
    at_once = f"{ms(last.floor_ms)} for the last of {plan.concurrency:,} at once"
    return f"{line}; {unfit}{at_once}"


def _links(device: DeviceFigures, link_ms: float | None) -> str:
    return f", links {ms(link_ms)}" if device.devices > 1 else ""


def itl_line(plan: PlanFigures, device: DeviceFigures) -> str:
    first, decode = device.decode_alone, device.decode
    if not _kv_known(plan):
        return f"n/a: unknown without {_KV_FLAGS}"
    line = f"{_unfit(first.fits)}floor {ms(first.itl_ms)} at batch 1"
    if decode.batch != 1:
        unfit = _unfit(decode.fits) if first.fits else ""
        line += f"; {unfit}{ms(decode.itl_ms)} at batch {decode.batch:,}"
    bound = f", bound by {decode.regime}" if _flops_known(device) else _rests_on(plan, device)
    line = f"{line}: {rate(decode.tokens_per_s)} tokens/s{bound}"
    if decode.spread_itl_ms and decode.batch > 1:
        line += f"; {ms(decode.spread_itl_ms)} if all experts are chosen alike"
    return line


def goal_lines(plan: PlanFigures, device: DeviceFigures) -> list[str]:
    goals, rests, lines = device.goals, _rests_on(plan, device), []
    if (most := goals.memory.largest_batch) is not None:
        lines.append(f"the memory holds a batch of {most:,}")
    if itl := goals.itl:
        goal, most = f"ITL {ms(itl.goal_ms)}{_drafts(device)}", itl.largest_batch
        if most == 0 and not itl.decided:
            lines.append(f"{goal}: only if {_LESS_READ}")
        elif most == 0:
            lines.append(f"{goal} is IMPOSSIBLE at any batch: {itl.binding} binds")
        elif not _kv_known(plan):
            lines.append(f"{goal}: n/a while KV is unknown")
        elif most is None:
            lines.append(f"{goal} is met by any batch: no limit is known")
        elif rests:
            lines.append(f"{goal}: largest batch at most {most:,}{rests}")
        else:
            lines.append(f"{goal}: largest batch {most:,}, {itl.binding} binds")
    if ttft := goals.ttft:
        goal, prompts = f"TTFT {ms(ttft.goal_ms)}", ttft.prompts_at_once
        if prompts is None:
            lines.append(f"{goal}: n/a without --peak-flops")
        elif prompts == 0:
            lines.append(f"{goal}: IMPOSSIBLE even for one prompt")
        else:
            most_text = "at most " if rests else ""
            lines.append(f"{goal}: {most_text}{counted(prompts, 'prompt')} at once{rests}")
    return lines


def measured_line(plan: PlanFigures, device: DeviceFigures, found: ClaimFigures) -> str:
    batch, rests = found.batch, _rests_on(plan, device)
    claim = f"{found.tokens_per_s:g} tokens/s"
    at_once = f" with the {batch:,} that fit" if batch < plan.concurrency else ""
    at_once += _drafts(device)
    if found.possible:
        efficiency = f"{found.efficiency:.2f} (floor / measured)"
        return f"{claim} is an efficiency of {efficiency}{at_once}{rests}"
    if batch == 0:
        return f"{claim} is IMPOSSIBLE: the device cannot hold it"
    ceiling = rate(found.ceiling_tokens_per_s)
    if found.possible is None:
        return f"{claim} is above {ceiling} tokens/s{at_once}{rests}: only if {_LESS_READ}"
    return f"{claim} is IMPOSSIBLE: the floor allows {ceiling} tokens/s{at_once}{rests}"


def _remarks(plan: PlanFigures, devices: list[DeviceFigures]) -> list[str]:
    """Say in words what the table only marks."""
    lines = []
    for device in devices:
        remarks = []
        if device.concurrency_fits is False:
            remarks.append(fits_line(plan, device))
        remarks += [line for line in goal_lines(plan, device) if "IMPOSSIBLE" in line]
        if device.measured:
            remarks.append(measured_line(plan, device, device.measured))
        lines += [f"  {device.name}: {remark}" for remark in remarks]
    if not _kv_known(plan):
        lines.append(f"  n/a: unknown without {_KV_FLAGS}; TTFT is the least, by the weights alone")
    if any(device.prefill.alone.fits is False for device in devices):
        lines.append("  in brackets: if it fitted")
    return ["", *lines] if lines else []


def _labelled(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(label) for label, _ in rows)
    return [f"  {label:<{width}}  {text}" for label, text in rows]
