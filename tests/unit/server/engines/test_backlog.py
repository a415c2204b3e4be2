"""Whom the queue's bounds refuse, and when they are told to come back."""

from __future__ import annotations

import pytest

from core.errors import Overloaded
from core.request import RequestId
from core.settings import HttpSettings
from server.engines.backlog import LONGEST_S, UNKNOWN_S, Backlog

LIMITS = HttpSettings(max_queue=3, max_queue_tokens=100)


def backlog(*prompts: int) -> Backlog:
    some = Backlog()
    for number, tokens in enumerate(prompts):
        some.joined(RequestId(str(number)), "a", tokens, now_s=float(number))
    return some


def refusal(some: Backlog, *prompts: int) -> Overloaded:
    with pytest.raises(Overloaded) as caught:
        some.make_way(LIMITS, "a", list(prompts))
    return caught.value


def test_as_many_requests_live_as_the_limit_says() -> None:
    some = backlog(1, 1)
    some.make_way(LIMITS, "a", [1])
    assert "2 requests are live" in refusal(some, 1, 1).message
    some.left(RequestId("0"))
    some.make_way(LIMITS, "a", [1, 1])


def test_as_many_prompt_tokens_wait_as_the_limit_says() -> None:
    some = backlog(60)
    some.make_way(LIMITS, "a", [40])
    assert "60 prompt tokens wait" in refusal(some, 41).message
    some.admitted(RequestId("0"))
    some.make_way(LIMITS, "a", [41])


def test_a_prompt_beyond_the_limit_is_taken_when_nothing_waits() -> None:
    backlog().make_way(LIMITS, "a", [1_000])


def test_each_tenant_has_the_limits_for_itself() -> None:
    some = backlog(60, 1, 1)
    some.make_way(LIMITS, "b", [1, 1, 100])
    some.joined(RequestId("b0"), "b", 70, now_s=3.0)
    with pytest.raises(Overloaded, match="70 prompt tokens wait"):
        some.make_way(LIMITS, "b", [31])
    some.left(RequestId("b0"))
    some.make_way(LIMITS, "b", [1, 1, 1])
    assert "3 requests are live" in refusal(some, 1).message


def test_the_refused_are_told_when_there_will_be_room_at_the_measured_rate() -> None:
    some = backlog(50, 50, 50)
    assert refusal(some, 1).retry_after_s == UNKNOWN_S
    some.left(RequestId("0"))
    some.stepped(10.0)  # a request and 50 tokens in 10 s
    some.joined(RequestId("3"), "a", 50, now_s=9.0)
    assert refusal(some, 1).retry_after_s == pytest.approx(30), "three wait before it"
    for id in ("1", "2"):
        some.admitted(RequestId(id))
    assert refusal(some, 1).retry_after_s == pytest.approx(10)
    assert refusal(some, 1, 1).retry_after_s == pytest.approx(20)
    some.left(RequestId("1"))
    assert refusal(some, 75).retry_after_s == pytest.approx(10), "one request, 50 tokens, at 5/s"


def test_a_tenant_is_told_to_come_back_at_its_share_of_the_rate() -> None:
    some = backlog(50, 50, 50)
    some.left(RequestId("0"))
    some.stepped(10.0)  # a request and 50 tokens in 10 s
    some.joined(RequestId("3"), "a", 50, now_s=9.0)
    assert refusal(some, 1).retry_after_s == pytest.approx(30)
    some.joined(RequestId("b0"), "b", 50, now_s=9.0)
    assert refusal(some, 1).retry_after_s == pytest.approx(60)
    some.left(RequestId("1"))
    assert refusal(some, 25).retry_after_s == pytest.approx(2 * 100 / 5)
    some.admitted(RequestId("b0"))
    assert refusal(some, 25).retry_after_s == pytest.approx(100 / 5)


def test_the_wait_that_is_told_is_bounded() -> None:
    some = backlog(1, 1, 1)
    some.left(RequestId("0"))
    some.stepped(1e-3)
    some.joined(RequestId("3"), "a", 1, now_s=9.0)
    assert refusal(some, 1).retry_after_s == 1.0
    some.stepped(1e3)
    assert refusal(some, 1).retry_after_s == LONGEST_S


def test_those_who_waited_too_long_are_found_oldest_first() -> None:
    some = backlog(1, 1, 1)
    some.admitted(RequestId("0"))
    assert some.overdue(now_s=12.5, limit_s=11.0) == ["1"]
    assert some.overdue(now_s=13.5, limit_s=11.0) == ["1", "2"]
    assert len(some) == 2


def test_an_end_that_is_told_twice_counts_once() -> None:
    some = backlog(50, 50)
    some.left(RequestId("0"))
    some.left(RequestId("0"))
    some.stepped(1.0)
    assert some.clears_after_s() == pytest.approx(1.0)
    some.left(RequestId("1"))
    assert len(some) == 0
