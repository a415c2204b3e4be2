"""Models, health, version, metrics, debug; and the server's life: death of an engine, drains."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from core.settings import Settings
from core.wire import Abort, Finish, Submit
from server.routes.app import create_app
from server.service import Service
from tests.contract.conftest import Server
from tests.fakes_engine import GatedRunner
from tests.patience import PATIENCE_S


def test_the_model_is_listed_and_found_by_its_name(http: httpx.Client) -> None:
    listed = http.get("/v1/models").json()
    assert listed["object"] == "list"
    (model,) = listed["data"]
    assert model.pop("created") > 0
    assert model == {
        "id": "tinygpt",
        "object": "model",
        "owned_by": "floorline",
        "max_model_len": 512,
        "vocab_size": 260,
    }
    assert http.get("/v1/models/tinygpt").json()["id"] == "tinygpt"
    assert http.get("/v1/models/other").status_code == 404


@pytest.mark.parametrize("path", ["org/my-model", "org%2Fmy-model"])
def test_a_served_name_may_hold_slashes(start: Callable[..., Server], path: str) -> None:
    server = start(served_model_name="org/my-model")
    assert server.client.get(f"/v1/models/{path}").json()["id"] == "org/my-model"
    body = {"prompt": "a", "model": "org/my-model", "max_tokens": 1}
    assert server.client.post("/v1/completions", json=body).json()["model"] == "org/my-model"


def test_health_readiness_and_version(http: httpx.Client) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    assert http.get("/ready").json() == {"status": "ready"}
    assert http.get("/version").json()["version"].count(".") == 2


def test_metrics_are_prometheus_text_that_counts_requests(start: Callable[..., Server]) -> None:
    server = start()
    server.client.post("/v1/completions", json={"prompt": ["a", "b"], "max_tokens": 3})
    response = server.client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert 'floorline_requests_received_total{model="tinygpt"} 2.0' in response.text
    assert 'floorline_requests_total{model="tinygpt",outcome="length"} 2.0' in response.text
    assert 'floorline_requests_running{model="tinygpt"} 0.0' in response.text


@pytest.mark.parametrize("path", ["/v1/models/tinygpt", "/v1/models", "/health"])
def test_a_response_is_counted_for_its_route(start: Callable[..., Server], path: str) -> None:
    server = start()
    server.client.get(path)
    route = path.replace("tinygpt", "{id}")
    line = f'http_responses_total{{code="200",model="tinygpt",route="{route}"}} 1.0'
    assert line in server.client.get("/metrics").text


def test_a_stop_string_is_counted_as_a_stop(start: Callable[..., Server]) -> None:
    server = start()
    body = {"prompt": "a", "max_tokens": 3, "stop": "e"}
    server.client.post("/v1/completions", json=body)
    metrics = server.client.get("/metrics").text
    assert 'floorline_requests_total{model="tinygpt",outcome="stop"} 1.0' in metrics


def test_the_last_steps_are_shown(start: Callable[..., Server]) -> None:
    server = start()
    server.client.post("/v1/completions", json={"prompt": "a", "max_tokens": 5})
    assert len(server.client.get("/debug/steps?n=3").json()["steps"]) == 3
    assert len(server.client.get("/debug/steps").json()["steps"]) == 5


@pytest.mark.parametrize("n", ["x", "-1", "1.5", "0", "9" * 30])
def test_a_bad_number_of_steps_is_refused(http: httpx.Client, n: str) -> None:
    response = http.get(f"/debug/steps?n={n}")
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "n"


def test_a_window_says_what_was_slow(start: Callable[..., Server]) -> None:
    server = start()
    body = {"prompt": "a", "max_tokens": 5}
    cost = server.client.post("/v1/completions", json=body).json()["cost"]
    view = server.client.get("/debug/why?window=300s").json()
    assert view["ended"] == 1
    assert view["spent_ms"] == pytest.approx(cost["spent_ms"])
    assert view["mean_ms"] == pytest.approx(sum(cost["spent_ms"].values()))


@pytest.mark.parametrize("window", ["x", "60", "-1s", "0s", "301s", "9" * 30 + "s", "1.5s", "s"])
def test_a_bad_window_is_refused(http: httpx.Client, window: str) -> None:
    response = http.get(f"/debug/why?window={window}")
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "window"


def test_a_request_is_found_by_the_id_of_its_answer(start: Callable[..., Server]) -> None:
    server = start()
    id = server.client.post("/v1/completions", json={"prompt": "a", "max_tokens": 2}).json()["id"]
    response = server.client.get(f"/debug/requests/{id}")
    assert response.status_code == 200, response.text
    assert server.client.get("/debug/requests/nobody").status_code == 404


def test_each_choice_is_found_by_its_index_as_the_refusal_of_the_answers_id_says(
    start: Callable[..., Server],
) -> None:
    server = start()
    body = {"prompt": "a", "max_tokens": 2, "n": 2}
    id = server.client.post("/v1/completions", json=body).json()["id"]
    refused = server.client.get(f"/debug/requests/{id}")
    assert refused.status_code == 404
    assert "its id with -0, -1" in refused.json()["error"]["message"]
    for index in range(2):
        assert server.client.get(f"/debug/requests/{id}-{index}").status_code == 200


def test_a_server_that_starts_does_not_say_that_its_engine_is_dead() -> None:
    app = create_app(Service(Settings(), lambda _: None), "0")

    async def codes() -> set[str]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answers = [await client.get(path) for path in ("/ready", "/health", "/v1/models")]
        assert {answer.status_code for answer in answers} == {503}
        return {answer.json()["error"]["code"] for answer in answers}

    assert asyncio.run(codes()) == {"engine_starting"}


class Gated:
    """A server whose engine makes a step only when told."""

    def __init__(self, start: Callable[..., Server]) -> None:
        self.runner = GatedRunner()
        self.server = start(self.runner)

    def stream(self, max_tokens: int = 100) -> Iterator[str]:
        """Open a stream, see its first event, and yield its lines from there."""
        body = {"prompt": "a", "max_tokens": max_tokens, "stream": True}
        with self.server.client.stream("POST", "/v1/completions", json=body) as response:
            self.runner.gate.release()
            for line in response.iter_lines():
                if line:
                    yield line

    def wait_until(self, condition: Callable[[], bool]) -> None:
        pause = threading.Event()
        while not condition():
            pause.wait(0.002)


@pytest.fixture
def gated(start: Callable[..., Server]) -> Iterator[Gated]:
    made = Gated(start)
    yield made
    made.runner.open()


def test_a_closed_stream_gives_its_blocks_back_within_two_steps(gated: Gated) -> None:
    lines = gated.stream()
    next(lines)
    engine = gated.server.launcher.engine
    pool = engine.pool
    assert pool.referenced_blocks > 0
    lines.close()  # type: ignore[attr-defined]
    gated.wait_until(lambda: isinstance(engine.received[-1], Abort))
    before = len(gated.runner.plans)
    gated.runner.open()
    gated.wait_until(lambda: pool.referenced_blocks == 0)
    assert len(gated.runner.plans) - before <= 2


def test_a_caller_that_leaves_before_its_answer_is_given_up(gated: Gated) -> None:
    engine, url = gated.server.launcher.engine, httpx.URL(gated.server.url)
    body = b'{"prompt": "a", "max_tokens": 100}'
    head = f"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n"
    with socket.create_connection((url.host, url.port)) as caller:
        caller.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
        gated.wait_until(lambda: gated.server.service.supervisor.live == 1)
    gated.wait_until(lambda: any(isinstance(message, Abort) for message in engine.received))
    gated.runner.open()
    counted = 'floorline_requests_total{model="tinygpt",outcome="aborted"} 1.0'
    gated.wait_until(lambda: counted in gated.server.client.get("/metrics").text)
    assert engine.pool.referenced_blocks == 0


@pytest.mark.parametrize("stream", [False, True])
def test_who_is_not_admitted_in_time_is_refused_with_429_and_counted_so(
    start: Callable[..., Server], stream: bool
) -> None:
    held = Gated(lambda runner: start(runner, max_num_seqs="1", queue_timeout="1e-9"))
    lines = held.stream()
    next(lines)
    body = {"prompt": "b", "stream": stream}
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(held.server.client.post, "/v1/completions", json=body)
        held.wait_until(lambda: held.server.service.supervisor.live == 2)
        engine = held.server.launcher.engine
        held.wait_until(lambda: sum(isinstance(m, Submit) for m in engine.received) == 2)
        held.runner.gate.release()
        held.wait_until(lambda: isinstance(engine.received[-1], Finish))
        held.runner.open()
        response = late.result()
        list(lines)
    if stream:
        *_, error, done = response.text.split("\n\n")[:-1]
        assert done == "data: [DONE]"
        body = json.loads(error.removeprefix("data: "))
    else:
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1
        body = response.json()
    assert body["error"]["type"] == "rate_limit_error"
    assert body["error"]["code"] == "overloaded"
    held.wait_until(lambda: held.server.service.supervisor.live == 0)
    metrics = held.server.client.get("/metrics").text
    assert 'floorline_requests_total{model="tinygpt",outcome="refused"} 1.0' in metrics
    assert 'floorline_requests_total{model="tinygpt",outcome="aborted"} 0.0' in metrics
    debug = held.server.client.get("/debug/steps").json()["steps"]
    assert debug[-1]["index"] == 100, "the first one ran to its end"


def test_a_dead_engine_ends_streams_with_an_error_and_a_new_one_serves(gated: Gated) -> None:
    lines = gated.stream()
    next(lines)
    gated.server.launcher.engine.kill()
    *_, error, done = list(lines)
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "engine_dead"
    assert done == "data: [DONE]"
    client = gated.server.client
    gated.wait_until(lambda: client.get("/ready").status_code == 200)
    assert client.post("/v1/completions", json={"prompt": "a"}).status_code == 200
    assert len(gated.server.launcher.engines) == 2


def test_while_the_engine_is_down_requests_are_told_when_to_come_back(gated: Gated) -> None:
    client, launcher = gated.server.client, gated.server.launcher
    launcher.may_start.clear()
    launcher.engine.kill()
    gated.wait_until(lambda: client.get("/health").status_code == 503)
    assert client.get("/ready").json()["error"]["code"] == "engine_dead"
    response = client.post("/v1/completions", json={"prompt": "a"})
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "engine_dead"
    assert int(response.headers["retry-after"]) >= 1
    assert client.get("/metrics").status_code == 200
    gated.server.loop.call_soon_threadsafe(launcher.may_start.set)
    gated.wait_until(lambda: client.get("/health").status_code == 200)


def test_a_drain_finishes_streams_and_refuses_new_requests(gated: Gated) -> None:
    lines = gated.stream(max_tokens=3)
    next(lines)
    server = gated.server
    server.drain()
    gated.wait_until(lambda: server.service.supervisor.draining)
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as other:
        response = other.post("/v1/completions", json={"prompt": "a"})
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "shutting_down"
        assert "retry-after" in response.headers
        assert other.get("/ready").status_code == 503
    gated.runner.open()
    assert list(lines)[-1] == "data: [DONE]"
    server.stop()
