"""A checkpoint's chat template, run in a sandbox with bounds. It makes text, no tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from core.errors import ModelError, TemplateFailed

MAX_RENDERED_CHARACTERS: Final = 32 * 1024 * 1024  # above any body that the HTTP side lets in

_FAILURES: Final = (  # what a template's code can raise
    *(jinja2.TemplateError, ArithmeticError, AttributeError, LookupError),
    *(RecursionError, TypeError, ValueError),
)


class ChatTemplate:
    """One compiled template. `tokens` are the names that templates expect, such as `bos_token`.

    Raises:
        ModelError: the source is no template.
    """

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _strftime_now
        environment.filters["tojson"] = _to_json
        self._tokens = dict(tokens)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ModelError(f"the chat template cannot be compiled: {error}") from None

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Write the conversation, up to where the assistant's answer begins.

        Raises:
            TemplateFailed: the template refused the messages, or broke on them.
        """
        pieces: list[str] = []
        size = 0
        try:
            for piece in self._template.generate(
                **self._tokens, messages=messages, add_generation_prompt=True, tools=None
            ):
                pieces.append(piece)
                size += len(piece)
                if size > MAX_RENDERED_CHARACTERS:
                    raise TemplateFailed("the chat template's output is too long", "messages")
        except _FAILURES as error:
            raise TemplateFailed(f"the chat template failed: {error}", "messages") from None
        return "".join(pieces)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
