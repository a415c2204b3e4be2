"""Keeps one engine process running: starts it, watches it, starts it again, drains it.

It knows processes and sockets; what the requests are about is the client's and the routes'.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final, Protocol

from core.children import python_child
from core.errors import (
    EngineDead,
    EngineStarting,
    ModelError,
    ServiceError,
    SettingsError,
    ShuttingDown,
)
from core.settings import EngineSettings
from core.wire import Ready
from server.engines.client import RETRY_AFTER_S, EngineClient
from server.engines.observer import Observer, unharmed

log = logging.getLogger("floorline.server")

STEADY_S: Final = 30.0  # an engine that lived this long did not fail at once
MAX_FAILURES: Final = 6  # in a row; then the server gives up and says so by its exit status
FIRST_BACKOFF_S: Final = 0.25  # doubles with every failure
STALL_S: Final = 30.0  # without a message while work is outstanding
PING_S: Final = 3.0  # how often an engine without work is asked whether it is there
EXIT_GRACE_S: Final = 0.5  # between the end of its socket and a kill: it has nothing to keep
DEATH_GRACE_S: Final = 5.0  # the same where it ended by itself: a core may be written


class EngineProcess(Protocol):
    """What runs the engine. `wait` may be called again after the end."""

    async def wait(self) -> int: ...
    def kill(self) -> None:
        """End it at once; nothing happens if it has ended."""


class Launcher(Protocol):
    async def __call__(self, sock: socket.socket) -> EngineProcess:
        """Start an engine that speaks on `sock`, which the caller closes afterwards."""


class LifecycleObserver(Observer, Protocol):
    """An observer that also hears of the engine's comings and goings."""

    def on_engine_down(self) -> None: ...


async def launch_process(sock: socket.socket) -> EngineProcess:
    """Start `python -m engine`, in a session of its own: Ctrl-C is the server's to handle."""
    child = python_child("engine", "--fd", str(sock.fileno()))
    process = await asyncio.create_subprocess_exec(
        *child.command,
        env=child.environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL if sys.stderr is None else sys.stderr.fileno(),
        pass_fds=(sock.fileno(),),
        start_new_session=True,
    )
    return _Subprocess(process)


class _Subprocess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def wait(self) -> int:
        return await self._process.wait()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


