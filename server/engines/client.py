"""The server's end of the engine's socket: messages out, tokens to their listeners in.

It runs on the event loop, and knows no HTTP and no text.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from core.errors import (
    EngineDead,
    GenerationFailed,
    ModelError,
    Overloaded,
    ServiceError,
    SettingsError,
)
from core.request import FinishReason, RequestId
from core.settings import EngineSettings
from core.wire import (
    HEADER,
    MAX_FRAME_BYTES,
    Abort,
    Drain,
    Ended,
    Fault,
    Finish,
    FromEngine,
    Idle,
    Measured,
    Ping,
    Pong,
    Ready,
    Remeasure,
    Start,
    StepReport,
    Submit,
    ToEngine,
    TokenLogprobs,
    frame,
    from_engine,
)
from server.engines.backlog import Backlog
from server.engines.observer import Observer, unharmed

log = logging.getLogger("floorline.server")

RETRY_AFTER_S: Final = 2.0  # about what a small engine needs to come back


class Listener(Protocol):
    """Who submitted a request. It hears `ended` or `failed` once, and nothing after that."""

    def started(self, cached_tokens: int) -> None:
        """Hear of the first admission, and how much of the prompt was cached then."""

    def prompt_scored(self, scored: TokenLogprobs) -> None: ...
    def token(self, token: int, logprobs: TokenLogprobs | None) -> int | None:
        """Take a token as it arrives, before the books see its step.

        Returns:
            How many tokens were kept, once the text ends here for a reason of the listener's own.
        """

    def ended(self, reason: FinishReason) -> None: ...
    def failed(self, error: ServiceError) -> None: ...


class EngineClient:
    """One engine, from `Start` to the end of its socket.

    Invariant: each listener hears one end: of an `Ended`; or an error, once the engine is gone,
        nobody admits its request in time, or its text meets a bug; or nothing more, if aborted.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        queue_timeout_s: float = math.inf,
    ) -> None:
        self._reader, self._writer, self._queue_timeout_s = reader, writer, queue_timeout_s
        self.backlog = Backlog()
        self._observer: Observer | None = None
        self._listeners: dict[RequestId, Listener] = {}
        self.closed = asyncio.Event()
        self._idle = True
        self._pinged = False  # and not yet answered
        self._heard_s = self._now_s()

    @classmethod
    async def connect(cls, sock: socket.socket, queue_timeout_s: float = math.inf) -> EngineClient:
        return cls(*await asyncio.open_unix_connection(sock=sock), queue_timeout_s)

    @property
    def live(self) -> int:
        """Requests that were submitted and have not ended."""
        return len(self._listeners)

    @property
    def silent_s(self) -> float:
        """Seconds since the last message while work or a ping is outstanding; 0 without either."""
        return self._now_s() - self._heard_s if self._busy or self._pinged else 0.0

    @property
    def _busy(self) -> bool:
        return bool(self._listeners) or not self._idle

    async def start(self, settings: EngineSettings) -> Ready:
        """Tell the engine what to serve and wait until it is warm.

        Raises:
            ModelError, SettingsError: it cannot use what it was told; its own words.
            EngineDead: it ended before it was ready.
        """
        self._send(Start(settings))
        match await self._read():
            case Ready() as ready:
                return ready
            case Fault(kind="settings", message=message):
                raise SettingsError(message)
            case Fault(message=message):
                raise ModelError(message)
            case _:
                raise EngineDead("the engine ended before it was ready", RETRY_AFTER_S)

    async def run(self, observer: Observer) -> None:
        """Deliver messages until the engine's end; then every live request ends too."""
        self._observer, self._heard_s = observer, self._now_s()
        try:
            while (message := await self._read()) is not None:
                self._deliver(message)
                if isinstance(message, StepReport | Fault):
                    self._give_up_waiting()
                with unharmed(f"a {type(message).__name__}"):
                    self._observe(observer, message)
        finally:
            self.close()

    def submit(self, request: Submit, listener: Listener) -> None:
        """Send a request.

        Raises:
            EngineDead: there is no engine any more.
        """
        if self.closed.is_set():
            raise EngineDead("the engine is down", RETRY_AFTER_S)
        assert request.id not in self._listeners, f"{request.id} is live already"
        if not self._listeners:
            self._heard_s = self._now_s()
        self._listeners[request.id] = listener
        self.backlog.joined(request.id, request.tenant, len(request.prompt_ids), self._now_s())
        self._send(request)

    def finish(self, id: RequestId, n_tokens: int, reason: FinishReason) -> None:
        """Tell engine and books of an end that the server decided, while `run` runs."""
        assert self._observer is not None, "a finish before `run`"
        self._send(Finish(id, n_tokens, reason))
        with unharmed("a Finish"):
            self._observer.on_finish_sent(id, n_tokens, reason)

    def abort(self, id: RequestId) -> None:
        """Stop a request that nobody reads; its listener hears nothing more."""
        if self._let_go(id) is not None:
            self._send(Abort(id))

    def ping(self) -> None:
        """Ask an engine that has no work whether it is there, once it is ready."""
        if self._observer is not None and not (self._busy or self._pinged):
            self._pinged = True
            self._send(Ping())

    def drain(self) -> None:
        """Ask the engine to finish what is live and to exit."""
        self._send(Drain())

    def close(self, error: ServiceError | None = None) -> None:
        """Let go of the engine, which then exits; live requests end with `error`."""
        self.closed.set()
        self._writer.close()
        listeners, self._listeners = self._listeners, {}
        for id, listener in listeners.items():
            self.backlog.left(id)
            listener.failed(error or EngineDead("the engine died", RETRY_AFTER_S))

    # ── messages ──────────────────────────────────────────────────────────────────────────────

    def _deliver(self, message: FromEngine) -> None:
        self._heard_s, self._pinged = self._now_s(), False
        if isinstance(message, Pong):
            return
        self._idle = isinstance(message, Idle | Measured)
        if isinstance(message, StepReport):
            self._deliver_tokens(message)
        if isinstance(message, StepReport | Idle | Fault):
            self._deliver_ends(message.ended)
        if isinstance(message, StepReport):
            self.backlog.stepped((message.end_ns - message.start_ns) / 1e9)

    def _deliver_tokens(self, report: StepReport) -> None:
        listeners = self._listeners
        for record in report.slices:
            if self.backlog.admitted(record.id):
                listeners[record.id].started(record.cached)
        for scored in report.prompt_logprobs:
            if (listener := listeners.get(scored.id)) is not None:
                listener.prompt_scored(scored)
        logprobs: defaultdict[RequestId, deque[TokenLogprobs]] = defaultdict(deque)
        for scored in report.logprobs:
            logprobs[scored.id].append(scored)
        for id, token in report.tokens:
            if (listener := listeners.get(id)) is None:
                continue
            try:
                kept = listener.token(token, logprobs[id].popleft() if id in logprobs else None)
                if kept is not None:
                    self.finish(id, kept, FinishReason.STOP)
            except Exception:
                log.exception("%s: a token could not be made text", id)
                self.abort(id)
                listener.failed(GenerationFailed("a token could not be made text"))

    def _deliver_ends(self, ends: Iterable[Ended]) -> None:
        for ended in ends:
            if (listener := self._let_go(ended.id)) is None:
                continue
            if ended.reason is FinishReason.FAILED:
                listener.failed(GenerationFailed(ended.message or "the generation failed"))
            else:
                listener.ended(ended.reason)

    def _let_go(self, id: RequestId) -> Listener | None:
        """Forget a request, and give its listener; None where it had ended already."""
        self.backlog.left(id)
        return self._listeners.pop(id, None)

    def _give_up_waiting(self) -> None:
        """End the requests that were not admitted in time.

        Only a report tells who was admitted: before it comes, one that waits cannot be told from
        one in its first step, so that none is ended by a timer. An engine that reports nothing for
        long is ended as a whole.
        """
        for id in self.backlog.overdue(self._now_s(), self._queue_timeout_s):
            listener = self._let_go(id)
            assert listener is not None
            self.finish(id, 0, FinishReason.REFUSED)
            waited = f"the request waited for more than {self._queue_timeout_s:g} s"
            listener.failed(Overloaded(waited, self.backlog.clears_after_s()))

    def _observe(self, observer: Observer, message: FromEngine) -> None:
        match message:
            case StepReport():
                observer.on_report(message)
            case Idle():
                observer.on_idle(message)
                if observer.wants_peaks():
                    log.warning("steps took less than their floor: measuring the peaks while idle")
                    self._send(Remeasure())
            case Measured(peaks):
                observer.on_peaks(peaks)
            case Fault():
                log.error("a step failed: %s: %s", message.kind, message.message)
                observer.on_fault(message)

    def _send(self, message: ToEngine) -> None:
        """Write without waiting: what is outstanding is bounded by the live requests."""
        if not self.closed.is_set():
            self._writer.write(frame(message))

    async def _read(self) -> FromEngine | None:
        """Return the next message, None at the end of the stream."""
        try:
            (size,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            if size > MAX_FRAME_BYTES:
                log.error("the engine sent a frame of %d bytes; letting go of it", size)
                return None
            return from_engine.decode(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except msgspec.MsgspecError as error:
            log.error("the engine sent what is no message (%s); letting go of it", error)
            return None

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
