"""Runs of the real command line against the mock server, in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from loadgen.cli import main
from loadgen.report.verdict import Exit
from loadgen.run.mock import Behaviour
from loadgen.selftest import mock_process

Serve = Callable[..., str]
Load = Callable[..., tuple[set[int], dict[str, Any]]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start mocks; gives their URLs."""
    with ExitStack() as stack:
        yield lambda **behaviour: stack.enter_context(mock_process(Behaviour(**behaviour)))


@pytest.fixture
def load(capsys: pytest.CaptureFixture[str]) -> Load:
    """Run `loadgen`; gives the causes of a bad exit, and run.json.

    A busy machine may limit the client; that is no failure of what a test is about, so the cause 3
    is left out here.
    """

    def run(*words: str) -> tuple[set[int], dict[str, Any]]:
        code = main([*words, "--format", "json", "--quiet"])
        summary = json.loads(capsys.readouterr().out)
        assert code == summary["exit_code"]
        return set(summary["causes"]) - {Exit.CLIENT_LIMITED}, summary

    return run
