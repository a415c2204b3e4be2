"""What a plan is asked: every option read into one value. Nothing is computed here."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, field
from typing import Final

from core.errors import SettingsError
from core.formats import WeightFormat
from core.inputs.objectives import parse_objectives
from core.inputs.options import named
from core.inputs.quantities import BANDWIDTH, FLOPS, MEMORY
from core.model import ModelConfig
from core.wire import Description
from costmodel.planning.datasheet import Device, device
from costmodel.planning.scenario import Scenario, Speculation
from costmodel.planning.sizes import WIDTHS, Size, Width
from lab.plan import values
from lab.plan.describe import describe
from loadgen.load.spec import filename

DEFAULT_MODEL: Final = "smollm2-135m"
DEFAULT_CONTEXT_TOKENS: Final = 1024
_HAND_GIVEN: Final = ("peak_bandwidth", "peak_flops", "memory")
_DEVICES: Final = (
    "a device is named (--device, or several with --compare)"
    " or given by hand (--peak-bandwidth, --peak-flops, --memory)"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Name every option. Values stay text until `Question.read`, which says what is wrong."""
    models = f"preset, directory or GGUF file (default: {DEFAULT_MODEL})"
    parser.add_argument("model", nargs="?", type=named(filename, "model"), help=models)

    def group(title: str, **options: str) -> None:
        added = parser.add_argument_group(title)
        for name, text in options.items():
            metavar, _, help = text.partition("; ")
            added.add_argument(_flag(name), metavar=metavar, help=help.replace("%", "%%"))

    group(
        "A model given by hand",
        params="N; parameters, such as 7e9 or 7B",
        layers="N; layers",
        heads="N; attention heads (default: the kv-heads, the least there can be)",
        kv_heads="N; kv-heads",
        head_dim="N; width of a head",
    )
    group(
        "How it is stored",
        weights=f"W; {', '.join(WIDTHS)}, bits a weight such as 4.5, or native: as the "
        "checkpoint has it (default: serve's own; bf16 with --params)",
        dtype="W; the same as --weights",
        kv_dtype="W; a width likewise (default: serve's own; bf16 beside a width that it has not)",
    )
    group(
        "The device",
        device="NAME; an entry of the data sheets, such as h100",
        compare="A,B,…; several, in one table",
        peak_bandwidth="X; of a device given by hand, such as 94GB/s or 94e9 (bytes/s)",
        peak_flops="X; such as 989TFLOP/s or 989e12; without it no TTFT",
        memory="SIZE; such as 24GB (10^9) or 24GiB; without it nothing is said of what fits",
    )
    group(
        "What is wanted",
        context=f"N; tokens a request holds (default: {DEFAULT_CONTEXT_TOKENS})",
        concurrency="N; requests at once (default: 1)",
        slo="GOALS; such as itl=50ms,ttft=500ms",
        price_per_hour="USD; of the device; with --compare one for each",
        draft="K,A,C; speculation: drafts a pass, acceptance, cost of them all (1 is a pass)",
        measured="R; tokens/s that somebody claims or measured, such as 90tok/s",
    )
    output = parser.add_argument_group("Output")
    output.add_argument("--json", action="store_true", help="print JSON")
    page = named(filename, "--html")
    output.add_argument("--html", type=page, metavar="FILE", help="write a page with plots too")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One plan. `devices` are several for a comparison; `prices` are as many, or none.

    `longest` is the model's own limit on context, None where it is not known.
    """

    name: str
    model: ModelConfig | Size
    weights: Width
    kv: Width
    devices: tuple[Device, ...]
    context: int
    longest: int | None = None
    concurrency: int = 1
    itl_goal_s: float | None = None
    ttft_goal_s: float | None = None
    prices: tuple[float | None, ...] = field(default=(None,))
    speculation: Speculation | None = None
    measured_tokens_per_s: float | None = None

    def scenario(self, device: Device) -> Scenario:
        return Scenario(
            model=self.model,
            weights=self.weights,
            kv=self.kv,
            device=device,
            context=self.context,
        )

    @staticmethod
    def read(given: argparse.Namespace) -> Question:
        """Read the options.

        Raises:
            SettingsError: the first that cannot be used, by its flag.
        """
        asked_kv = _width("--kv-dtype", given.kv_dtype) if given.kv_dtype is not None else None
        goals = _goals(given.slo)
        devices = _devices(given)
        prices = _prices(given.price_per_hour, len(devices))
        measured = values.rate(given.measured, "--measured") if given.measured is not None else None
        speculation = values.draft(given.draft, "--draft") if given.draft is not None else None
        concurrency = _count(given, "concurrency") or 1
        asked = _count(given, "context")
        name, model, described = _model(given)
        weights = _weights(given, described)
        longest = described.model.max_position_tokens if described else None
        if asked and longest and asked > longest:
            raise SettingsError(f"--context {asked}: {name} was made for at most {longest} tokens")
        return Question(
            name=name,
            model=model,
            weights=weights,
            kv=asked_kv or Width.parse(weights.storage.usual_kv if weights.storage else "bf16"),
            devices=devices,
            context=asked or min(DEFAULT_CONTEXT_TOKENS, longest or DEFAULT_CONTEXT_TOKENS),
            longest=longest,
            concurrency=concurrency,
            itl_goal_s=goals.get("itl"),
            ttft_goal_s=goals.get("ttft"),
            prices=prices,
            speculation=speculation,
            measured_tokens_per_s=measured,
        )


def _goals(slo: str | None) -> dict[str, float]:
    """Read the goals that a plan can be held against, in seconds by name."""
    asked = () if slo is None else parse_objectives(slo, ("itl", "ttft"))
    return {goal.metric: goal.limit for goal in asked}


def _weights(given: argparse.Namespace, described: Description | None) -> Width:
    flag, text = ("--weights", given.weights) if given.dtype is None else ("--dtype", given.dtype)
    if given.weights not in (None, text):
        raise SettingsError(f"--weights {given.weights} and --dtype {given.dtype} differ")
    if text is None:
        text = described.weights if described else "bf16"
    if text != WeightFormat.NATIVE:
        return _width(flag, text, also=", or native" if described else "")
    if described is None:
        raise SettingsError(f"{flag} native: there is no checkpoint; with --params name a width")
    return Width.of(text, described.model, described.storage)


def _width(flag: str, text: str, also: str = "") -> Width:
    try:
        return Width.parse(text)
    except SettingsError as error:
        raise SettingsError(f"{flag}: {error}{also}") from None


def _model(given: argparse.Namespace) -> tuple[str, ModelConfig | Size, Description | None]:
    """Give a model, and what the engine says of it where it is not given by hand."""
    shape = {name: _count(given, name) or 0 for name in ("layers", "kv_heads", "head_dim")}
    heads = _count(given, "heads") or shape["kv_heads"]
    if given.params is None:
        if any(shape.values()) or heads:
            raise SettingsError("--layers, --heads, --kv-heads and --head-dim go with --params")
        name = given.model or DEFAULT_MODEL
        described = describe(name)
        return name, described.model, described
    if given.model:
        raise SettingsError(f"--params and the model {given.model}: one of them")
    if (heads or any(shape.values())) and not all(shape.values()):
        raise SettingsError(
            "--layers, --kv-heads and --head-dim are given together, or not at all;"
            " --heads only with them"
        )
    if shape["kv_heads"] and heads % shape["kv_heads"]:
        raise SettingsError(f"--heads {heads}: no multiple of --kv-heads {shape['kv_heads']}")
    parameters = values.parameters(given.params, "--params")
    return "given by hand", Size(parameters=parameters, heads=heads, **shape), None


def _count(given: argparse.Namespace, name: str) -> int | None:
    text = getattr(given, name)
    return None if text is None else values.count(text, _flag(name))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _devices(given: argparse.Namespace) -> tuple[Device, ...]:
    by_hand = [_flag(name) for name in _HAND_GIVEN if getattr(given, name) is not None]
    named = [_flag(name) for name in ("device", "compare") if getattr(given, name) is not None]
    if len(named) > 1 or (named and by_hand):
        first, *others = named + by_hand
        raise SettingsError(f"{first} goes without {', '.join(others)}: {_DEVICES}")
    if given.compare is not None:
        return tuple(_sheet("--compare", name) for name in given.compare.split(","))
    if by_hand:
        return (_hand_given_device(given),)
    if given.device is None:
        raise SettingsError("--device is missing, or --compare, or --peak-bandwidth")
    return (_sheet("--device", given.device),)


def _sheet(flag: str, name: str) -> Device:
    try:
        return device(name)
    except SettingsError as error:
        raise SettingsError(f"{flag}: {error}") from None


def _hand_given_device(given: argparse.Namespace) -> Device:
    if given.peak_bandwidth is None:
        raise SettingsError("--peak-bandwidth is missing: no floor without it")
    flops, memory = given.peak_flops, given.memory
    return Device(
        name="given by hand",
        bytes_per_s=BANDWIDTH.read(given.peak_bandwidth, "--peak-bandwidth"),
        flops_per_s=math.inf if flops is None else FLOPS.read(flops, "--peak-flops"),
        memory_bytes=math.inf if memory is None else MEMORY.read(memory, "--memory"),
        source="flags",
    )


def _prices(text: str | None, devices: int) -> tuple[float | None, ...]:
    if text is None:
        return (None,) * devices
    prices = tuple(values.price(part, "--price-per-hour") for part in text.split(","))
    if len(prices) != devices:
        raise SettingsError(f"--price-per-hour {text}: {devices} wanted, one for each device")
    return prices
