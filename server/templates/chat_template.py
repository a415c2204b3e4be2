"""A chat template, run in a sandbox with bounds. It makes text, no tokens.

A template can burn time or memory between two pieces of output, where nothing here can end it. So
every one, the model's own too, runs in a process: `server/templates/template_child.py:main`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NoReturn

import jinja2
import jinja2.meta
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from core.errors import ModelError, TemplateFailed

_FAILURES: Final = (  # what a template's code can raise
    *(jinja2.TemplateError, ArithmeticError, AttributeError, LookupError),
    *(MemoryError, RecursionError, TypeError, ValueError),
)


class _Environment(ImmutableSandboxedEnvironment):
    """Leaves `*`, `**` and `%` of constants to rendering: compiling would make their results.

    The server compiles the model's template itself, to know the variables that it reads.
    """

    intercepted_binops = frozenset({"*", "**", "%"})


class RenderedTooLong(Exception):
    """A template wrote more than it was allowed; the limit is the caller's to name."""


class ChatTemplate:
    """One compiled template. `tokens` are the names that templates expect, such as `bos_token`.

    `source` is its text; `names` are the variables that it reads.

    Raises:
        ModelError: the source is no template.
    """

    def __init__(self, source: str, tokens: Mapping[str, str], timeout_s: float) -> None:
        environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _strftime_now
        environment.filters["tojson"] = _to_json
        self.source, self.tokens, self.timeout_s = source, dict(tokens), timeout_s
        try:
            self._template = environment.from_string(source)
            self.names = jinja2.meta.find_undeclared_variables(environment.parse(source))
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


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
