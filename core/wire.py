"""What crosses the socket between the server and the engine: msgpack structs, and their framing.

A frame is a 4-byte big-endian length and one msgpack message. Times are
`time.monotonic_ns()`, which both processes share on one machine.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from core.formats import CheckpointBytes, KVFormat, Storage, WeightFormat
from core.machine import Peaks
from core.model import ModelConfig, TensorRole
from core.request import DEFAULT_TENANT, FinishReason, Grammar, Obstacle, RequestId, SamplingParams
from core.settings import EngineSettings

# ── server → engine ───────────────────────────────────────────────────────────────────────────


class Start(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """The first message: what to load and how. Answered by `Ready`, or by a `Fault` and exit 2."""

    settings: EngineSettings


class Submit(msgspec.Struct, frozen=True, array_like=True, tag="submit"):
    """Run one generation. Ends in exactly one `Ended` of that id.

    `stop_token_ids` holds the end-of-sequence ids too, unless the caller ignores them. An output
    with a grammar ends where the grammar does, whatever they hold.
    """

    id: RequestId
    prompt_ids: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    stop_token_ids: tuple[int, ...]
    grammar: Grammar | None = None
    tenant: str = DEFAULT_TENANT
    cache_salt: str = ""  # requests of different salts share no blocks
    priority: int = 0


class Finish(msgspec.Struct, frozen=True, array_like=True, tag="finish"):
    """The server found the end (a stop string, a wait too long): keep `n_tokens`, end so."""

    id: RequestId
    n_tokens: int
    reason: FinishReason


class Abort(msgspec.Struct, frozen=True, array_like=True, tag="abort"):
    """Nobody wants the rest. Unknown and ended ids are ignored."""

    id: RequestId


class Drain(msgspec.Struct, frozen=True, array_like=True, tag="drain"):
    """Finish what is live, then exit."""


class Remeasure(msgspec.Struct, frozen=True, array_like=True, tag="remeasure"):
    """A step got under its floor: measure the peaks anew. An engine that has work ignores it."""


class Ping(msgspec.Struct, frozen=True, array_like=True, tag="ping"):
    """Is the loop alive? Answered by `Pong`, once the step under way has ended."""


ToEngine = Start | Submit | Finish | Abort | Drain | Remeasure | Ping


# ── engine → server ───────────────────────────────────────────────────────────────────────────


class SliceRecord(msgspec.Struct, frozen=True, array_like=True):
    """One request's part of a step."""

    id: RequestId
    start: int  # tokens of context already in the KV store (c)
    length: int  # new tokens (n)
    rows: int  # rows whose logits were needed (r)
    cached: int  # tokens that its admission in this step took from the prefix index
    recomputed: int  # of `length`, positions that had been computed before a preemption
    blocks: int  # blocks held


class SharedRun(msgspec.Struct, frozen=True, array_like=True):
    """Context tokens whose blocks several slices of the step read: moved once, split evenly."""

    readers: tuple[int, ...]  # indices into the step's slices, at least two
    tokens: int


class Segments(msgspec.Struct, frozen=True, array_like=True):
    """Where the engine thread's time went, in ns; disjoint. `publish` is the previous record's."""

    publish: int
    receive: int
    plan: int
    prepare: int
    forward: int
    sample: int
    commit: int


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """How likely the model found one token: log-softmax of the raw logits, before any setting.

    Invariant: no value is below -9999, so each is a JSON number.
    """

    id: RequestId
    position: int  # of the token in the request, prompt included
    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # the likeliest tokens and their values, best first


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """The one terminal event of a request."""

    id: RequestId
    reason: FinishReason
    message: str = ""  # why, where reason is FAILED


class PoolState(msgspec.Struct, frozen=True, array_like=True):
    """Gauges, true when the message was made."""

    free_blocks: int
    cached_blocks: int
    referenced_blocks: int
    running: int
    waiting: dict[Obstacle, int] = {}  # an obstacle that nobody waits for is left out


