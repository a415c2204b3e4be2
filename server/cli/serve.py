"""`floorline serve`: listen, start the engine, say when it is ready, and end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import signal
import socket
import struct
import sys
import termios
from collections.abc import Iterator
from typing import Final, TextIO

import uvicorn

from core.errors import SettingsError
from core.settings import HttpSettings, Settings
from core.version import version
from server.answers.served import Served
from server.cli.copy_warning import copy_warning
from server.cli.start_screen import start_screen
from server.http.connection import (
    ACCEPTED_AT_ONCE,
    connections,
    most_connections,
    quiet_accept,
)
from server.routes.app import create_app
from server.service import Service
from telemetry.objectives import resolve as check_telemetry

HTTP_GRACE_S: Final = 5  # for the last bytes of answers, once the engine has drained
STDERR: Final = 2
HURRY_S: Final = 0.5  # for them after a second signal
LISTEN_QUEUE: Final = 2048  # connections that the system holds until they are accepted

log = logging.getLogger("floorline.server")


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: ours drain first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen as before: the loop sets the system's queue to what it accepts in one turn."""
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(LISTEN_QUEUE)

    def drop(self) -> None:
        """Wait for no connection any more."""
        self.force_exit = True
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()


def run(settings: Settings) -> None:
    """Serve until told to stop.

    Raises:
        SettingsError: an objective or alias is unknown, the address cannot be listened on, or the
            engine cannot use what it was told.
        ModelError: the engine cannot use the model.
        EngineDead: the engine failed too often.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("floorline.access").addFilter(lambda _: has_room(STDERR))
    check_telemetry(settings.telemetry)
    with listen(settings.http) as listener:
        asyncio.run(_serve(settings, listener))


def has_room(descriptor: int) -> bool:
    """Whether a line can be written that nobody reads: the access log must not stop the server.

    Where it is a pipe, half of it is left to what matters more.
    """
    try:
        (waiting,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
        return bool(waiting < fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ) // 2)
    except (OSError, AttributeError):  # no pipe, or a system that does not say
        return True


def listen(http: HttpSettings) -> socket.socket:
    """Take the address at once, so that a used port is known before a model is loaded.

    Raises:
        SettingsError: it cannot be taken.
    """
    family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
    # asyncio turns Nagle's delay off only where the protocol is named: else small writes wait 40 ms
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((http.host, http.port))
        listener.listen(LISTEN_QUEUE)  # two may bind to one port, as long as neither listens
    except (OSError, TypeError) as error:  # TypeError: a host that IDNA cannot encode
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(f"cannot listen on {http.host}:{http.port}: {reason}") from None
    return listener


def url_of(http: HttpSettings, listener: socket.socket) -> str:
    host = f"[{http.host}]" if ":" in http.host else http.host
    return f"http://{host}:{listener.getsockname()[1]}"


async def _serve(settings: Settings, listener: socket.socket) -> None:
    announced = False

    def on_ready(served: Served) -> None:
        nonlocal announced
        if not announced:
            url = url_of(settings.http, listener)
            announced = True
            _tell(start_screen(served.ready, served.name, url), sys.stderr)
            if warning := copy_warning(served.ready):
                log.warning("; ".join(warning))
            _tell(f"floorline: ready on {url}", sys.stdout)

    service = Service(settings, on_ready)
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    quiet_accept(loop)

    def on_signal() -> None:
        """Drain; the second time, do not wait for those who are live."""
        if stop.is_set():
            hurry.set()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    warm = asyncio.create_task(service.templates.warm())  # while the engine loads the model
    await serve_until(service, listener, stop, hurry)
    warm.cancel()


def _tell(text: str, stream: TextIO | None) -> None:
    """Print where somebody can read it; a full disk or a closed pipe ends no server."""
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        log.warning("cannot write to %s: %s", getattr(stream, "name", "a closed file"), error)


async def serve_until(
    service: Service,
    listener: socket.socket,
    stop: asyncio.Event,
    hurry: asyncio.Event | None = None,
) -> None:
    """Run engine and HTTP side until `stop`, then drain; the end of either ends both.

    Once `hurry` is set, what is live is cut short and the engine is killed.

    Raises:
        ModelError, SettingsError: the engine cannot use what it was told.
        EngineDead: the engine failed too often.
    """
    config = uvicorn.Config(
        create_app(service, version()),
        http=connections(service.settings.http.header_timeout, most_connections()),
        backlog=ACCEPTED_AT_ONCE,
        access_log=False,
        log_config=None,
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=HTTP_GRACE_S,
    )
    http = HttpServer(config)
    engine = asyncio.create_task(service.supervisor.run())
    web = asyncio.create_task(http.serve(sockets=[listener]))
    stopped = asyncio.create_task(stop.wait())
    hurried = asyncio.create_task(_hurry(hurry or asyncio.Event(), service, http))
    await asyncio.wait((engine, web, stopped), return_when=asyncio.FIRST_COMPLETED)
    drained = False
    if stopped.done():
        live, timeout_s = service.supervisor.live, service.settings.http.drain_timeout
        log.info("draining: %d requests are live, %g s at most; again to end now", live, timeout_s)
        drained = await service.supervisor.drain(timeout_s)
    http.should_exit = True
    await web
    stopped.cancel()
    if not drained:
        engine.cancel()
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await engine
    finally:
        hurried.cancel()
        await service.shut()


async def _hurry(hurry: asyncio.Event, service: Service, http: HttpServer) -> None:
    await hurry.wait()
    service.supervisor.end_now()
    await asyncio.sleep(HURRY_S)  # for the last events of the streams
    http.drop()
