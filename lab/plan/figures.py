"""A plan's figures as typed records, from which text, JSON and page are drawn.

Names end in their unit; None is "not known", or "no limit" where it stands for a count. `fits` says
of each rate whether the device can hold what it takes: where it is false, the rate is out of reach.
The fields' names and order are those of the JSON. Nothing is computed here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    name: str
    parameters: int
    longest_context_tokens: int | None
    weights: str
    weight_bytes: int
    kv_dtype: str
    kv_bytes_per_token: int | None = None
    kv_bytes_per_request: int | None = None
    kv_bytes_at_concurrency: int | None = None
    weights_share_of_storage: float | None = None  # with the KV of one request
    weights_share_of_step: float | None = None  # of the bytes of a step at batch 1
    crossover_tokens: int | None = None  # context × batch whose KV is as large as all weights
    crossover_requests: float | None = None
    crossover_read_tokens: int | None = None  # the same, of what a step reads; None is never
    state_bytes_per_request: int | None = None  # of layers without keys
    read_parameters: int | None = None  # by one token, where experts are chosen
    experts: int | None = None
    experts_per_token: int | None = None
    bounds_every_step: bool = True  # False: more than is known here may be only looked up
    prefill_matrix_flops: int
    prefill_flops: int | None = None  # with attention


@dataclass(frozen=True, slots=True)
class WeightsAlone:
    floor_ms: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class PrefillFigures:
    fits: bool | None
    floor_ms: float | None  # most of it is FLOPs: without them the bytes alone are no floor
    memory_ms: float
    compute_ms: float | None
    regime: str | None
    link_ms: float | None = None  # of several devices


@dataclass(frozen=True, slots=True)
class Prefills:
    alone: PrefillFigures
    all_at_once: PrefillFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeFigures:
    """One step at `batch`. Without KV only the weights that it reads are known."""

    batch: int
    fits: bool | None
    weight_bytes: int
    itl_ms: float | None = None
    tokens_per_s: float | None = None
    usd_per_million_tokens: float | None = None
    kv_bytes: int | None = None
    flops: int | None = None
    floor_ms: float | None = None
    memory_ms: float | None = None
    compute_ms: float | None = None
    link_ms: float | None = None
    regime: str | None = None
    spread_itl_ms: float | None = None  # if tokens choose all experts alike


@dataclass(frozen=True, slots=True)
class BatchGoal:
    goal_ms: float | None
    largest_batch: int | None
    binding: str | None
    decided: bool = True  # False: a batch could do it, if less is read than is known here


@dataclass(frozen=True, slots=True)
class PromptGoal:
    goal_ms: float
    prompts_at_once: int | None


@dataclass(frozen=True, slots=True)
class Goals:
    """The goals that were given; in the memory alone the batch is always sought."""

    memory: BatchGoal
    itl: BatchGoal | None
    ttft: PromptGoal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverFigures:
    lever: str
    term: str  # the term of the step that it reduces
    itl_ms: float
    tokens_per_s: float
    throughput_gain: float
    ttft_gain: float | None
    requests_that_fit: int | None
    fits: bool | None


@dataclass(frozen=True, slots=True)
class DraftFigures:
    tokens_per_pass: float
    fits: bool | None
    itl_ms: float | None
    speedup: float | None


@dataclass(frozen=True, slots=True)
class ClaimFigures:
    """A measured rate beside the floor of as many of the requests as fit at once."""

    tokens_per_s: float
    batch: int
    ceiling_tokens_per_s: float
    possible: bool | None  # None: only if less is read than is known here
    efficiency: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFigures:
    name: str
    source: str
    bytes_per_s: float
    flops_per_s: float | None
    memory_bytes: float | None
    devices: int
    arithmetic: str
    link_bytes_per_s: float | None
    price_usd_per_hour: float | None
    weights_fit: bool | None
    requests_that_fit: int | None
    concurrency_fits: bool | None
    weights_alone: WeightsAlone
    prefill: Prefills
    decode_alone: DecodeFigures
    decode: DecodeFigures
    goals: Goals
    curve: list[DecodeFigures]
    levers: list[LeverFigures]
    speculation: DraftFigures | None
    measured: ClaimFigures | None


@dataclass(frozen=True, slots=True)
class PlanFigures:
    model: ModelFigures
    context_tokens: int
    concurrency: int
    devices: list[DeviceFigures]


def as_json(plan: PlanFigures) -> dict[str, Any]:
    """Give what `--json` prints: goals that were not given have no key."""
    found = asdict(plan)
    for device in found["devices"]:
        given = {name: goal for name, goal in device["goals"].items() if goal is not None}
        device["goals"] = given
    return found
