"""Reads a request's body under limits of size and time. What it says is the validator's matter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive

from core.errors import BodyTooLarge, BodyTooSlow, UnsupportedMediaType
from core.inputs.quantities import parse_bytes
from core.settings import HttpSettings
from server.limits.body_weight import is_long
from server.limits.off_loop import OffLoop

T = TypeVar("T")


class BodyReader:
    """One for all routes.

    Raises:
        SettingsError: the limit is no size.
    """

    def __init__(self, limits: HttpSettings, off_loop: OffLoop) -> None:
        self._off_loop = off_loop
        self._limit_bytes = parse_bytes(limits.max_body, "--max-body")
        self._timeout_s = limits.body_timeout

    async def parse(
        self,
        request: Request,
        parser: Callable[[bytes], T],
        before: Callable[[], None] = lambda: None,
    ) -> T:
        """Read a body, ask whether it is worth parsing, and parse it: a long one off the loop.

        Raises:
            RequestError: what `read` and the parser say.
            ServiceError: what `before` says.
        """
        body = await self.read(request)
        before()
        if is_long(body):
            return await self._off_loop.run(parser, body)
        return parser(body)

    async def read(self, request: Request) -> bytes:
        """Read a JSON body.

        Raises:
            UnsupportedMediaType: its content type is another's.
            BodyTooLarge: more bytes than the limit, as announced or as they came.
            BodyTooSlow: it was not there in time.
        """
        _check_media_type(request.headers)
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced[:19]) > self._limit_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._collect(request.receive)
        except TimeoutError:
            message = f"the body did not come within {self._timeout_s:g} s"
            raise BodyTooSlow(message) from None

    async def _collect(self, receive: Receive) -> bytes:
        pieces: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > self._limit_bytes:
                raise self._too_large()
            more = message.get("more_body", False)
        return b"".join(pieces)

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body is larger than {self._limit_bytes} bytes")


def _check_media_type(headers: Headers) -> None:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaType("the content type must be application/json")
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMediaType("a body must come as it is, without a content encoding")
