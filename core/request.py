"""A request and the only legal ways its life can go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, NewType

RequestId = NewType("RequestId", str)
BlockId = NewType("BlockId", int)

DEFAULT_TENANT: Final = "default"  # whose requests are, where nobody is told apart


class Phase(Enum):
    QUEUED = "queued"  # owns no blocks: never admitted, or preempted
    PREFILL = "prefill"  # owns blocks; some known token has no KV yet
    DECODE = "decode"  # one new token per step
    FINISHED = "finished"  # terminal; an `Ended` told why


class FinishReason(StrEnum):
    STOP = "stop"  # end-of-sequence, a stop token id, or a stop string that the server found
    LENGTH = "length"
    ABORTED = "aborted"
    FAILED = "failed"
    REFUSED = "refused"  # by the server, which waited in vain for it to be admitted


class Obstacle(StrEnum):
    """Why a request waits that the engine has not admitted."""

    KV = "kv"  # the head of the queue found no blocks; all behind it wait for the same
    SLOTS = "slots"  # as many requests run as may
    BUDGET = "budget"  # the step's tokens were spent, or no step was planned since it came
    GRAMMAR = "grammar"  # its grammar is being compiled; it is in no queue yet


_LEGAL: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.QUEUED: frozenset({Phase.PREFILL, Phase.FINISHED}),
    Phase.PREFILL: frozenset({Phase.DECODE, Phase.QUEUED, Phase.FINISHED}),
    Phase.DECODE: frozenset({Phase.QUEUED, Phase.FINISHED}),
    Phase.FINISHED: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is drawn: a pure function of these, the logits and the known tokens.

    `temperature` 0 is greedy; `top_k` 0 is off. `seed` is always set: the server draws one for a
    request that brings none. What is masked stays so at any temperature.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    frequency_penalty: float = 0.0  # taken off per occurrence in the output
    presence_penalty: float = 0.0  # taken off once for a token of the output
    repetition_penalty: float = 1.0  # divides the logit of a token of prompt or output
    logit_bias: tuple[tuple[int, float], ...] = ()  # token, what is added to its logit
    min_tokens: int = 0  # stop token ids are masked until so many were sampled
    allowed_token_ids: tuple[int, ...] = ()  # all others are masked; empty allows all
    bad_words: tuple[tuple[int, ...], ...] = ()  # token sequences that no token may complete
    logprobs: int | None = None  # best tokens to tell beside the sampled one; None tells none
    prompt_logprobs: int | None = None  # the same for each prompt token but the first


class GrammarKind(StrEnum):
    JSON_OBJECT = "json_object"  # any object; has no text
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    CHOICE = "choice"  # the text is a JSON list of strings
    LARK = "lark"


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an output must be, as text."""

    kind: GrammarKind
    text: str = ""


@dataclass(slots=True, eq=False, kw_only=True)
class Request:
    """One generation. Mutable, and mutated by one thread only: the engine loop's."""

    id: RequestId
    prompt_ids: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams = SamplingParams()
    stop_token_ids: frozenset[int] = frozenset()  # end-of-sequence among them, unless ignored
    matcher: object | None = None  # of its grammar; `grammar/compile.py` alone looks inside
    tenant: str = DEFAULT_TENANT
    cache_salt: str = ""
    priority: int = 0  # lower is served first
    arrival: int = 0  # its place among all that were ever queued
    output_ids: list[int] = field(default_factory=list)
    block_table: list[BlockId] = field(default_factory=list)
    indexed_blocks: int = 0  # leading blocks of the table that the prefix index knows
    block_keys: list[bytes] = field(default_factory=list)  # of its known tokens, as far as asked
    phase: Phase = Phase.QUEUED

    admitted_tokens: int = 0  # known when it was last admitted
    computed_tokens: int = 0  # leading tokens with valid KV
    highest_computed_tokens: int = 0  # the most it ever had: positions below are recomputed ones
    cached_tokens: int = 0  # taken from the prefix index, over all its admissions

    @property
    def known_tokens(self) -> int:
        return len(self.prompt_ids) + len(self.output_ids)

    @property
    def pending_tokens(self) -> int:
        """Known tokens that still need a forward pass; 1 in steady decode."""
        return self.known_tokens - self.computed_tokens

    @property
    def worst_case_tokens(self) -> int:
        """Tokens with KV when it has run to `max_tokens`: the last sampled one needs none."""
        return len(self.prompt_ids) + max(self.max_tokens - 1, 0)

    def token_at(self, position: int) -> int:
        prompt = len(self.prompt_ids)
        return (
            self.prompt_ids[position] if position < prompt else self.output_ids[position - prompt]
        )

    def enter(self, phase: Phase) -> None:
        """Move to `phase`.

        Raises:
            AssertionError: the move is not in the table: a bug in us, never in the caller's input.
        """
        assert phase in _LEGAL[self.phase], f"{self.id}: {self.phase} -> {phase}"
        self.phase = phase
