"""Keeps the time law: all of an engine's life is in a record, a gap, a measurement or idle."""

from __future__ import annotations

from typing import NamedTuple


class Spans(NamedTuple):
    """What an advance of the clock found. Units: ns."""

    idle: int
    gap: int  # the engine's host time between records
    wall: int  # how much longer the engine has lived
    calibration: int = 0  # an idle engine measured its peaks

    @property
    def resting(self) -> int:
        """All of it that no record holds."""
        return self.idle + self.gap + self.calibration


class EngineClock:
    """Runs from `Ready` to the engine's end.

    Invariant: Σ wall = Σ (idle + calibration + gap + records).
    """

    def __init__(self) -> None:
        self.running = False
        self._idle = self._measuring = False
        self._mark_ns = 0  # everything before it is booked

    def start(self, ready_ns: int) -> None:
        self.running = self._idle = True
        self._measuring = False
        self._mark_ns = ready_ns

    def stop(self) -> None:
        """End with the engine. The time after its last record is unknown and not counted."""
        self.running = self._idle = self._measuring = False

    def record(self, start_ns: int, end_ns: int) -> Spans:
        """Book a step or a fault from `start_ns` to `end_ns`, and what lies before it."""
        spans = self._advance(start_ns, end_ns)
        self._idle = self._measuring = False
        return spans

    def rest(self, start_ns: int, measuring: bool = False) -> Spans:
        """Book that the engine idles since `start_ns`, or measures its peaks."""
        spans = self._advance(start_ns, start_ns)
        self._idle, self._measuring = True, measuring
        return spans

    def extend(self, now_ns: int) -> Spans:
        """Bring an idle engine's time up to now; a busy engine reports its own.

        Call it only while no request is live. The engine may already run a step that it has not
        reported, and a counter that ran ahead could not go back.
        """
        return self._advance(now_ns, now_ns) if self._idle else Spans(0, 0, 0)

    def _advance(self, start_ns: int, end_ns: int) -> Spans:
        before = max(start_ns - self._mark_ns, 0)
        wall = max(end_ns - self._mark_ns, 0)
        self._mark_ns += wall
        if self._measuring:
            return Spans(0, 0, wall, before)
        return Spans(before, 0, wall) if self._idle else Spans(0, before, wall)
