"""Has chat templates rendered in processes of their own, and ends those that take too long."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import marshal
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from core.children import python_child
from core.errors import Overloaded, TemplateFailed
from server.limits.off_loop import OffLoop
from server.limits.text_bound import TextLimit
from server.templates.chat_template import NO_MARKS, ChatTemplate, too_slow
from server.templates.template_child import HEADER, LENGTH, SPARE_S, Outcome, Task

log = logging.getLogger("floorline.server")

START_S: Final = 10.0  # for a loaded machine to start an interpreter
TURN_S: Final = 30.0  # for a request to wait for its turn
MAX_CHILDREN: Final = 2  # of templates from requests; each has a new process
MAX_WAITING: Final = 32  # requests that wait for one of these; more are told to come back
_BUFFER_BYTES: Final = 2**20
_NO_PROCESS: Final = "no process could be started to render the chat template"


class _Child:
    """One process, from its start to its end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> _Child:
        """Start it, and wait until it can take a task.

        Raises:
            Overloaded: it was not up in time.
        """
        python = python_child("server.templates.template_child")
        try:
            process = await asyncio.create_subprocess_exec(
                *python.command,
                env=python.environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the server's to handle
                limit=_BUFFER_BYTES,
            )
        except OSError as error:  # no process or no memory is left
            log.error("no process for chat templates: %s", error)
            raise Overloaded(_NO_PROCESS, START_S) from None
        child = cls(process)
        try:
            async with asyncio.timeout(START_S):
                await child._read()
        except BaseException as error:
            await child.end()
            if isinstance(error, TimeoutError | asyncio.IncompleteReadError):
                log.error("the process for chat templates was not up in %g s, or ended", START_S)
                raise Overloaded(_NO_PROCESS, START_S) from None
            raise
        return child

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def render(self, task: bytes, timeout_s: float) -> tuple[Outcome, bytes]:
        """Have one task done. What interrupts it ends the process, whose answer nobody reads.

        Raises:
            TimeoutError: it took longer.
            EOFError: a limit of the system ended it.
        """
        assert self._process.stdin is not None
        try:
            async with asyncio.timeout(timeout_s + SPARE_S):
                with contextlib.suppress(ConnectionError):  # it is dead: the read says so
                    self._process.stdin.write(LENGTH.pack(len(task)))
                    self._process.stdin.write(task)
                    await self._process.stdin.drain()
                return await self._read()
        except BaseException:
            await self.end()
            raise

    async def _read(self) -> tuple[Outcome, bytes]:
        assert self._process.stdout is not None
        kind, size = HEADER.unpack(await self._process.stdout.readexactly(HEADER.size))
        return Outcome(kind.decode()), await self._process.stdout.readexactly(size)

    async def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await asyncio.shield(self._process.wait())


class _Kept:
    """One process that is kept for many tasks; who comes second waits."""

    def __init__(self) -> None:
        self._child: _Child | None = None
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[_Child]:
        """Give the process to one task, a new one where the last was ended.

        Raises:
            Overloaded: its turn did not come in time.
        """
        try:
            async with asyncio.timeout(TURN_S):
                await self._turn.acquire()
        except TimeoutError:
            message = "too many chat templates wait to be rendered"
            raise Overloaded(message, TURN_S) from None
        try:
            if self._child is None or not self._child.alive:
                self._child = await _Child.start()
            yield self._child
        finally:
            self._turn.release()

    async def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end()


class Templates:
    """Time, memory and output of each template are bounded.

    The model's own runs in a kept process, long conversations in another: those who wait for a
    short one never wait for a long one. A request's template has a new process, and shares nothing.

    Cost: about 0.3 ms for a short conversation, once the process is there.
    """

    def __init__(self, timeout_s: float, off_loop: OffLoop) -> None:
        self._timeout_s, self._slots = timeout_s, asyncio.Semaphore(MAX_CHILDREN)
        self._off_loop = off_loop
        self._waiting = 0
        self._short, self._long = _Kept(), _Kept()

    async def warm(self) -> None:
        """Start the process of short conversations before the first one comes."""
        with contextlib.suppress(Overloaded):  # the first one tries again
            async with self._short.use():
                pass

    async def close(self) -> None:
        """End the kept processes."""
        await self._short.end()
        await self._long.end()

    async def render_own(
        self,
        template: ChatTemplate,
        variables: Mapping[str, Any],
        limit: TextLimit,
        long: bool,
        marks: Mapping[str, str] = NO_MARKS,
    ) -> str:
        """Render by the model's template, which looks for `marks` instead of their texts.

        Raises:
            TemplateFailed: it refused the messages, broke on them, or ran away.
            ContextLengthExceeded, InvalidValue: it wrote more than `limit`.
            Overloaded: no process could be had in time.
        """
        task = await self._pack(template.source, template.tokens, variables, limit, long, marks)
        async with (self._long if long else self._short).use() as child:
            return await self._run(child, task, limit, "messages")

    async def render_callers(
        self,
        source: str,
        tokens: Mapping[str, str],
        variables: Mapping[str, Any],
        limit: TextLimit,
        long: bool,
        marks: Mapping[str, str] = NO_MARKS,
    ) -> str:
        """Render a request's template in a process of its own, after those before.

        Raises:
            TemplateFailed: it is no template, or it failed or ran away.
            ContextLengthExceeded, InvalidValue: it wrote more than `limit`.
            Overloaded: too many wait already.
        """
        if self._waiting >= MAX_WAITING:
            raise Overloaded("too many chat templates wait to be rendered", START_S)
        self._waiting += 1
        try:
            task = await self._pack(source, tokens, variables, limit, long, marks)
            async with self._slots:
                child = await _Child.start()
                try:
                    return await self._run(child, task, limit, "chat_template")
                finally:
                    await child.end()
        finally:
            self._waiting -= 1

    async def _run(self, child: _Child, task: bytes, limit: TextLimit, param: str) -> str:
        try:
            outcome, answer = await child.render(task, self._timeout_s)
        except TimeoutError:
            raise too_slow(param, self._timeout_s) from None
        except EOFError:  # a limit ended it: it had no time to say more
            raise TemplateFailed("the chat template ran away", param) from None
        if outcome is Outcome.TOO_LONG:
            limit.refuse(param)
        if outcome is Outcome.FAILED:
            raise TemplateFailed(answer.decode(), param)
        return answer.decode()

    async def _pack(
        self,
        source: str,
        tokens: Mapping[str, str],
        variables: Mapping[str, Any],
        limit: TextLimit,
        long: bool,
        marks: Mapping[str, str],
    ) -> bytes:
        bounds = (self._timeout_s, limit.bytes)
        task: Task = (source, dict(tokens), dict(variables), *bounds, dict(marks))
        return await self._off_loop.run(marshal.dumps, task) if long else marshal.dumps(task)
