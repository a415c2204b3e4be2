"""What is sent is what arrives."""

from __future__ import annotations

import msgspec
import pytest

from core.formats import CheckpointBytes, Expansion, KVFormat, MatrixFormat, Storage, WeightFormat
from core.machine import Peak, Peaks, PeakSource
from core.model import ModelConfig, RopeConfig, TensorRole
from core.request import FinishReason, Grammar, GrammarKind, Obstacle, RequestId, SamplingParams
from core.settings import EngineSettings
from core.wire import (
    HEADER,
    Abort,
    Description,
    Drain,
    Ended,
    Fault,
    Finish,
    FromEngine,
    Idle,
    PoolState,
    Ready,
    Segments,
    SharedRun,
    SliceRecord,
    Start,
    StepReport,
    Submit,
    ToEngine,
    TokenLogprobs,
    description_from_json,
    description_to_json,
    frame,
    from_engine,
    to_engine,
)

A = RequestId("a")
POOL = PoolState(1, 2, 3, 4, {Obstacle.KV: 5, Obstacle.GRAMMAR: 6})
ENDED = (Ended(A, FinishReason.FAILED, "nan"),)
READY = Ready(
    ready_ns=1,
    model=ModelConfig(
        name="m",
        vocab_size=4,
        hidden_size=4,
        intermediate_size=4,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_dim=2,
        max_position_tokens=8,
        norm_eps=1e-5,
        rope=RopeConfig(theta=1e4),
        tied_embeddings=True,
        sliding_window=(None, 4),
        eos_token_ids=(1, 2),
    ),
    model_dir="d",
    weights=WeightFormat.FP16,
    storage=Storage(MatrixFormat.FP16, True, (("embed", MatrixFormat.INT8_G32),)),
    kv_dtype=KVFormat.FP32,
    weight_bytes={TensorRole.TIED: 3},
    kv_bytes=4,
    block_size=16,
    num_blocks=5,
    max_model_len=8,
    threads=2,
    peaks=Peaks(
        dram=Peak(1e9, PeakSource.MEASURED),
        cache=None,
        cache_bytes=1,
        flops=Peak(1e9, PeakSource.GIVEN),
        arithmetic="fp32",
    ),
    backend="torch",
    isa="",
    max_num_seqs=5,
    max_step_tokens=6,
    checkpoint=CheckpointBytes(9, (Expansion("Q4_K", MatrixFormat.FP16, 3, 8),)),
)
STEP = StepReport(
    index=1,
    start_ns=2**62,
    end_ns=2**62 + 5,
    segments=Segments(1, 2, 3, 4, 5, 6, 7),
    slices=(SliceRecord(A, 1, 2, 1, 0, 0, 3),),
    shared=(SharedRun((0, 1), 16),),
    distinct_token_ids=2,
    tokens=((A, 9),),
    ended=ENDED,
    admitted=(A,),
    preempted=(),
    pool=POOL,
    logprobs=(TokenLogprobs(A, 3, 9, -0.5, ((9, -0.5), (1, -9999.0))),),
    prompt_logprobs=(TokenLogprobs(A, 1, 2, -1.5, ()),),
)


@pytest.mark.parametrize(
    "message",
    [
        Start(EngineSettings()),
        Submit(A, (1, 2), 3, SamplingParams(seed=-(2**63)), (0,)),
        Submit(
            A,
            (1, 2),
            3,
            SamplingParams(logit_bias=((1, -100.0),), bad_words=((1, 2), (3,)), logprobs=0),
            (),
            Grammar(GrammarKind.REGEX, "[a-z]+"),
            "tenant",
            "salt",
            -1,
        ),
        Finish(A, 2, FinishReason.STOP),
        Abort(A),
        Drain(),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_the_server_says_arrives_whole(message: ToEngine) -> None:
    data = frame(message)
    assert HEADER.unpack(data[: HEADER.size]) == (len(data) - HEADER.size,)
    assert to_engine.decode(data[HEADER.size :]) == message


@pytest.mark.parametrize(
    "message",
    [READY, STEP, Idle(1, 2, ENDED, POOL), Fault("k", "m", 1, 2, ENDED, POOL)],
    ids=lambda message: type(message).__name__,
)
def test_what_the_engine_says_arrives_whole(message: FromEngine) -> None:
    assert from_engine.decode(frame(message)[HEADER.size :]) == message


def test_a_message_of_the_other_direction_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        to_engine.decode(frame(Idle(1, 2, (), POOL))[HEADER.size :])


def test_a_description_as_json_is_read_back_whole() -> None:
    description = Description(
        model=READY.model, storage=READY.storage, weights=READY.weights, cache_bytes=33_554_432
    )
    assert description_from_json(description_to_json(description)) == description
