"""What every request passes first: its id, its tenant's key, and a last resort for our own bugs.

Pure ASGI, so that streams pass through untouched.
"""

from __future__ import annotations

import logging
import re
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

OPEN_PATHS: Final = frozenset({Route.HEALTH, Route.READY, Route.METRICS})
_SAFE_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")


class Edge:
    """Wraps the app. `on_response` is told each response's route, or "other", and its status."""

    def __init__(
        self, app: ASGIApp, keys: Keyring, on_response: Callable[[str, int], None]
    ) -> None:
        self._app, self._keys, self._on_response = app, keys, on_response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope).get("x-request-id"))
        status = 0

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

    def _may_pass(self, scope: Scope) -> bool:
        """Whether it is open to all, or has a key; whose, is noted for the handlers."""
        if scope["path"] in OPEN_PATHS or scope["method"] == "OPTIONS":
            return True
        tenant = self._keys.tenant_of(Headers(scope=scope).get("authorization", ""))
        scope.setdefault("state", {})["tenant"] = tenant
        return tenant is not None


def _request_id(given: str | None) -> str:
    return given if given and _SAFE_ID.fullmatch(given) else uuid.uuid4().hex
