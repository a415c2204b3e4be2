"""HTTP to one OpenAI-compatible server: stamped exchanges and the few questions asked before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx

from core.errors import SettingsError
from loadgen.load.spec import RunSpec, parse_header
from loadgen.run.record import CANCELLED, INTERRUPTED, Exchange

# uvicorn closes an idle connection after 5 s; a request sent into that moment would fail
KEEP_ALIVE_S = 4.0


class Client:
    """Keep-alive connections, as many as there are requests at once.

    Each connection is an httpx client of its own, taken from a stack: httpx's pool looks through
    all of its connections several times per request, which at 64 of them takes milliseconds.
    """

    def __init__(self, url: str, spec: RunSpec) -> None:
        self.url = url
        headers = {"accept-encoding": "identity", "content-type": "application/json"}
        if spec.api_key:
            headers["authorization"] = f"Bearer {spec.api_key}"
        self._new = partial(
            httpx.AsyncClient,
            base_url=self.url,
            headers=headers | dict(map(parse_header, spec.header)),
            verify=httpx.create_ssl_context(trust_env=False),
            timeout=None,
            limits=httpx.Limits(max_connections=1, keepalive_expiry=KEEP_ALIVE_S),
            trust_env=False,
        )
        self._all: set[httpx.AsyncClient] = set()
        self._free: list[httpx.AsyncClient] = []

    @contextmanager
    def _connection(self) -> Iterator[httpx.AsyncClient]:
        """Lend the connection that was used last, or a new one."""
        http = self._free.pop() if self._free else self._new()
        self._all.add(http)
        try:
            yield http
        finally:
            self._free.append(http)

    async def close(self) -> None:
        await asyncio.gather(*(http.aclose() for http in self._all))

    async def ask(
        self, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = 10.0
    ) -> httpx.Response:
        """Send one plain request, for which no time is kept.

        Raises:
            SettingsError: no server answers there.
        """
        try:
            method, text = ("GET", None) if body is None else ("POST", json.dumps(body))
            with self._connection() as http:
                return await http.request(method, path, content=text, timeout=timeout_s)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise SettingsError(
                f"cannot reach {self.url}{path}: {reason}; "
                "is a server there? its URL is the first argument: loadgen URL --rate 1"
            ) from None

    async def metrics(self) -> str | None:
        """Fetch /metrics; None if the server has none or does not answer now."""
        try:
            answer = await self.ask("/metrics")
        except SettingsError:
            return None
        return answer.text if answer.status_code == 200 else None

    async def connect(self, connections: int) -> None:
        """Open connections, so that the first requests find them open."""
        await asyncio.gather(*(self.ask("/v1/models") for _ in range(connections)))

    async def exchange(
        self, path: str, body: bytes, into: Exchange, clock: Callable[[], float], timeout_s: float
    ) -> None:
        """Send `body` and stamp what comes back, up to the timeout or the planned cancellation.

        Mutates: `into`, whose `sent_s` is the moment before the first byte leaves: a connection
        that had to be opened counts as send lag, not as the server's time.
        Raises:
            CancelledError: the run was interrupted; `into` says so.
        """

        async def trace(event: str, info: dict[str, Any]) -> None:
            if event == "http11.send_request_headers.started":
                into.sent_s = clock()

        cancel_s = into.planned.cancel_at
        cancels = cancel_s is not None and cancel_s < timeout_s
        into.sent_s = clock()
        hooks = {"trace": trace}
        try:
            with self._connection() as http:
                async with (
                    asyncio.timeout(cancel_s if cancels else timeout_s),
                    http.stream("POST", path, content=body, extensions=hooks) as answer,
                ):
                    into.status = answer.status_code
                    async for piece in answer.aiter_raw():
                        into.body += piece
                        into.arrivals.append((clock(), len(into.body)))
        except TimeoutError:
            into.failure = CANCELLED if cancels else "timeout"
        except httpx.TransportError as error:
            into.failure = "connect" if into.status is None else "broken_stream"
            into.detail = str(error) or type(error).__name__
        except asyncio.CancelledError:
            into.failure = INTERRUPTED
            raise
        finally:
            into.end_s = clock()
