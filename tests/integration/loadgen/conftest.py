"""Runs of the real command line against the mock server, in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from loadgen.cli import main
from loadgen.mock import Behaviour
from loadgen.selftest import mock_process

Serve = Callable[..., str]
Load = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start mocks; gives their URLs."""
    with ExitStack() as stack:
        yield lambda **behaviour: stack.enter_context(mock_process(Behaviour(**behaviour)))


@pytest.fixture
def load(capsys: pytest.CaptureFixture[str]) -> Load:
    """Run `loadgen`; gives the exit code and run.json."""

    def run(*words: str) -> tuple[int, dict[str, Any]]:
        code = main([*words, "--format", "json", "--quiet"])
        return code, json.loads(capsys.readouterr().out)

    return run
