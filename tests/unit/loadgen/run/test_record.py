from __future__ import annotations

import json
import math
from typing import Any

import pytest

from core.inputs.objectives import Objective
from loadgen.load.plan import Planned
from loadgen.load.spec import parse_slo
from loadgen.report.measure import PER_REQUEST, judge, samples
from loadgen.run.record import Exchange, Record, read_record


def objective(text: str) -> Objective:
    (found,) = parse_slo(text)
    return found


def exchange(*pieces: tuple[float, bytes], status: int = 200) -> Exchange:
    seen = Exchange(Planned(0, 1.0, 10, 6, 1), intended_s=1.0, woke_s=1.0, sent_s=1.5, end_s=9.0)
    seen.status = status
    for t_s, piece in pieces:
        seen.body += piece
        seen.arrivals.append((t_s, len(seen.body)))
    return seen


def frame(text: str | None, tokens: int | None, **more: Any) -> bytes:
    chunk: dict[str, Any] = {"choices": [] if text is None else [{"text": text}], **more}
    if tokens is not None:
        chunk["usage"] = {"prompt_tokens": 10, "completion_tokens": tokens}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def record(*pieces: tuple[float, bytes], eos: bool = False, status: int = 200) -> Record:
    return read_record(exchange(*pieces, status=status), 10, eos)


THREE = (
    (2.0, frame("ab", 2)),
    (3.0, frame("c", 3)),
    (5.0, frame("def", 6)),
    (5.1, frame(None, 6) + DONE),
)


def test_every_definition_on_a_stream_worked_out_by_hand() -> None:
    seen = record(*THREE)
    values = {name: formula(seen) for name, formula in PER_REQUEST.items()}
    assert values == pytest.approx(
        {
            "ttft": 2.0 - 1.0,
            "ttft_send": 2.0 - 1.5,
            "e2e": 5.0 - 1.0,
            "e2e_send": 5.0 - 1.5,
            "tpot": (5.0 - 2.0) / (6 - 1),
            "tpot_net": (5.0 - 2.0) / (6 - 2),
            "stall_max": 2.0,
        }
    )
    assert samples("itl", seen) == [(1.0, 1), (2.0 / 3, 3)]


def test_a_frame_counts_when_its_last_byte_is_here() -> None:
    first = frame("a", 1)
    pieces = [(2.0, first[:5]), (2.2, first[5:20]), (2.4, first[20:]), (3.0, DONE)]
    assert record(*pieces).content == [(2.4, 1)]


def test_frames_that_arrive_together_are_still_counted_apart() -> None:
    joined = b"".join([frame("a", 1), frame("b", 2), frame("c", 3), frame(None, 3), DONE])
    seen = record((2.0, joined))
    assert [tokens for _, tokens in seen.content] == [1, 1, 1]
    assert seen.counted_tokens == 3


def test_role_only_empty_and_usage_chunks_are_no_content() -> None:
    role = b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
    said = b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n'
    seen = record((2.0, role), (3.0, frame("", 0)), (4.0, said), (5.0, frame(None, 1) + DONE))
    assert [t_s for t_s, _ in seen.content] == [4.0]


def test_tokens_of_an_empty_chunk_are_counted_with_the_next_text() -> None:
    seen = record((2.0, frame("a", 1)), (3.0, frame("", 2)), (4.0, frame("é", 3)), (5.0, DONE))
    assert seen.content == [(2.0, 1), (4.0, 2)]


def test_without_running_usage_token_counts_are_unknown_and_not_guessed() -> None:
    seen = record((2.0, frame("a", None)), (3.0, frame("b", None)), (4.0, frame(None, 2) + DONE))
    assert seen.content == [(2.0, None), (3.0, None)]
    assert samples("itl", seen) == []
    assert PER_REQUEST["tpot"](seen) == 1.0
    assert PER_REQUEST["tpot_net"](seen) is None


def test_a_total_with_the_last_chunk_alone_gives_no_difference() -> None:
    seen = record((2.0, frame("a", None)), (3.0, frame("b", None)), (4.0, frame("c", 60) + DONE))
    assert [tokens for _, tokens in seen.content] == [None, None, None]
    assert samples("itl", seen) == []
    assert PER_REQUEST["tpot_net"](seen) is None
    assert seen.counted_tokens is None, "it is the usage once more"


def test_after_a_gap_in_the_totals_only_neighbours_give_a_difference() -> None:
    pieces = ((2.0, frame("a", 1)), (3.0, frame("b", None)), (4.0, frame("c", 3)))
    seen = record(*pieces, (5.0, frame("d", 5) + DONE))
    assert [tokens for _, tokens in seen.content] == [1, None, None, 2]


@pytest.mark.parametrize(
    ("delta", "is_content"),
    [
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}, True),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, True),
        ({"tool_calls": [{"index": 0, "custom": {"input": "x"}}]}, True),
        ({"function_call": {"arguments": "{"}}, True),
        ({"reasoning_content": "so"}, True),
        ({"reasoning": "so"}, True),
        ({"refusal": "no"}, True),
        ({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}, False),
        ({"tool_calls": [], "refusal": None, "reasoning": ""}, False),
    ],
)
def test_whatever_the_model_generates_is_content(delta: dict[str, Any], is_content: bool) -> None:
    chunk = {"choices": [{"delta": delta}]}
    seen = record((2.0, b"data: " + json.dumps(chunk).encode() + b"\n\n"), (3.0, DONE))
    assert bool(seen.content) is is_content
    assert seen.outcome == ("ok" if is_content else "no_content")


@pytest.mark.parametrize(
    ("pieces", "status", "outcome"),
    [
        (THREE, 200, "ok"),
        (THREE[:2], 200, "broken_stream"),
        ([(2.0, b"{}")], 503, "http_503"),
        ([(2.0, b'data: {"error": {"message": "no"}}\n\n' + DONE)], 200, "stream_error"),
        ([(2.0, b"data: {oops\n\n" + DONE)], 200, "stream_error"),
        ([(2.0, b"data: [1]\n\n" + DONE)], 200, "stream_error"),
        ([(2.0, frame(None, 0) + DONE)], 200, "no_content"),
        ([(2.0, frame("a", 1) + DONE)], 200, "early_stop"),
    ],
)
def test_each_ending_has_its_name(pieces, status: int, outcome: str) -> None:
    assert record(*pieces, eos=True, status=status).outcome == outcome


def test_a_percentile_objective_counts_failures_as_endless() -> None:
    good, bad = record(*THREE), record(*THREE[:2])
    slo = objective("ttft.p90=2s")
    assert judge(slo, [good] * 95 + [bad] * 5).met is True
    missed = judge(slo, [good] * 80 + [bad] * 20)
    assert (missed.met, missed.value) == (False, math.inf)
    assert judge(objective("errors=10%"), [good] * 80 + [bad] * 20).met is False
    assert judge(objective("itl.p95=2s"), [good] * 80 + [bad] * 20).met is False
    assert judge(objective("itl.p50=2s"), [good] * 80 + [bad] * 20).met is True


def test_an_objective_on_an_unknown_metric_is_not_judged() -> None:
    blind = record((2.0, frame("a", None)), (3.0, frame("b", None) + DONE))
    assert judge(objective("itl.p50=1s"), [blind]).met is None
    assert judge(objective("tpot.p50=1s"), [blind]).met is None
