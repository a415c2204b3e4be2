"""One choice: whenever its deltas are taken, they join to the same answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.request import FinishReason, RequestId, SamplingParams
from core.wire import Submit, TokenLogprobs
from server.answers.choice import Choice, ChoicePlan, Delta
from server.text.detokenizer import Detokenizer
from server.text.tool_parser import ToolCallParser

BYTES = [bytes([value]) for value in range(256)]
ID = RequestId("r")
CALL = '<tool_call>{"name": "f", "arguments": {"a": "ü"}}</tool_call>'


def deltas(text: str, takes: set[int], plan: ChoicePlan) -> tuple[Choice, list[Delta]]:
    """Deal a text as tokens, a byte each; take after those at places in `takes`, and at the end."""
    submit = Submit(ID, (1, 2), 500, SamplingParams(), ())
    choice = Choice(0, submit, plan, lambda: None)
    taken: list[Delta] = []
    for at, token in enumerate(text.encode()):
        choice.token(token, TokenLogprobs(ID, at + 2, token, -1.0, ()))
        if at in takes:
            taken += choice.take()
    choice.ended(FinishReason.STOP)
    taken += choice.take()
    return choice, taken


def plan(stops: tuple[str, ...] = (), interval: int = 1, echo: str | None = None) -> ChoicePlan:
    return ChoicePlan(
        detokenizer=Detokenizer(BYTES, stops, keep_stop=False, min_tokens=0),
        echo=echo,
        echo_offsets=range(2) if echo else (),
        interval=interval,
        scores=True,
        parser=ToolCallParser("call_"),
    )


texts = st.lists(st.sampled_from(["a", "\n", "€", "🦊", CALL, "<tool_call>", "stop"]), max_size=6)


@given(texts.map("".join), st.sets(st.integers(0, 300)), st.integers(1, 20), st.booleans())
def test_deltas_join_to_the_choice_whenever_they_are_taken(
    text: str, takes: set[int], interval: int, echoes: bool
) -> None:
    echo = "hi" if echoes else None
    whole, _ = deltas(text, set(), plan(("stop",), echo=echo))
    choice, taken = deltas(text, takes, plan(("stop",), interval, echo))
    assert "".join(delta.text for delta in taken) == choice.content == whole.content
    assert choice.calls == whole.calls
    assert [one for delta in taken for one in delta.token_ids] == choice.token_ids
    assert [one for delta in taken for one in delta.scored] == choice.scored == whole.scored
    assert [delta.finish_reason for delta in taken if delta.finish_reason] == [whole.finish_reason]
    assert taken[-1].text == ""
    assert choice.stop_reason == whole.stop_reason


def test_nothing_is_taken_twice_or_after_the_end() -> None:
    choice, taken = deltas("ab", {0}, plan())
    assert [delta.text for delta in taken] == ["a", "b", ""]
    assert list(choice.take()) == []


def test_an_echoed_prompts_first_token_has_no_logprob() -> None:
    choice, _ = deltas("a", set(), plan(echo="hi"))
    assert [one.logprobs is None for one in choice.scored] == [True, True, False]
    assert [one.offset for one in choice.scored] == [0, 1, 2]


def test_a_stop_that_the_last_flush_completes_is_the_stop_reason() -> None:
    submit = Submit(ID, (1, 2), 500, SamplingParams(), ())
    choice = Choice(0, submit, plan(("\ufffd",)), lambda: None)
    for token in (ord("a"), 0xE2):  # an unfinished character, which the end makes U+FFFD
        choice.token(token)
    choice.ended(FinishReason.LENGTH)
    last = list(choice.take())[-1]
    assert (choice.content, choice.finish_reason, choice.stop_reason) == ("a", "stop", "\ufffd")
    assert last.stop_reason == "\ufffd"