class Supervisor:
    """`on_ready` is told of each engine that is warm, and returns who keeps its books."""

    def __init__(
        self,
        settings: EngineSettings,
        on_ready: Callable[[Ready], LifecycleObserver],
        launch: Launcher,
        queue_timeout_s: float,
    ) -> None:
        self._settings, self._on_ready, self._launch = settings, on_ready, launch
        self._queue_timeout_s = queue_timeout_s
        self._client: EngineClient | None = None
        self._process: EngineProcess | None = None
        self._was_ready = False
        self._lost_s = 0.0  # when the last one that was ready ended
        self.draining = False

    @property
    def ready(self) -> bool:
        """Whether new requests are taken."""
        return self.healthy and not self.draining

    @property
    def live(self) -> int:
        return self._client.live if self._client else 0

    @property
    def healthy(self) -> bool:
        """Whether an engine is there and, if it has work, was heard of lately."""
        client = self._client
        return client is not None and not client.closed.is_set() and client.silent_s < STALL_S

    def client(self) -> EngineClient:
        """Return the engine to submit to.

        Raises:
            ShuttingDown: no new work is taken.
            EngineStarting, EngineDead: there is none yet, or none now.
        """
        if self._client is None or not self.ready:
            raise self.trouble()
        return self._client

    def trouble(self) -> ServiceError:
        """Say what is amiss, while there is no healthy engine or no new work is taken."""
        if self.draining:
            return ShuttingDown("the server is shutting down", RETRY_AFTER_S)
        if self._was_ready:
            return EngineDead("the engine is down and being started again", RETRY_AFTER_S)
        return EngineStarting("the engine is starting", RETRY_AFTER_S)

    async def run(self) -> None:
        """Keep an engine running until drained.

        Raises:
            ModelError, SettingsError: the engine cannot use what it was told.
            EngineDead: it failed too often in a row.
        """
        failures = 0
        while not self.draining:
            lived_s = await self._run_one()
            if self.draining:
                return
            failures = 1 if lived_s >= STEADY_S else failures + 1
            if failures > MAX_FAILURES:
                raise EngineDead(f"the engine failed {failures} times in a row; giving up")
            delay_s = FIRST_BACKOFF_S * 2 ** (failures - 1)
            log.warning("starting the engine again in %.2f s", delay_s)
            await asyncio.sleep(delay_s)

    async def drain(self, timeout_s: float) -> bool:
        """Take no new work; let live requests finish, for `timeout_s` at most.

        What is still live then ends with `ShuttingDown`.

        Returns:
            Whether there was an engine, whose exit then ends `run`.
        """
        self.draining = True
        client = self._client
        if client is None:
            return False
        client.drain()
        try:
            await asyncio.wait_for(client.closed.wait(), timeout_s)
        except TimeoutError:
            log.warning("%d requests did not finish within %g s", client.live, timeout_s)
            self.cut_short()
        return True

    def cut_short(self) -> None:
        """End a drain now: what is still live ends with `ShuttingDown`."""
        if self._client is not None:
            self._client.close(ShuttingDown("the server is shutting down"))

    def end_now(self) -> None:
        """Cut a drain short, and kill the engine, whatever it is doing."""
        self.draining = True
        self.cut_short()
        if self._process is not None:
            self._process.kill()

    async def _run_one(self) -> float:
        """Run one engine from start to end; return the seconds that it was ready."""
        ours, theirs = socket.socketpair()
        with theirs:  # connected first: nothing may come between a process and who ends it
            client = await EngineClient.connect(ours, self._queue_timeout_s)
            try:
                process = await self._launch(theirs)
            except BaseException:
                client.close()
                raise
        self._process = process
        watch = asyncio.create_task(_end_when_silent(client, process))
        died, never_ready = False, None
        try:
            lived_s = await self._serve(client)
            died = not self.draining
        except EngineDead as error:
            died, never_ready = True, error
        finally:
            cause = await self._ended(client, process, watch, died)
        if never_ready is not None:
            raise EngineDead(f"{never_ready}: {cause}", never_ready.retry_after_s)
        if not self.draining:
            log.error("the engine ended unexpectedly: %s", cause)
        return lived_s

    async def _ended(
        self, client: EngineClient, process: EngineProcess, watch: asyncio.Task[bool], died: bool
    ) -> str:
        """Let go of an engine, see that its process ends, and say why it did."""
        silent = watch.done() and not watch.cancelled()
        watch.cancel()
        known = self._client is client or died
        grace_s = (DEATH_GRACE_S if died else EXIT_GRACE_S) if known else 0.0
        self._client = self._process = None
        client.close()
        status, killed = await _reap(process, grace_s)
        if silent:
            return f"it said nothing for {STALL_S:.0f} s, and was killed by this server"
        return cause_of(status, killed)

    async def _serve(self, client: EngineClient) -> float:
        now_s = asyncio.get_running_loop().time
        try:
            ready = await client.start(self._settings)
        except EngineDead:
            if not self._was_ready:  # it would die again; its own words are on standard error
                raise
            return 0.0
        except (ModelError, SettingsError) as error:
            if not self._was_ready:
                raise
            log.error("the engine cannot start again: %s", error)
            return 0.0
        books = self._on_ready(ready)
        since_s = now_s()
        if self._was_ready:
            log.info("the engine is ready again, %.1f s after it was lost", since_s - self._lost_s)
        self._client, self._was_ready = client, True
        await client.run(books)
        self._lost_s = now_s()
        if not self.draining:
            with unharmed("the engine's end"):
                books.on_engine_down()
        return self._lost_s - since_s


async def _end_when_silent(client: EngineClient, process: EngineProcess) -> bool:
    """Kill an engine that says nothing while it has work, or does not answer a ping."""
    while client.silent_s < STALL_S:
        await asyncio.sleep(min(PING_S, STALL_S / 10))
        client.ping()
    log.error("the engine has said nothing for %.0f s: ending it", client.silent_s)
    process.kill()
    return True


async def _reap(process: EngineProcess, grace_s: float) -> tuple[int, bool]:
    """Wait for the exit, which follows the socket's end; kill an engine that does not exit.

    Returns: its status, and whether it was killed here.
    """
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(process.wait(), grace_s), False
    process.kill()
    return await process.wait(), True


def cause_of(status: int, killed: bool) -> str:
    """Say why a process ended, by its exit status."""
    if killed:
        return "its socket closed, but it did not exit, and was killed by this server"
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    if -status == signal.SIGKILL:
        return f"{name}, from outside: the system kills a process so where memory runs out"
    return name
