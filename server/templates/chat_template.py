"""A chat template, run in a sandbox with bounds. It makes text, no tokens.

A template can burn time or memory between two pieces of output, where nothing here can end it. So
every one, the model's own too, runs in a process: `server/templates/template_child.py:main`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NoReturn

import jinja2
import jinja2.meta
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from core.errors import ModelError, TemplateFailed

_FAILURES: Final = (  # what a template's code can raise
    *(jinja2.TemplateError, ArithmeticError, AttributeError, LookupError),
    *(MemoryError, RecursionError, TypeError, ValueError),
)


NO_MARKS: Final[Mapping[str, str]] = MappingProxyType({})
_LOOK: Final = frozenset(  # methods and filters whose first argument is looked for in a text
    {"split", "rsplit", "partition", "rpartition", "startswith", "endswith", "removeprefix"}
    | {"removesuffix", "find", "rfind", "index", "rindex", "count", "replace"}
)


class _Generation(Extension):
    """`{% generation %}`: marks the assistant's words for training. Here it is what is in it.

    Source: transformers, `utils/chat_template_utils.py`, AssistantTracker: a macro there, too, so
    that what is set inside is unknown outside.
    """

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_inside"), [], [], body).set_lineno(line)

    def _inside(self, caller: Callable[[], str]) -> str:
        return caller()


class _Environment(ImmutableSandboxedEnvironment):
    """Leaves `*`, `**` and `%` of constants to rendering: compiling would make their results.

    The server compiles the model's template itself, to know the variables that it reads.
    """

    intercepted_binops = frozenset({"*", "**", "%"})


class RenderedTooLong(Exception):
    """A template wrote more than it was allowed; the limit is the caller's to name."""


class ChatTemplate:
    """One compiled template. `tokens` are the names that templates expect, such as `bos_token`.

    `source` is its text; `names` are the variables that it reads. `marks` stand in messages for
    texts: where the template looks for such a text, it finds its mark.

    Raises:
        ModelError: the source is no template.
    """

    def __init__(
        self,
        source: str,
        tokens: Mapping[str, str],
        timeout_s: float,
        marks: Mapping[str, str] = NO_MARKS,
    ) -> None:
        environment = _Environment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _strftime_now
        environment.filters["tojson"] = _to_json
        self.source, self.tokens, self.timeout_s = source, dict(tokens), timeout_s
        try:
            parsed = environment.parse(source)
            self.names = jinja2.meta.find_undeclared_variables(parsed)
            if marks:
                _look_for_marks(parsed, marks)
            self._template = environment.from_string(parsed)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelError(f"the chat template cannot be compiled: {error}") from None

    def render(self, variables: Mapping[str, Any], most_bytes: int) -> bytes:
        """Write the conversation, as UTF-8.

        Raises:
            TemplateFailed: the template refused the messages, broke on them, or took too long.
            RenderedTooLong: there is more of it than `most_bytes`.
        """
        pieces: list[str] = []
        size, deadline_s = 0, time.monotonic() + self.timeout_s
        try:
            for piece in self._template.generate({**self.tokens, **variables}):
                pieces.append(piece)
                size += len(piece)  # characters are at least as many bytes
                if size > most_bytes:
                    raise RenderedTooLong
                if time.monotonic() > deadline_s:
                    raise too_slow("messages", self.timeout_s)
            rendered = "".join(pieces).encode()
        except _FAILURES as error:
            raise TemplateFailed(f"the chat template failed: {error}", "messages") from None
        if len(rendered) > most_bytes:
            raise RenderedTooLong
        return rendered


def too_slow(param: str, timeout_s: float) -> TemplateFailed:
    limit = f"the limit of {timeout_s:g} s (--template-timeout)"
    return TemplateFailed(f"the chat template took longer than {limit}", param)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as transformers' filter does, by its parameters in its order."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _look_for_marks(parsed: nodes.Template, marks: Mapping[str, str]) -> None:
    """Put marks into the texts that a template looks for; what it writes stays as it is."""
    for compare in parsed.find_all(nodes.Compare):
        if compare.ops[0].op in ("in", "notin"):
            _mark(compare.expr, marks=marks)
    for call in parsed.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr) and call.node.attr in _LOOK:
            _mark(*call.args[:1], marks=marks)
    for filtered in parsed.find_all(nodes.Filter):
        if filtered.name in _LOOK:
            _mark(*filtered.args[:1], marks=marks)


def _mark(*expressions: nodes.Expr, marks: Mapping[str, str]) -> None:
    for one in expressions:
        if isinstance(one, nodes.Const) and isinstance(one.value, str):
            for text in sorted(marks, key=len, reverse=True):
                one.value = one.value.replace(text, marks[text])
