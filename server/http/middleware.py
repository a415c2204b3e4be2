"""What every request passes first: its id, its tenant's key, and a last resort for our own bugs.

Pure ASGI, so that streams pass through untouched.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import InvalidApiKey
from core.routes import Route
from server.http.errors import INTERNAL, envelope
from server.http.json import error_response, json_response
from server.http.keys import Keyring

log = logging.getLogger("floorline.server")
access = logging.getLogger("floorline.access")

OPEN_PATHS: Final = frozenset({Route.HEALTH, Route.READY})
_SAFE_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")


class Edge:
    """Wraps the app. `on_response` is told each response's route, or "other", and its status."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Keyring,
        on_response: Callable[[str, int], None],
        access_log: bool = True,
    ) -> None:
        self._app, self._keys, self._on_response = app, keys, on_response
        self._logs = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope).get("x-request-id"))
        status, begin_s = 0, time.monotonic()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            if self._may_pass(scope):
                await self._app(scope, receive, send_with_id)
            else:
                error = InvalidApiKey("the API key is missing or wrong")
                await error_response(error)(scope, receive, send_with_id)
        except Exception:
            log.exception("a bug in %s %s", scope["method"], scope["path"])
            if status == 0:
                body = envelope(INTERNAL, "an internal error")
                response = json_response(body, INTERNAL.status, {"x-should-retry": "false"})
                await response(scope, receive, send_with_id)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", "other")
            self._on_response(path.replace(":path}", "}"), status)
            if self._logs:
                _log(scope, status, time.monotonic() - begin_s, request_id)

    def _may_pass(self, scope: Scope) -> bool:
        """Whether it is open to all, or has a key; whose, is noted for the handlers."""
        if scope["path"] in OPEN_PATHS or scope["method"] == "OPTIONS":
            return True
        given = Headers(scope=scope).getlist("authorization")
        caller = self._keys.caller(scope["path"], given)
        if caller is None:
            return False
        state = scope.setdefault("state", {})
        state["tenant"], state["sees_all"] = caller.tenant, caller.sees_all
        return True


def _log(scope: Scope, status: int, took_s: float, request_id: str) -> None:
    """Write a line: the path as it came, without its query; status 0 where nothing was said."""
    path = scope.get("raw_path", scope["path"].encode())[:200].decode("ascii", "replace")
    tenant = scope.get("state", {}).get("tenant") or "-"
    client = (scope.get("client") or ("-",))[0]
    line = "%s %s %s %d %.1f ms tenant=%s id=%s"
    access.info(line, client, scope["method"], path, status, took_s * 1e3, tenant, request_id)


def _request_id(given: str | None) -> str:
    return given if given and _SAFE_ID.fullmatch(given) else uuid.uuid4().hex
