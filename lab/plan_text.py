"""A plan for the terminal, drawn from the answer's dictionary. Nothing is computed here."""

from __future__ import annotations

from typing import Any

from lab.units import ms, rate, scaled, table


def render(plan: dict[str, Any]) -> str:
    """Write the whole plan: one device in full, or several in one table."""
    devices = plan["devices"]
    lines = model_lines(plan)
    if len(devices) == 1:
        lines += ["", *_one_device(plan, devices[0])]
    else:
        lines += ["", *table(comparison(devices)), *_refusals(plan, devices)]
    return "\n".join(lines)


def model_lines(plan: dict[str, Any]) -> list[str]:
    model, context, batch = plan["model"], plan["context_tokens"], plan["concurrency"]
    rows = [
        ("model", f"{model['name']}, {model['parameters']:,} parameters"),
        ("weights", f"{scaled(model['weight_bytes'], 'B')} in {model['weights']}"
         f" ({model['weight_bytes']:,} bytes)"),
    ]  # fmt: skip
    if model["kv_bytes_per_token"] is None:
        rows.append(("KV", "unknown: give --layers, --kv-heads and --head-dim"))
    else:
        passed = model["kv_bytes_at_concurrency"] > model["weight_bytes"]
        more = ", more than the weights" if passed else ""
        rows += [
            ("KV", f"{model['kv_bytes_per_token']:,} bytes per token in {model['kv_dtype']}"),
            ("a request", f"{context:,} tokens: {scaled(model['kv_bytes_per_request'], 'B')} of KV;"
             f" {batch} of them {scaled(model['kv_bytes_at_concurrency'], 'B')}{more}"),
            ("share", f"weights are {model['weights_share_of_storage']:.1%} of weights + KV of one"
             f" request, {model['weights_share_of_step']:.1%} of the bytes of its step"),
            ("crossover", f"KV passes the weights at context × batch ="
             f" {model['crossover_tokens']:,} tokens"
             f" ({model['crossover_requests']:.1f} requests of this length)"),
        ]  # fmt: skip
    rows.append(("prefill", f"{model['prefill_matrix_flops']:.3g} FLOPs of matrices,"
                 f" {model['prefill_flops']:.3g} with attention"))  # fmt: skip
    return _labelled(rows)


def _one_device(plan: dict[str, Any], device: dict[str, Any]) -> list[str]:
    batch = plan["concurrency"]
    alone, decode, prefill = device["weights_alone"], device["decode"], device["prefill"]
    unreal = "" if device["weights_fit"] else "if it fitted: "
    rows = [
        ("device", f"{device['name']}: {scaled(device['bytes_per_s'], 'B/s')},"
         f" {_or_no_limit(device['flops_per_s'], 'FLOP/s')},"
         f" {_or_no_limit(device['memory_bytes'], 'B of memory')} ({device['source']})"),
        ("fits", _fits(plan, device)),
        ("weights only", f"{unreal}floor {ms(alone['floor_ms'])} per token,"
         f" {rate(alone['tokens_per_s'])} tokens/s at batch 1"),
        ("TTFT", f"{unreal}floor {ms(prefill['alone']['floor_ms'])} alone"
         f" (bytes {ms(prefill['alone']['memory_ms'])}, FLOPs"
         f" {ms(prefill['alone']['compute_ms'])});"
         f" {ms(prefill['all_at_once']['floor_ms'])} for the last of {batch} at once"),
        ("ITL", f"{unreal}floor {_itl(device['decode_alone'])} at batch 1;"
         f" {_itl(decode)} at batch {batch}: {rate(decode['tokens_per_s'])} tokens/s,"
         f" bound by {decode['regime']}"),
        ("a step moves", f"{scaled(decode['weight_bytes'], 'B')} of weights and"
         f" {scaled(decode['kv_bytes'] or None, 'B')} of KV at batch {batch}"),
    ]  # fmt: skip
    rows += [("goal", line) for line in goal_lines(device["goals"])]
    if device["speculation"]:
        found = device["speculation"]
        rows.append(("speculation", f"{found['tokens_per_pass']:.3g} tokens a pass, ITL"
                     f" {ms(found['itl_ms'])}: {found['speedup']:.3g} ×"))  # fmt: skip
    if device["measured"]:
        rows.append(("measured", measured_line(device["measured"])))
    lines = _labelled(rows)
    if device["weights_fit"]:
        lines += ["", "  What each batch gives, at the floor", *table(curve_rows(device))]
    lines += ["", f"  What each lever buys at batch {batch}", *table(lever_rows(device))]
    return lines


def _itl(decode: dict[str, Any]) -> str:
    return ms(decode["itl_ms"])


def _or_no_limit(value: float | None, unit: str) -> str:
    return f"{unit} not given" if value is None else scaled(value, unit)


