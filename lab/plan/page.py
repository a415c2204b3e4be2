"""A plan as a page: its text, then the curve, the bytes and the levers as plots.

What is not known has no plot; the text says why.
"""

from __future__ import annotations

from typing import Final

import plotly.graph_objects as go

from lab.plan.figures import DeviceFigures, PlanFigures
from lab.plan.text import render_plan
from loadgen.show.page import COLOURS, Page, bars, figure, line

UNFIT: Final = " (does not fit)"


def plan_page(plan: PlanFigures) -> Page:
    devices = plan.devices
    sampled = any(device.curve for device in devices)
    plots = [throughput_latency(plan), bytes_per_step(plan)] if sampled else []
    plots += [lever_bars(device) for device in devices if device.levers]
    return Page(f"floorline plan: {plan.model.name}", render_plan(plan), *plots)


def throughput_latency(plan: PlanFigures) -> go.Figure:
    drawn = figure("Latency over throughput, at the floor", "tokens/s", "ITL, ms", log=True)
    for device, colour in zip(plan.devices, COLOURS * 2, strict=False):
        points = device.curve
        line(
            drawn,
            device.name,
            [point.tokens_per_s for point in points],
            [point.itl_ms for point in points],
            mode="lines+markers",
            text=[f"batch {point.batch}" for point in points],
            line={"color": colour},
        )
        if goal := device.goals.itl:
            drawn.add_hline(y=goal.goal_ms, line_dash="dot")
    return drawn


def bytes_per_step(plan: PlanFigures) -> go.Figure:
    """Draw both terms; they are the model's, so the device with the longest curve shows them."""
    points = max((device.curve for device in plan.devices), key=len)
    drawn = figure("Bytes of a decode step", "batch", "bytes", log=True)
    batches = [point.batch for point in points]
    for name, values, colour in (
        ("weights", [point.weight_bytes for point in points], COLOURS[0]),
        ("KV", [point.kv_bytes for point in points], COLOURS[1]),
    ):
        line(drawn, name, batches, values, line={"color": colour})
    return drawn


def lever_bars(device: DeviceFigures) -> go.Figure:
    drawn = figure(f"What each lever buys on {device.name}", "", "times as many tokens/s")
    levers = device.levers
    names = [lever.lever + UNFIT * (lever.fits is False) for lever in levers]
    gains = [lever.throughput_gain for lever in levers]
    bars(drawn, "tokens/s", names, gains, marker={"color": COLOURS[2]})
    if device.flops_per_s is not None:
        first = [lever.ttft_gain for lever in levers]
        bars(drawn, "1 / TTFT", names, first, marker={"color": COLOURS[3]})
    return drawn
