"""One request as the ledger knows it: where its time went and what it was charged.

No prompt, no text, no engine state lives here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from core.request import FinishReason, RequestId
from telemetry.spent.life import Life


class Stage(StrEnum):
    """What a request's time is spent on. The engine's phases are others: it knows no stalls."""

    QUEUE = "queue"
    PREFILL = "prefill"
    DECODE = "decode"
    STALLED = "stalled"  # from a preemption to the next token


class Paid(NamedTuple):
    """A request's exact shares of its steps, and what these steps took as a whole.

    What a step ran for its answer, and not for its prompt or again, is in `decode_…`, too.
    Units: bytes, FLOPs, ns, 1e-9 US dollars.
    """

    bytes_read: int
    bytes_written: int
    flops: int
    floor_ns: int
    decode_floor_ns: int
    checkpoint_floor_ns: int
    time_ns: int
    decode_time_ns: int
    nusd: int
    decode_nusd: int
    steps: int  # that served it
    batch_sum: int  # requests in them
    steps_without_floor: int
    steps_ns: int
    memory_ns: int  # of `steps_ns`, by regime, as in `REGIMES`
    compute_ns: int
    overhead_ns: int
    recomputed_tokens: int

    @classmethod
    def sum(cls, all_paid: Iterable[Paid]) -> Paid:
        """Add up each field."""
        first, *more = all_paid
        return cls._make(map(sum, zip(first, *more, strict=True))) if more else first


NOTHING_PAID: Final = Paid._make([0] * len(Paid._fields))
_DECODE: Final = Stage.DECODE  # looking a member up in its enum is slow
_NO_TIME: Final = dict.fromkeys(Stage, 0)


@dataclass(slots=True, eq=False, kw_only=True)
class Entry:
    """Only the event loop changes it.

    Invariant: `stage_ns` sums to the time from `received_ns` to `since_ns`.
    Units: `_ns` monotonic moments or spans; `nusd` 1e-9 US dollars.
    """

    id: RequestId
    tenant: str
    prompt_tokens: int
    received_ns: int
    since_ns: int  # when the current stage began
    life: Life
    shares_prompt: bool = False  # `usage` counts the prompt with another choice
    stage: Stage = Stage.QUEUE
    stage_ns: dict[Stage, int] = field(default_factory=_NO_TIME.copy)

    tokens: int = 0  # in the answer; overrun ones are not
    first_token_ns: int | None = None
    last_token_ns: int = 0
    resumed: bool = False  # preempted since its last token
    finish_tokens: int | None = None  # the server found a stop: further tokens are overrun
    finish_reason: FinishReason | None = None  # set while tokens of the answer may still be due
    ended_ns: int | None = None  # as its caller sees it
    released: bool = False  # the engine's terminal event came
    forgotten: bool = False  # its response is done

    paid: Paid = NOTHING_PAID
    cached_tokens: int = 0
    kv_block_ns: int = 0
    blocks_since_ns: int | None = None

    @property
    def usage_prompt_tokens(self) -> int:
        return 0 if self.shares_prompt else self.prompt_tokens

    @property
    def overran(self) -> bool:
        """Whether the next token comes after the end that the server found."""
        return self.finish_tokens is not None and self.tokens >= self.finish_tokens

    @property
    def itl_sum_ns(self) -> int:
        return 0 if self.first_token_ns is None else self.last_token_ns - self.first_token_ns

    def stages_ns(self, now_ns: int) -> dict[Stage, int]:
        """Give the time of each stage; the current one's runs up to now."""
        stages_ns = self.stage_ns.copy()
        if self.ended_ns is None:
            stages_ns[self.stage] += max(now_ns - self.since_ns, 0)
        return stages_ns

    def enter(self, stage: Stage, at_ns: int) -> None:
        """Move to `stage`; a moment before the last move counts as the moment of that move."""
        at_ns = max(at_ns, self.since_ns)
        self.stage_ns[self.stage] += at_ns - self.since_ns
        self.stage, self.since_ns = stage, at_ns

    def admitted(self, at_ns: int, room_blocks: int) -> None:
        """Begin to run; `room_blocks` are left over."""
        if self.ended_ns is None:
            self.life.admitted(at_ns)
            self.life.met.room_blocks = room_blocks
            if self.first_token_ns is None:
                self.enter(Stage.PREFILL, at_ns)

    def preempted(self, at_ns: int) -> None:
        self.blocks_since_ns = None
        if self.ended_ns is None:
            self.life.preempted(at_ns)
            self.life.met.preemptions += 1
            self.enter(Stage.STALLED, at_ns)
            self.resumed = True

    def got_token(self, at_ns: int) -> None:
        """Count a token of the answer."""
        met = self.life.met
        if self.first_token_ns is None:
            self.first_token_ns = at_ns
            self.life.got_first_token(at_ns)
        elif at_ns - self.last_token_ns > met.longest_gap_ns:
            met.longest_gap_ns = at_ns - self.last_token_ns
        self.last_token_ns = at_ns
        self.tokens += 1
        self.resumed = False
        if self.stage is not _DECODE:
            self.enter(_DECODE, at_ns)
        if self.finish_reason is not None and self.overran:
            self.end(self.finish_reason, at_ns)

    def finish(self, n_tokens: int, reason: FinishReason, at_ns: int) -> int:
        """Take the end that the server found: the answer has `n_tokens`.

        Returns: how many tokens that were counted already turn out to be overrun.
        """
        surplus = max(self.tokens - n_tokens, 0)
        self.tokens -= surplus
        self.finish_tokens, self.finish_reason = n_tokens, reason
        if self.overran:
            self.end(reason, at_ns)
        return surplus

    def end(self, reason: FinishReason, at_ns: int) -> None:
        """Stop its clocks; if it has ended before, the first end stays."""
        if self.ended_ns is None:
            self.enter(self.stage, at_ns)
            self.ended_ns, self.finish_reason = self.since_ns, reason
            self.life.end(self.since_ns, reason)

    def pay(self, paid: Paid, pieces: Sequence[int], first_pieces: Sequence[int]) -> None:
        """Take its shares of a burst of steps."""
        self.paid = Paid.sum((self.paid, paid))
        self.life.pay(pieces, first_pieces)

    def take_part(self, blocks: int, start_ns: int, end_ns: int) -> int:
        """Count blocks held since its last step, or since `start_ns` where it held none.

        Returns: block-nanoseconds; its bill has those up to its end.
        """
        since_ns = start_ns if self.blocks_since_ns is None else self.blocks_since_ns
        self.blocks_since_ns = end_ns
        held = blocks * (end_ns - since_ns) if end_ns > since_ns else 0
        if self.ended_ns is None:
            self.kv_block_ns += held
            self.life.ran(start_ns, end_ns)
        return held
