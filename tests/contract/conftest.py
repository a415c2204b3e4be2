"""A whole server in a thread, on a free port, with a scripted engine behind the real socket."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from core.inputs.options import Given
from server.cli.options import resolve
from server.cli.serve import listen, serve_until, url_of
from server.service import Service
from tests.contract.speaker import SpeakingRunner
from tests.fakes import ScriptedRunner
from tests.fakes_engine import CHAT_TEMPLATE, ScriptedLauncher, write_model_dir
from tests.patience import PATIENCE_S


class Server:
    """Serves until stopped. `client` speaks to it; `launcher.engine` is the engine behind it."""

    def __init__(
        self, folder: Path, flags: Mapping[str, Given], runner: ScriptedRunner | None = None
    ) -> None:
        settings = resolve({"port": "0", "drain_timeout": str(PATIENCE_S), **flags}, {}, {}, "")
        self.launcher = ScriptedLauncher(folder, runner or SpeakingRunner())
        self._listener = listen(settings.http)
        self.url = url_of(settings.http, self._listener)
        # the server closes a connection that was idle for 5 s, maybe as a request is sent there
        reused = httpx.Limits(keepalive_expiry=2)
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_S, limits=reused)
        self._ready, self._settings = threading.Event(), settings
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    def stop(self) -> None:
        """Do what a signal does, and wait for the end; a second time is no news."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.drain()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self.client.close()
        self._listener.close()

    def drain(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> None:
        self._stop, self.loop = asyncio.Event(), asyncio.get_running_loop()
        self.service = Service(self._settings, lambda _: self._ready.set(), self.launcher)
        await serve_until(self.service, self._listener, self._stop)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model_dir(tmp_path_factory.mktemp("model"))


@pytest.fixture
def start(model_dir: Path) -> Iterator[Callable[..., Server]]:
    """Start servers with flags of one's own; all are stopped after the test."""
    servers: list[Server] = []

    def start_one(runner: ScriptedRunner | None = None, **flags: Given) -> Server:
        servers.append(Server(model_dir, flags, runner))
        return servers[-1]

    yield start_one
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def server(model_dir: Path) -> Iterator[Server]:
    """The server that tests share which only ask and look."""
    shared = Server(model_dir, {})
    yield shared
    shared.stop()


@pytest.fixture
def http(server: Server) -> httpx.Client:
    return server.client


TOOL_TEMPLATE = "{% if tools %}{{ tools | length }} tools\n{% endif %}" + CHAT_TEMPLATE


@pytest.fixture(scope="session")
def tool_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server whose template knows tools, and says little of them: the context is short."""
    folder = write_model_dir(tmp_path_factory.mktemp("tools"))
    (folder / "chat_template.jinja").write_text(TOOL_TEMPLATE)
    server = Server(folder, {})
    yield server.client
    server.stop()
