"""Turns by name: first come, first served within one, and one of each at a time."""

from __future__ import annotations

from grammar.turns import Turns


def test_a_late_name_waits_for_one_item_of_each_other_and_not_for_all() -> None:
    turns: Turns[str] = Turns()
    for item in ("a1", "a2", "a3"):
        turns.push("a", item)
    turns.push("b", "b1")
    turns.push("c", "c1")
    assert [turns.pop() for _ in range(5)] == ["a1", "b1", "c1", "a2", "a3"]


def test_a_name_that_comes_back_has_saved_up_no_turn() -> None:
    turns: Turns[str] = Turns()
    turns.push("a", "a1")
    assert turns.pop() == "a1"
    turns.push("b", "b1")
    turns.push("a", "a2")
    assert [turns.pop(), turns.pop()] == ["b1", "a2"]
