"""Grammars are checked off the event loop, and not too many of them wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from core.errors import InvalidValue, Overloaded
from core.request import Grammar, GrammarKind
from server.engines.grammar_checker import MAX_WAITING, GrammarChecker

REGEX = Grammar(GrammarKind.REGEX, "a+")


def test_a_bad_grammar_is_the_callers_error_and_names_the_field() -> None:
    def refuse(grammar: Grammar) -> None:
        raise InvalidValue(f"no such {grammar.kind}")

    with pytest.raises(InvalidValue, match="tools cannot be followed: no such regex") as error:
        asyncio.run(GrammarChecker(refuse).check(REGEX, "tools", "a"))
    assert error.value.param == "tools"


def test_one_grammar_too_many_is_refused_and_the_others_are_served() -> None:
    opened = threading.Event()

    def wait(_: Grammar) -> None:
        opened.wait()

    async def flood() -> None:
        checker = GrammarChecker(wait)
        checks = [
            asyncio.create_task(checker.check(REGEX, "tools", "a")) for _ in range(MAX_WAITING)
        ]
        await asyncio.sleep(0)  # each task has begun to wait
        with pytest.raises(Overloaded, match="too many grammars"):
            await checker.check(REGEX, "tools", "a")
        opened.set()
        await asyncio.gather(*checks)
        await checker.check(REGEX, "tools", "a")

    asyncio.run(flood())


def test_the_many_grammars_of_one_tenant_do_not_hold_up_anothers() -> None:
    opened, order = threading.Event(), []

    def note(grammar: Grammar) -> None:
        opened.wait()
        order.append(grammar.text)

    async def flood() -> None:
        checker = GrammarChecker(note)
        asked = [("a", f"a{number}") for number in range(8)] + [("b", "b")]
        checks = [
            asyncio.create_task(checker.check(Grammar(GrammarKind.REGEX, text), "tools", tenant))
            for tenant, text in asked
        ]
        await asyncio.sleep(0)  # each task has begun to wait
        opened.set()
        await asyncio.gather(*checks)

    asyncio.run(flood())
    assert order.index("b") <= 4, order  # two were under way, and one more may be between
