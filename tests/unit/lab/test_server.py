"""A server of the lab has an owner from its first moment to its end."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import pytest

from lab.measure.server import serving


def test_an_interrupt_while_a_server_is_being_started_leaves_no_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[subprocess.Popen[str]] = []

    class InterruptedPopen(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            signal.raise_signal(signal.SIGINT)  # before the caller has it

    monkeypatch.setattr(subprocess, "Popen", InterruptedPopen)
    with pytest.raises(KeyboardInterrupt), serving("--model", "tinygpt"):
        pytest.fail("the interrupt was lost")
    assert [process.poll() is not None for process in started] == [True]


def test_an_interrupt_while_a_server_is_being_ended_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[subprocess.Popen[str]] = []

    class InterruptedEnd(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

        def terminate(self) -> None:
            super().terminate()
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", InterruptedEnd)
    with pytest.raises(KeyboardInterrupt), serving("--model", "tinygpt"):
        pass
    assert [process.poll() is not None for process in started] == [True]
