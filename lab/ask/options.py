"""The options of `plan`: each field is a flag, read into its value. Nothing is decided here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeVar

from core.inputs.options import add_options, named, options_of, setting
from lab.ask import values
from loadgen.load.spec import filename

DEFAULT_MODEL: Final = "smollm2-135m"
DEFAULT_CONTEXT_TOKENS: Final = 1024
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HandGiven:
    """A model given by hand"""

    params: int | None = setting(
        None, "parameters, such as 7e9 or 7B", metavar="N", read=values.parameters
    )
    active_params: int | None = setting(
        None, "of them a token reads: with experts, the A3B of 30B-A3B", metavar="N",
        read=values.parameters, otherwise="all",
    )  # fmt: skip
    experts: str | None = setting(
        None, "experts that a token takes, of all: 8/128", metavar="K/E", read=values.experts
    )
    layers: int | None = setting(None, "layers", metavar="N", read=values.count)
    heads: int | None = setting(
        None, "attention heads", metavar="N", read=values.count,
        otherwise="the kv-heads, the least there can be",
    )  # fmt: skip
    kv_heads: int | None = setting(None, "kv-heads", metavar="N", read=values.count)
    head_dim: int | None = setting(None, "width of a head", metavar="N", read=values.count)
    hidden: int | None = setting(None, "width of the hidden state", metavar="N", read=values.count)
    vocab: int | None = setting(
        None, "words: with --hidden, how much is only looked up", metavar="N", read=values.count
    )
    tied: bool = setting(False, "embedding and output head are one matrix")


@dataclass(frozen=True, slots=True)
class StoredAs:
    """How it is stored"""

    weights: str | None = setting(
        None,
        f"{values.WIDTH_NAMES}, bits a weight such as 4.5, or native: as the checkpoint has it",
        metavar="W",
        read=lambda text: values.width(text, native=True),
        otherwise="serve's own, or as published; bf16 with --params",
    )
    dtype: str | None = setting(
        None, "the same as --weights", metavar="W",
        read=lambda text: values.width(text, native=True),
    )  # fmt: skip
    kv_dtype: str | None = setting(
        None, "a width likewise", metavar="W", read=values.width,
        otherwise="serve's own; bf16 beside a width that it has not",
    )  # fmt: skip
    arithmetic: str | None = setting(
        None, "bf16, fp8, int8 or fp4: in which the device multiplies", metavar="A",
        otherwise="the weights' own, if the device has it; else bf16",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class OnDevice:
    """The device"""

    device: str | None = setting(
        None, "an entry of the data sheets, such as h100, or several of it: 2xh100", metavar="NAME"
    )
    compare: str | None = setting(None, "several, in one table; all: each", metavar="A,B,…")
    tp: int | None = setting(
        None, "devices that split each layer between them (tensor parallel)", metavar="N",
        read=values.devices,
    )  # fmt: skip
    peak_bandwidth: float | None = setting(
        None, "of a device given by hand, such as 94GB/s or 94e9", unit="bytes/s", metavar="X"
    )
    peak_flops: float | None = setting(
        None, "such as 989TFLOP/s or 989e12; without it no TTFT", unit="FLOP/s", metavar="X"
    )
    memory: float | None = setting(
        None, "such as 24GB (10^9) or 24GiB; without it nothing is said of what fits",
        metavar="SIZE", read=values.memory,
    )  # fmt: skip
    link: float | None = setting(
        None, "what a device of several sends, to all others together",
        unit="bytes/s", metavar="X",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted"""

    context: int | None = setting(
        None, "tokens a request holds", metavar="N", read=values.count,
        otherwise=f"{DEFAULT_CONTEXT_TOKENS}",
    )  # fmt: skip
    concurrency: int = setting(1, "requests at once", metavar="N", read=values.count)
    slo: str | None = setting(
        None, "such as itl=50ms,ttft=500ms", metavar="GOALS", read=values.goals
    )
    price_per_hour: str | None = setting(
        None, "USD, of the device; with --compare one for each", metavar="USD", read=values.prices
    )
    draft: str | None = setting(  # stays a text: a dataclass would be a group of its own
        None, "speculation: drafts a pass, acceptance, cost of them all (1 is a pass)",
        metavar="K,A,C", read=values.draft,
    )  # fmt: skip
    measured: float | None = setting(
        None, "tokens/s that somebody claims or measured, such as 90tok/s", metavar="R",
        read=values.rate,
    )  # fmt: skip


GROUPS: Final[Sequence[type]] = (HandGiven, StoredAs, OnDevice, Wanted)


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Name every option; argparse reads each into its value, and a refusal names the flag."""
    models = f"preset, directory, config.json, GGUF file or hub id (default: {DEFAULT_MODEL})"
    parser.add_argument("model", nargs="?", type=named(filename, "model"), help=models)
    for group in GROUPS:
        add_options(parser, options_of(group), parsed=True)
    output = parser.add_argument_group("Output")
    output.add_argument("--json", action="store_true", help="print JSON")
    page = named(filename, "--html")
    output.add_argument("--html", type=page, metavar="FILE", help="write a page with plots too")


def gather(group: type[T], given: argparse.Namespace) -> T:
    """Build one group of what was given; the rest has its defaults."""
    found = fields(group)  # type: ignore[arg-type]
    return group(**{field.name: getattr(given, field.name, field.default) for field in found})