def _fits(plan: dict[str, Any], device: dict[str, Any]) -> str:
    weights = scaled(plan["model"]["weight_bytes"], "B")
    if device["memory_bytes"] is None:
        return "not known: --memory is not given"
    if not device["weights_fit"]:
        memory = scaled(device["memory_bytes"], "B")
        return f"NO: the weights take {weights}, the device has {memory}"
    fit = device["requests_that_fit"]
    if fit is None:
        return "the weights do; how many requests beside them is unknown"
    verdict = f"{fit:,} requests of this length beside the weights"
    if device["concurrency_fits"]:
        return f"yes: {verdict}"
    return f"NO: {verdict}, {plan['concurrency']} are wanted"


def goal_lines(goals: dict[str, Any]) -> list[str]:
    lines = []
    memory = goals["memory"]
    if memory["largest_batch"] is not None:
        lines.append(f"the memory holds a batch of {memory['largest_batch']:,}")
    if itl := goals.get("itl"):
        goal = f"ITL {ms(itl['goal_ms'])}"
        if itl["largest_batch"] == 0:
            lines.append(f"{goal} is IMPOSSIBLE at any batch: {itl['binding']} binds")
        elif itl["largest_batch"] is None:
            lines.append(f"{goal} is met by any batch: no limit is known")
        else:
            lines.append(f"{goal}: largest batch {itl['largest_batch']:,}, {itl['binding']} binds")
    if ttft := goals.get("ttft"):
        goal, prompts = f"TTFT {ms(ttft['goal_ms'])}", ttft["prompts_at_once"]
        met = f"{prompts:,} prompts at once" if prompts else "IMPOSSIBLE even for one prompt"
        lines.append(f"{goal}: {met}")
    return lines


def measured_line(measured: dict[str, Any]) -> str:
    claim, ceiling = f"{measured['tokens_per_s']:g} tokens/s", measured["ceiling_tokens_per_s"]
    if measured["possible"]:
        return f"{claim} is an efficiency of {measured['efficiency']:.2f} (floor / measured)"
    return f"{claim} is IMPOSSIBLE: the floor allows {rate(ceiling)} tokens/s"


def curve_rows(device: dict[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("batch", "ITL", "tokens/s", "weights", "KV", "bound by", "USD per M tokens")
    ]
    for point in device["curve"]:
        usd = point["usd_per_million_tokens"]
        rows.append(
            (
                f"{point['batch']:,}",
                ms(point["itl_ms"]),
                rate(point["tokens_per_s"]),
                scaled(point["weight_bytes"], "B"),
                scaled(point["kv_bytes"], "B"),
                point["regime"],
                "n/a" if usd is None else f"{usd:.3g}",
            )
        )
    return rows


def lever_rows(device: dict[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("lever", "reduces", "ITL", "tokens/s", "gain", "TTFT gain", "requests fit")
    ]
    for lever in device["levers"]:
        fit = lever["requests_that_fit"]
        rows.append(
            (
                lever["lever"],
                lever["term"],
                ms(lever["itl_ms"]),
                rate(lever["tokens_per_s"]),
                f"{lever['throughput_gain']:.2f} ×",
                f"{lever['ttft_gain']:.2f} ×",
                "n/a" if fit is None else f"{fit:,}",
            )
        )
    return rows


def comparison(devices: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    head = ("device", "bandwidth", "memory", "fits", "requests", "weights only", "TTFT", "ITL",
            "tokens/s", "largest batch", "binds", "USD per M tokens")  # fmt: skip
    rows: list[tuple[str, ...]] = [head]
    for device in devices:
        decode, fit = device["decode"], device["requests_that_fit"]
        goal = device["goals"].get("itl", device["goals"]["memory"])
        usd, most = decode["usd_per_million_tokens"], goal["largest_batch"]
        fits = device["concurrency_fits"]
        alone = device["weights_alone"]
        rows.append(
            (
                device["name"],
                scaled(device["bytes_per_s"], "B/s"),
                scaled(device["memory_bytes"], "B"),
                "yes" if fits else "NO",
                "n/a" if fit is None else f"{fit:,}",
                f"{ms(alone['floor_ms'])}, {rate(alone['tokens_per_s'])}/s",
                ms(device["prefill"]["alone"]["floor_ms"]),
                ms(decode["itl_ms"]) if fits else "–",
                rate(decode["tokens_per_s"]) if fits else "–",
                "n/a" if most is None else f"{most:,}",
                goal["binding"] or "nothing",
                "n/a" if usd is None or not fits else f"{usd:.3g}",
            )
        )
    return rows


def _refusals(plan: dict[str, Any], devices: list[dict[str, Any]]) -> list[str]:
    """Say in words what the table only marks."""
    lines = []
    for device in devices:
        if not device["concurrency_fits"]:
            lines.append(f"  {device['name']}: {_fits(plan, device)}")
        lines += [f"  {device['name']}: {line}" for line in goal_lines(device["goals"])
                  if "IMPOSSIBLE" in line]  # fmt: skip
        if device["measured"]:
            lines.append(f"  {device['name']}: {measured_line(device['measured'])}")
    return ["", *lines] if lines else []


def _labelled(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(label) for label, _ in rows)
    return [f"  {label:<{width}}  {text}" for label, text in rows]
