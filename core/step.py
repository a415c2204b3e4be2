"""The values that pass between plan, execute and commit, inside the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.request import Request, RequestId
from core.wire import TokenLogprobs


@dataclass(frozen=True, slots=True)
class Slice:
    """`length` tokens of one request, from token `start` on, run in one step.

    `samples` says that the slice ends at the last known token, whose logits yield the next one.
    `scored` are the positions whose logits say how likely the prompt's next token was.
    """

    request: Request
    start: int
    length: int
    samples: bool
    scored: range = range(0)

    @property
    def rows(self) -> int:
        """Rows whose logits are needed."""
        return len(self.scored) + self.samples


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Invariant: each request has at most one slice."""

    slices: tuple[Slice, ...]
    admitted: tuple[RequestId, ...] = ()
    preempted: tuple[RequestId, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one forward pass gave: a token for each sampling slice, or why that row has none.

    The rest of the time that `execute` took is preparation.
    """

    tokens: Mapping[RequestId, int]
    failed: Mapping[RequestId, str] = field(default_factory=dict)
    forward_ns: int = 0
    sample_ns: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
