"""Where requests wait for their grammar. Others run meanwhile: no compiling is done on the loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from core.errors import InvalidValue
from core.model import ModelConfig
from core.request import Grammar, Request, RequestId
from grammar.compile import GrammarCompiler, Matcher
from grammar.turns import Turns

log = logging.getLogger("floorline.engine")

Compile = Callable[[Grammar], Matcher | None]  # None: any output will do


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a helper thread tells the loop once a grammar is compiled."""

    id: RequestId
    matcher: Matcher | None  # None: any output will do
    fault: str = ""  # why it could not be compiled


def grammars_for(model_dir: Path, config: ModelConfig) -> Compile:
    """Make the function that compiles a model's grammars; it refuses all if the tokenizer cannot.

    Cost: up to 0.5 s.
    """
    try:
        return GrammarCompiler.load(model_dir, config).compile
    except ValueError as error:
        log.warning("no structured output for this model: %s", error)
        return no_grammars


def no_grammars(grammar: Grammar) -> Matcher | None:
    raise InvalidValue("this model takes no grammar")


class GrammarQueue:
    """Used by the loop's thread alone, except that `tell` is called by a helper thread.

    Tenants take turns, so that the many hard grammars of one hold up its own requests only.

    Invariant: each request that is here gets one `Compiled`, unless it is taken before.
    """

    def __init__(self, compile: Compile, tell: Callable[[Compiled], None]) -> None:
        self._compile, self._tell = compile, tell
        self._requests: dict[RequestId, Request] = {}
        self._turns: Turns[tuple[RequestId, Grammar]] = Turns()
        self._helper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, id: RequestId) -> bool:
        return id in self._requests

    def add(self, request: Request, grammar: Grammar) -> None:
        self._requests[request.id] = request
        self._turns.push(request.tenant, (request.id, grammar))
        self._helper.submit(self._work)

    def take(self, id: RequestId) -> Request | None:
        """Remove a request, compiled or not; None where it is not here."""
        return self._requests.pop(id, None)

    def close(self) -> None:
        self._helper.shutdown(wait=False, cancel_futures=True)

    def _work(self) -> None:
        """Compile the next grammar, which need not be the one that was added with this call."""
        id, grammar = self._turns.pop()
        try:
            if id in self._requests:  # else the request was taken away
                self._tell(Compiled(id, self._compile(grammar)))
        except InvalidValue as error:
            self._tell(Compiled(id, None, error.message))
        except Exception as error:  # our own bug, or the library's: it ends this request alone
            log.exception("a %s grammar could not be compiled", grammar.kind)
            self._tell(Compiled(id, None, f"{type(error).__name__}: {error}"))
