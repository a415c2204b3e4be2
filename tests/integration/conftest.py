"""Live servers as fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from tests.live import LiveServer, Serve, serving


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """Give `with serve("--model", "tinygpt") as server`: flags as on the command line."""

    def start(*flags: str) -> AbstractContextManager[LiveServer]:
        return serving(tmp_path_factory.mktemp("serve") / "stderr.txt", *flags)

    return start


@pytest.fixture(scope="module")
def tinygpt(serve: Serve) -> Iterator[LiveServer]:
    """One server of the small reference model, shared by a file's tests.

    It has one thread: on a busy machine a second one is waited for at every operation's end.
    """
    with serve("--model", "tinygpt", "--kv-memory", "64MiB", "--threads", "1") as server:
        yield server