class StepReport(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    """What ran, on whose behalf, how long each segment took.

    Invariant: start_ns is the end_ns of the previous record, or the moment an idle engine got work;
        the segments sum to end_ns - start_ns but for the clock reads between them.
    """

    index: int
    start_ns: int
    end_ns: int
    segments: Segments
    slices: tuple[SliceRecord, ...]
    shared: tuple[SharedRun, ...]
    distinct_token_ids: int  # rows of the input embedding that were read
    tokens: tuple[tuple[RequestId, int], ...]  # sampled, in slice order
    ended: tuple[Ended, ...]
    admitted: tuple[RequestId, ...]
    preempted: tuple[RequestId, ...]
    pool: PoolState
    logprobs: tuple[TokenLogprobs, ...] = ()  # of sampled tokens, where the request asks
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()  # of prompt tokens, where the request asks
    compiled: tuple[tuple[RequestId, int], ...] = ()  # whose grammar was, since the last; when, ns


class Idle(msgspec.Struct, frozen=True, array_like=True, tag="idle"):
    """Nothing is live since `start_ns`, the end of the previous record's publishing.

    `publish_ns` is what sending the previous record took: host time between its end and `start_ns`.
    The next record's `start_ns` ends the idle span, and its `publish` segment is then 0. Another
    `Idle` may come before it: the engine has begun, or ended, to measure its peaks meanwhile.
    """

    start_ns: int
    publish_ns: int
    ended: tuple[Ended, ...]
    pool: PoolState
    measuring: bool = False  # its peaks, from `start_ns` on


class Fault(msgspec.Struct, frozen=True, array_like=True, tag="fault"):
    """A step raised: our bug. Its requests are in `ended` as FAILED; the loop goes on."""

    kind: str
    message: str
    start_ns: int
    end_ns: int
    ended: tuple[Ended, ...]
    pool: PoolState


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The engine is loaded and warm; the clock of the time law starts at `ready_ns`."""

    ready_ns: int
    model: ModelConfig
    model_dir: str  # holds tokenizer.json and chat_template.jinja (absent where there is none)
    weights: WeightFormat  # as asked for
    storage: Storage  # as they are
    kv_dtype: KVFormat
    weight_bytes: dict[TensorRole, int]  # allocated
    kv_bytes: int  # allocated
    block_size: int
    num_blocks: int
    max_model_len: int  # prompt and output together: the one context limit
    threads: int
    peaks: Peaks
    backend: str  # "torch", or a native kernel's name
    isa: str
    max_num_seqs: int  # in a step
    max_step_tokens: int
    checkpoint: CheckpointBytes | None = None  # None: nobody counted


class Measured(msgspec.Struct, frozen=True, array_like=True, tag="measured"):
    """The answer to `Remeasure`: what the device can do at best, as far as anybody has seen."""

    peaks: Peaks


class Pong(msgspec.Struct, frozen=True, array_like=True, tag="pong"):
    """The answer to `Ping`. It says nothing of work."""


FromEngine = Ready | StepReport | Idle | Fault | Measured | Pong


# ── engine → whoever asks, as JSON on its standard output ────────────────────────────────────


class Description(msgspec.Struct, frozen=True):
    """What a model is, and what of this machine no server tells.

    No weight is kept for it; those in bf16 are read, to see whether fp16 has their range.
    """

    model: ModelConfig
    storage: Storage  # with `--weights native`
    weights: WeightFormat  # where nothing is said
    cache_bytes: int  # of the cache that its cores get


def description_to_json(description: Description) -> bytes:
    return msgspec.json.encode(description)


def description_from_json(text: bytes) -> Description:
    """Invariant: gives back what `description_to_json` was given."""
    return msgspec.json.decode(text, type=Description)


# ── framing ───────────────────────────────────────────────────────────────────────────────────

HEADER: Final = struct.Struct(">I")
MAX_FRAME_BYTES: Final = (
    256 * 1024 * 1024
)  # a bound against a corrupt length, far above any message

_encode = msgspec.msgpack.Encoder().encode


def frame(message: ToEngine | FromEngine) -> bytes:
    body = _encode(message)
    return HEADER.pack(len(body)) + body


to_engine = msgspec.msgpack.Decoder(ToEngine)
from_engine = msgspec.msgpack.Decoder(FromEngine)
