"""The sentence is a pure function of the pieces: goldens by hand, and a matrix of causes."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from core.request import FinishReason, RequestId
from costmodel.alone import AloneFloor
from telemetry.spent.pieces import Piece
from telemetry.why.advice import LONGEST_ADVICE
from telemetry.why.case import Case, Limits
from telemetry.why.explain import Explanation, explained
from telemetry.why.verdict import GROUPS, SLOW_NS, Group
from telemetry.why.words import LONGEST_SENTENCE, span

MS = 1_000_000
FLOORS = (Piece.FLOOR_PREFILL, Piece.FLOOR_DECODE)


def ms(**pieces: float) -> dict[Piece, int]:
    return {Piece(name): round(value * MS) for name, value in pieces.items()}


def alone(prefill_ms: float, decode_ms: float = 0.0) -> AloneFloor:
    return AloneFloor(round(prefill_ms * MS), round(decode_ms * MS), True, False)


def limits(slots: int = 4, step_tokens: int = 128, kv_tokens: int = 1024) -> Limits:
    return Limits(
        max_num_seqs=slots,
        step_tokens=step_tokens,
        block_size=16,
        kv_tokens=kv_tokens,
        kv_token_bytes=23_040,
        int8_token_bytes=11_880,
    )


def case(
    first: Mapping[Piece, int],
    after: Mapping[Piece, int] | None = None,
    tokens: int = 1,
    **changes: object,
) -> Case:
    """Make a case of the pieces before its first token and of those after it."""
    rest = after or {}
    spent = {piece: first.get(piece, 0) + rest.get(piece, 0) for piece in Piece}
    spent = {piece: ns for piece, ns in spent.items() if ns}
    fields: dict[str, object] = {
        "id": RequestId("cmpl-7a"),
        "reason": FinishReason.LENGTH,
        "prompt_tokens": 64,
        "cached_tokens": 0,
        "tokens": tokens,
        "steps": tokens,
        "mean_batch": 1.0,
        "e2e_ns": sum(spent.values()),
        "ttft_ns": sum(first.values()),
        "itl_ns": sum(rest.values()) / (tokens - 1) if tokens > 1 else None,
        "longest_gap_ns": 0,
        "spent_ns": spent,
        "first_ns": dict(first),
        "alone": alone(13.79),
        "behind": 0,
        "behind_own": 0,
        "room_for": 0,
        "preemptions": 0,
        "recomputed_tokens": 0,
        "others_prompt_tokens": 0,
        "others_prompt_steps": 0,
        "limits": limits(),
    }
    return Case(**(fields | changes))  # type: ignore[arg-type]


def told(found: Case) -> Explanation:
    """Explain a case; what holds for each explanation is checked here."""
    explanation = explained(found)
    assert len(explanation.sentence) <= LONGEST_SENTENCE, explanation.sentence
    assert all(len(advice.text) <= LONGEST_ADVICE for advice in explanation.advice)
    assert sum(explanation.spent_ms.values()) == pytest.approx(explanation.measured_ms)
    return explanation


def texts(explanation: Explanation) -> list[str]:
    return [advice.text for advice in explanation.advice]


def test_alone_and_near_its_floor_is_not_slow() -> None:
    after = ms(floor_decode=662.0, memory_shortfall=340.0, host=45.55)
    found = told(case(ms(floor_prefill=7.06, host=4.54), after, 512, alone=alone(7.06, 662.0)))
    assert not found.slow
    assert found.sentence == (
        "Not slow: 512 tokens at 2.05 ms each, in all 1.05 s, "
        "1.6 × the 669 ms that it takes at best."
    )
    assert not found.advice


def test_waiting_for_a_slot_says_how_many_more_would_fit() -> None:
    first = ms(
        accept=0.5, wait_step=7, wait_slots=1893, others_decode=0.9, floor_prefill=13.79,
        compute_shortfall=4.6, sample=0.3, host=1.2, deliver=0.1,
    )  # fmt: skip
    found = told(case(first, behind=7, behind_own=7, room_for=6))
    assert (found.code, found.part) == (Piece.WAIT_SLOTS, "ttft")
    assert found.sentence == (
        "First token after 1.92 s: 1.89 s (98 %) waiting for one of 4 slots behind 7 requests."
    )
    assert texts(found) == ["KV blocks for 6 more were free: --max-num-seqs 10"]
    assert (found.advice[0].flag, found.advice[0].value) == ("--max-num-seqs", 10)


def test_other_tenants_are_counted_and_not_named() -> None:
    found = told(case(ms(wait_slots=900, floor_prefill=13.79), behind=7, behind_own=2))
    assert "behind 7 requests, 5 of other tenants" in found.sentence
    assert texts(found) == ["no KV blocks were free for more: another replica, or --kv-memory"]


def test_prompts_of_others_come_with_a_size_of_step_that_keeps_the_gap() -> None:
    after = ms(
        others_prefill=675.65, floor_decode=64.52, memory_shortfall=26.0,
        compute_shortfall=0.91, sample=1.5, host=6.51,
    )  # fmt: skip
    found = told(
        case(
            ms(floor_prefill=13.79),
            after,
            64,
            alone=alone(13.79, 80.26),
            steps=63,
            others_prompt_tokens=2000,
            others_prompt_steps=16,
            longest_gap_ns=round(52.1 * MS),
        )
    )
    assert found.code is Piece.OTHERS_PREFILL
    assert found.sentence == (
        "Tokens 12.3 ms each, 9.7 × their floor: 675 ms (87 %) computing 2,000 prompt tokens of "
        "others in 16 of its 63 steps; longest gap 52.1 ms."
    )
    assert texts(found) == ["--max-num-batched-tokens 48 keeps such a step at or under 20.0 ms"]


def test_want_of_blocks_names_preemptions_and_a_narrower_store() -> None:
    first = ms(accept=0.6, wait_kv=212, floor_prefill=40.0)
    after = ms(
        stalled=1618, recompute=251, others_decode=585, others_prefill=96, floor_decode=411.2,
        memory_shortfall=118, compute_shortfall=21, sample=12, host=37.1, deliver=0.1,
    )  # fmt: skip
    found = told(
        case(first, after, 300, alone=alone(40.0, 458.9), preemptions=2, recomputed_tokens=983)
    )
    assert found.code is Piece.STALLED
    assert "for want of KV blocks: preempted 2 times, 983 tokens computed again" in found.sentence
    (text,) = texts(found)
    assert text == (
        "the store holds 1,024 tokens: a larger --kv-memory, "
        "or --kv-dtype int8 (11,880 instead of 23,040 bytes a token)"
    )


def test_a_prompt_that_alone_misses_its_goal_is_the_work_itself() -> None:
    first = ms(accept=3.1, wait_step=2, floor_prefill=668.22, compute_shortfall=76, sample=0.4,
               host=9, deliver=0.1)  # fmt: skip
    found = told(
        case(
            first,
            alone=alone(668.22),
            goals_ns={"ttft": 500 * MS},
            prompt_tokens=2310,
            cached_tokens=32,
        )
    )
    assert found.sentence == (
        "First token after 758 ms, goal 500 ms: 668 ms (88 %) is the least that 2,278 uncached "
        "prompt tokens take here, bound by arithmetic."
    )
    assert "twice the FLOP/s halves it" in texts(found)[0]


def test_a_shortfall_claims_no_reason() -> None:
    after = ms(floor_decode=129.28, memory_shortfall=92.0, sample=2.3, host=16.42)
    goals = {"itl": 2 * MS}
    found = told(case(ms(floor_prefill=9), after, 101, alone=alone(9, 129.28), goals_ns=goals))
    assert found.sentence == (
        "Tokens 2.40 ms each, goal 2.00 ms, 1.9 × their floor: 92.0 ms (38 %) above the floor of "
        "its bytes; the records do not say why."
    )


def test_a_grammar_is_named() -> None:
    first = ms(accept=3, grammar=1241, wait_step=1.8, floor_prefill=30.1, compute_shortfall=9.5,
               others_decode=24, sample=0.9, host=1.6, deliver=0.1)  # fmt: skip
    found = told(case(first, alone=alone(30.1)))
    assert found.sentence == "First token after 1.31 s: 1.24 s (94 %) compiling its grammar."


def test_who_hung_up_or_was_refused_is_said_first() -> None:
    waited = ms(wait_slots=120_000)
    refused = case(waited, reason=FinishReason.REFUSED, tokens=0, ttft_ns=None, first_ns={})
    assert told(refused).sentence.startswith("Refused: it waited too long. Answer after 120 s: ")
    gone = case(ms(floor_prefill=13.79), reason=FinishReason.ABORTED)
    assert told(gone).sentence.startswith("The client hung up. Not slow: ")


def test_two_equal_causes_are_both_named() -> None:
    first = ms(wait_slots=500, others_prefill=480, floor_prefill=13.79)
    found = told(case(first, behind=3, behind_own=3))
    assert (found.code, found.also) == (Piece.WAIT_SLOTS, (Piece.OTHERS_PREFILL,))
    assert found.sentence.endswith("; 480 ms (48 %) others' prompts.")


def test_what_no_group_holds_is_spread() -> None:
    first = ms(wait_kv=60, wait_slots=62, others_decode=61, accept=64, host=63, floor_prefill=13.79)
    found = told(case(first))
    assert found.code == "spread"
    assert "spread over 64.0 ms (19 %) before the engine had it" in found.sentence


def test_without_a_floor_nothing_is_called_slow_unless_a_goal_is_missed() -> None:
    pieces = ms(unknown_peak=5000, host=10)
    assert not told(case(pieces, alone=None)).slow
    found = told(case(pieces, alone=None, goals_ns={"ttft": 500 * MS}))
    assert found.code is Piece.UNKNOWN_PEAK
    assert "×" not in found.sentence


CAUSES = [piece for group in Group for piece in GROUPS[group]]


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_that_holds_most_is_the_one_that_is_told(cause: Piece) -> None:
    """The cause has 40 % of the time or more, and each other piece at most 10 %."""
    random = Random(cause)
    for _ in range(200):
        weights = {piece: random.uniform(0, 0.1) for piece in Piece if piece not in FLOORS}
        weights[cause] = random.uniform(0.4, 1.0) + sum(weights.values())
        whole = random.uniform(4, 400) * SLOW_NS
        scale = whole / sum(weights.values())
        pieces = {piece: int(weight * scale) for piece, weight in weights.items()}
        pieces[Piece.FLOOR_PREFILL] = int(whole * 0.05)
        found = told(case(pieces, alone=alone(pieces[Piece.FLOOR_PREFILL] / MS)))
        assert found.slow
        assert found.code is cause


def test_spans_round_down() -> None:
    assert [span(ns) for ns in (1_999_999_999, 999_999_999, 99_960_000, 9_999_000, 5_000)] == [
        "1.99 s", "999 ms", "99.9 ms", "9.99 ms", "0.00 ms",
    ]  # fmt: skip
