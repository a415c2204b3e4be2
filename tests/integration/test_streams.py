"""Sixteen streams at once from the real model: each says what it says alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import httpx
import pytest

from tests.live import LiveServer, Serve
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

STREAMS = 16
TOKENS = 48
PROMPTS = [
    f"{opening} {subject}"
    for opening in ("The history of", "A short poem about", "How to build", "Four facts about")
    for subject in ("the sea is", "bread:", "a clock, step by step:", "Mount Everest and why")
]


@pytest.fixture(scope="module")
def smollm2(serve: Serve) -> Iterator[LiveServer]:
    with serve("--model", "smollm2-135m") as server:
        yield server


def opened(
    server: LiveServer, prompt: str, **fields: object
) -> AbstractContextManager[httpx.Response]:
    body = {"prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True, "stream": True, **fields}
    return httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=PATIENCE_S)


def stream(server: LiveServer, prompt: str, **fields: object) -> tuple[str, dict[str, object]]:
    """Give a stream's text and its last chunk."""
    text, last = "", {}
    with opened(server, prompt, **fields) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("data: {"):
                last = json.loads(line.removeprefix("data: "))
                text += last["choices"][0]["text"]
    return text, last


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.9, "seed": 11}])
def test_sixteen_streams_say_what_each_says_alone(
    smollm2: LiveServer, sampling: dict[str, object]
) -> None:
    def run(prompt: str) -> tuple[str, dict[str, object]]:
        return stream(smollm2, prompt, **sampling)

    alone = [run(prompt)[0] for prompt in PROMPTS]
    with ThreadPoolExecutor(STREAMS) as threads:
        together = list(threads.map(run, PROMPTS))
    assert [text for text, _ in together] == alone
    assert len(set(alone)) == STREAMS
    for _, last in together:
        cost = last["cost"]
        assert isinstance(cost, dict)
        assert cost["floor_ms"] > 0
        assert 0 < cost["efficiency"] <= 1


def test_the_step_records_show_a_batch_of_sixteen(smollm2: LiveServer) -> None:
    all_run = threading.Barrier(STREAMS, timeout=PATIENCE_S)

    def leave_when_all_run(prompt: str) -> None:
        with opened(smollm2, prompt, max_tokens=1000) as response:
            lines = response.iter_lines()  # dropped, it would close the stream
            next(lines)
            all_run.wait()

    with ThreadPoolExecutor(STREAMS) as threads:
        list(threads.map(leave_when_all_run, PROMPTS))
    steps = smollm2.get("/debug/steps?n=1000").json()["steps"]
    assert max(len(step["slices"]) for step in steps) == STREAMS
