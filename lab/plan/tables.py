"""The tables of a plan, drawn from the answer. Nothing is computed here."""

from __future__ import annotations

from typing import Final

from core.inputs.quantities import ms, rate, scaled
from lab.plan.figures import DecodeFigures, DeviceFigures, LeverFigures

_FITS: Final = {True: "yes", False: "NO", None: "n/a"}


def curve_rows(device: DeviceFigures) -> list[tuple[str, ...]]:
    head = ("batch", "ITL", "tokens/s", "weights", "KV", "bound by", "USD per M tokens")
    return [head, *map(_point, device.curve)]


def _point(point: DecodeFigures) -> tuple[str, ...]:
    return (
        f"{point.batch:,}",
        ms(point.itl_ms),
        rate(point.tokens_per_s),
        scaled(point.weight_bytes, "B"),
        scaled(point.kv_bytes, "B"),
        point.regime or "n/a",
        _usd(point),
    )


def lever_rows(device: DeviceFigures) -> list[tuple[str, ...]]:
    head = ("lever", "reduces", "ITL", "tokens/s", "gain", "TTFT gain", "requests fit", "fits")
    return [head, *map(_lever, device.levers)]


def _lever(lever: LeverFigures) -> tuple[str, ...]:
    return (
        lever.lever,
        lever.term,
        ms(lever.itl_ms),
        rate(lever.tokens_per_s),
        _times(lever.throughput_gain),
        _times(lever.ttft_gain),
        _whole(lever.requests_that_fit),
        _FITS[lever.fits],
    )


def comparison(devices: list[DeviceFigures]) -> list[tuple[str, ...]]:
    """Compare devices; what one cannot hold is in brackets, or left out."""
    head = ("device", "bandwidth", "memory", "fits", "requests", "weights only", "TTFT", "ITL",
            "tokens/s", "largest batch", "binds", "USD per M tokens")  # fmt: skip
    return [head, *map(_compared, devices)]


def _compared(device: DeviceFigures) -> tuple[str, ...]:
    decode, fits = device.decode, device.concurrency_fits
    goal = device.goals.itl or device.goals.memory
    alone, first = device.weights_alone, device.prefill.alone
    whole = f"{ms(alone.floor_ms)}, {rate(alone.tokens_per_s)}/s"
    return (
        device.name,
        scaled(device.bytes_per_s, "B/s"),
        scaled(device.memory_bytes, "B"),
        _FITS[fits],
        _whole(device.requests_that_fit),
        _bracketed(whole, device.weights_fit),
        _bracketed(ms(first.floor_ms), first.fits),
        "–" if fits is False else ms(decode.itl_ms),
        "–" if fits is False else rate(decode.tokens_per_s),
        _whole(goal.largest_batch),
        goal.binding or "n/a",
        "–" if fits is False else _usd(decode),
    )


def _bracketed(text: str, fits: bool | None) -> str:
    return f"({text})" if fits is False else text


def _usd(point: DecodeFigures) -> str:
    usd = point.usd_per_million_tokens
    return "n/a" if usd is None else f"{usd:.3g}"


def _times(gain: float | None) -> str:
    return "n/a" if gain is None else f"{gain:.2f} ×"


def _whole(value: int | None) -> str:
    return "n/a" if value is None else f"{value:,}"
