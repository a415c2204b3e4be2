"""Says whether the engine can follow a grammar, before a request with it is queued."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from core.errors import InvalidValue, Overloaded
from core.request import Grammar
from grammar.check import check_grammar
from grammar.turns import Turns

CHECKING_THREADS: Final = 2  # of their own: slow grammars hold up grammars only
KEPT: Final = 256  # grammars known to be good
MAX_WAITING: Final = 1024  # requests with a grammar to check: a burst of known ones passes
RETRY_AFTER_S: Final = 3.0  # what the slowest grammar takes


class GrammarChecker:
    """Asks the engine's library whether it can follow a grammar, off the event loop."""

    def __init__(self, check: Callable[[Grammar], None] = check_grammar) -> None:
        self._threads = ThreadPoolExecutor(CHECKING_THREADS, thread_name_prefix="grammar")
        self._check = functools.lru_cache(KEPT)(check)  # of what passed, the latest
        self._turns: Turns[tuple[Grammar, Future[None]]] = Turns()
        self._waiting = 0

    async def check(self, grammar: Grammar, param: str, tenant: str) -> None:
        """Check the grammar that the field `param` brought; tenants take turns.

        Raises:
            InvalidValue: it cannot be followed; names the keyword or place in the library's words.
            Overloaded: too many wait already.
        """
        if self._waiting >= MAX_WAITING:
            raise Overloaded("too many grammars wait to be checked", RETRY_AFTER_S)
        checked: Future[None] = Future()
        self._waiting += 1
        try:
            self._turns.push(tenant, (grammar, checked))
            self._threads.submit(self._work)
            await asyncio.wrap_future(checked)
        except InvalidValue as error:
            raise InvalidValue(f"{param} cannot be followed: {error.message}", param) from None
        finally:
            self._waiting -= 1

    def _work(self) -> None:
        grammar, checked = self._turns.pop()
        if not checked.set_running_or_notify_cancel():  # its client has gone
            return
        try:
            self._check(grammar)
        except Exception as error:
            checked.set_exception(error)
        else:
            checked.set_result(None)
