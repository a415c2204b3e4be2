"""A chat template, run in a sandbox with bounds. It makes text, no tokens.

The model's own is the operator's choice and runs here. One that a request brings could burn time
or memory between two pieces of output, so `TemplateChildren` runs it in a process with hard limits.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NoReturn

import jinja2
import jinja2.meta
import msgspec
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from core.errors import ModelError, Overloaded, TemplateFailed

MAX_RENDERED_CHARACTERS: Final = 32 * 1024 * 1024  # above any body that the HTTP side lets in
CHILD_MEMORY_BYTES: Final = 512 * 2**20  # address space; an interpreter with Jinja takes a tenth
CHILD_START_S: Final = 10.0  # for a loaded machine to start an interpreter
MAX_CHILDREN: Final = 2
MAX_WAITING: Final = 32  # requests that wait for a child; more are told to come back

_FAILURES: Final = (  # what a template's code can raise
    *(jinja2.TemplateError, ArithmeticError, AttributeError, LookupError),
    *(MemoryError, RecursionError, TypeError, ValueError),
)


class ChatTemplate:
    """One compiled template. `tokens` are the names that templates expect, such as `bos_token`.

    `names` are the variables that it reads.

    Raises:
        ModelError: the source is no template.
    """

    def __init__(self, source: str, tokens: Mapping[str, str], timeout_s: float) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _strftime_now
        environment.filters["tojson"] = _to_json
        self.tokens, self.timeout_s = dict(tokens), timeout_s
        try:
            self._template = environment.from_string(source)
            self.names = jinja2.meta.find_undeclared_variables(environment.parse(source))
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelError(f"the chat template cannot be compiled: {error}") from None

    def render(self, variables: Mapping[str, Any]) -> str:
        """Write the conversation.

        Raises:
            TemplateFailed: the template refused the messages, broke on them, or ran away.
        """
        pieces: list[str] = []
        size, deadline_s = 0, time.monotonic() + self.timeout_s
        try:
            for piece in self._template.generate({**self.tokens, **variables}):
                pieces.append(piece)
                size += len(piece)
                if size > MAX_RENDERED_CHARACTERS:
                    raise TemplateFailed("the chat template's output is too long", "messages")
                if time.monotonic() > deadline_s:
                    raise _too_slow("messages")
        except _FAILURES as error:
            raise TemplateFailed(f"the chat template failed: {error}", "messages") from None
        return "".join(pieces)


def _too_slow(param: str) -> TemplateFailed:
    return TemplateFailed("the chat template took too long", param)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


# ── a request's own template: in a process of its own ─────────────────────────────────────────


class _Task(msgspec.Struct, frozen=True):
    source: str
    tokens: dict[str, str]
    variables: dict[str, Any]
    timeout_s: float


class TemplateChildren:
    """Renders templates that nobody vouches for; time, memory and output are bounded."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s, self._slots = timeout_s, asyncio.Semaphore(MAX_CHILDREN)
        self._waiting = 0

    async def render(
        self, source: str, tokens: Mapping[str, str], variables: Mapping[str, Any]
    ) -> str:
        """Render in a process of its own, after those before.

        Raises:
            TemplateFailed: it is no template, or it failed or ran away.
            Overloaded: too many wait already.
        """
        if self._waiting >= MAX_WAITING:
            raise Overloaded("too many chat templates wait to be rendered", CHILD_START_S)
        task = _Task(source, dict(tokens), dict(variables), self._timeout_s)
        self._waiting += 1
        try:
            async with self._slots:
                answer = await self._run(msgspec.json.encode(task))
        finally:
            self._waiting -= 1
        text, complaint = msgspec.json.decode(answer, type=tuple[str, str])
        if complaint:
            raise TemplateFailed(complaint, "chat_template")
        return text

    async def _run(self, task: bytes) -> bytes:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "server.chat_template"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(CHILD_START_S + self._timeout_s):
                answer, _ = await child.communicate(task)
        except TimeoutError:
            raise _too_slow("chat_template") from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode != 0:  # a limit killed it: it had no time to say more
            raise TemplateFailed("the chat template ran away", "chat_template")
        return answer


def render_child() -> None:
    """Render the task on standard input under limits; answer with text and complaint."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=_Task)
    seconds = int(task.timeout_s) + 1
    resource.setrlimit(resource.RLIMIT_AS, (CHILD_MEMORY_BYTES, CHILD_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        answer = (ChatTemplate(task.source, task.tokens, task.timeout_s).render(task.variables), "")
    except (ModelError, TemplateFailed) as error:
        answer = ("", str(error)[:500])
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    render_child()
