"""Who keeps the books of an engine, and what keeps a bug in them from hurting the streams."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from core.machine import Peaks
from core.request import FinishReason, RequestId
from core.wire import Fault, Idle, StepReport

log = logging.getLogger("floorline.server")


class Observer(Protocol):
    """Told of each message after the streams were served."""

    def on_report(self, report: StepReport) -> None: ...
    def on_idle(self, idle: Idle) -> None: ...
    def on_fault(self, fault: Fault) -> None: ...
    def on_peaks(self, peaks: Peaks) -> None: ...
    def on_finish_sent(self, id: RequestId, n_tokens: int, reason: FinishReason) -> None:
        """Hear at once of an end that the server decided; tokens on their way are nobody's."""

    def wants_peaks(self) -> bool:
        """Say whether an idle engine should measure its peaks again."""


@contextmanager
def unharmed(event: str) -> Iterator[None]:
    """Log what the books raise on an `event`, and go on: it costs no stream its tokens."""
    try:
        yield
    except Exception:
        log.exception("telemetry failed on %s", event)
