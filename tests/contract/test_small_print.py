"""What probes, proxies, scrapers and operators rely on, and what callers may not see."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from core.routes import Route
from server.routes.operations import LONGEST_WAIT_S, Operations
from server.routes.routes import ROUTES
from telemetry.history import HIDDEN
from tests.contract.conftest import Server
from tests.contract.test_tenants import KEYS, ask, client_of

GETS = [endpoint.route for endpoint, _ in ROUTES if endpoint.method == "GET"]


@pytest.mark.parametrize("route", [route for route in GETS if route is not Route.METRICS])
def test_head_says_what_get_says_without_the_body(http: httpx.Client, route: Route) -> None:
    path = route.replace("{id}", "tinygpt")
    head, get = http.head(path), http.get(path)
    assert head.status_code == get.status_code
    assert head.headers["content-type"] == get.headers["content-type"]
    assert head.content == b""


def test_head_of_the_metrics_has_no_body(http: httpx.Client) -> None:
    head = http.head("/metrics")
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, identity"])
def test_a_body_with_a_content_encoding_is_refused(http: httpx.Client, encoding: str) -> None:
    headers = {"content-type": "application/json", "content-encoding": encoding}
    body = gzip.compress(b'{"prompt": "a"}')
    response = http.post("/v1/completions", content=body, headers=headers)
    assert response.status_code == 415
    assert response.json()["error"]["code"] == "unsupported_media_type"


def test_a_body_that_says_it_is_not_encoded_is_taken(http: httpx.Client) -> None:
    headers = {"content-encoding": "identity"}
    body = {"prompt": "a", "max_tokens": 1}
    assert http.post("/v1/completions", json=body, headers=headers).status_code == 200


def test_two_authorization_headers_are_refused_though_each_is_right(
    start: Callable[..., Server],
) -> None:
    server = start(api_key=KEYS)
    right = ("authorization", "Bearer a-key")
    assert server.client.get("/v1/models", headers=[right]).status_code == 200
    assert server.client.get("/v1/models", headers=[right, right]).status_code == 401


def test_the_scrape_key_opens_what_operators_watch_and_nothing_else(
    start: Callable[..., Server],
) -> None:
    server = start(api_key=KEYS, scrape_key="look")
    looking = {"authorization": "Bearer look"}
    with client_of(server, "alice") as alice:
        id = ask(alice)["id"]
        assert alice.get("/metrics").status_code == 401, "it has the bills of all tenants"
        assert alice.get(f"/debug/requests/{id}").status_code == 200
    statuses = {
        path: server.client.get(path, headers=looking).status_code
        for path in ("/metrics", "/debug/steps", f"/debug/requests/{id}", "/v1/models")
    }
    assert list(statuses.values()) == [200, 200, 200, 401], statuses
    for path in ("/metrics", "/debug/steps"):
        assert server.client.get(path).status_code == 401
    assert server.client.get("/health").status_code == 200


def test_a_scrape_key_guards_a_server_without_other_keys(start: Callable[..., Server]) -> None:
    server = start(scrape_key="look")
    for path in ("/metrics", "/debug/steps"):
        assert server.client.get(path).status_code == 401
        headers = {"authorization": "Bearer look"}
        assert server.client.get(path, headers=headers).status_code == 200
    assert server.client.get("/v1/models").status_code == 200


def test_a_tenant_sees_no_ids_of_others_in_debug(start: Callable[..., Server]) -> None:
    server = start(api_key=KEYS, scrape_key="look")
    with client_of(server, "alice") as alice, client_of(server, "bob") as bob:
        ids = {"alice": ask(alice)["id"], "bob": ask(bob)["id"]}
        shown = {"alice": alice.get("/debug/steps").text, "bob": bob.get("/debug/steps").text}
    for name, text in shown.items():
        for other, id in ids.items():
            assert (str(id) in text) == (name == other)
        slices = [piece for step in json.loads(text)["steps"] for piece in step["slices"]]
        assert {piece["id"] for piece in slices} == {ids[name], HIDDEN}
    operator = server.client.get("/debug/steps", headers={"authorization": "Bearer look"}).text
    assert all(str(id) in operator for id in ids.values())


def test_each_request_is_a_line_without_its_prompt_its_query_and_its_key(
    start: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "floorline.access")
    server = start(api_key=KEYS)
    with client_of(server, "alice") as alice:
        alice.get("/nowhere%0Anew?key=secret", headers={"x-request-id": "mine"})
        ask(alice, prompt="a private matter")
    lines = [record.message for record in caplog.records if record.name == "floorline.access"]
    assert len(lines) == 2
    assert " GET /nowhere%0Anew 404 " in lines[0]
    assert lines[0].endswith(" tenant=alice id=mine")
    assert " POST /v1/completions 200 " in lines[1]
    for secret in ("secret", "private", "a-key"):
        assert secret not in "".join(lines)


def test_the_access_log_can_be_turned_off(
    start: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "floorline.access")
    start(access_log="false").client.get("/health")
    assert not [record for record in caplog.records if record.name == "floorline.access"]


@pytest.mark.parametrize(("live", "waits_s"), [(0, []), (3, [LONGEST_WAIT_S])])
def test_a_scrape_waits_for_its_share_of_time_and_holds_what_ended_before_it(
    live: int, waits_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, rendered, waited = 0, 0, []

    def render() -> bytes:
        nonlocal rendered
        rendered += 1
        return str(ended).encode()

    async def sleep(delay_s: float) -> None:
        if delay_s > 0:
            waited.append(delay_s)

    clock = iter(range(100))  # each look at the processor's clock is a second later
    monkeypatch.setattr("server.routes.operations.time.thread_time", lambda: next(clock))
    monkeypatch.setattr("server.routes.operations.time.monotonic", lambda: 7.0)
    monkeypatch.setattr("server.routes.operations.asyncio.sleep", sleep)
    served = SimpleNamespace(telemetry=SimpleNamespace(render=render))
    supervisor = SimpleNamespace(live=live)
    service: Any = SimpleNamespace(served=lambda: served, supervisor=supervisor)
    operations, nobody = Operations(service, "0", {}), cast(Any, None)

    async def scrapes() -> list[bytes]:
        nonlocal ended
        first = await operations.metrics(nobody)
        ended = 5
        others = await asyncio.gather(*(operations.metrics(nobody) for _ in range(4)))
        return [bytes(answer.body) for answer in (first, *others)]

    assert asyncio.run(scrapes()) == [b"0", b"5", b"5", b"5", b"5"]
    assert (rendered, waited) == (2, waits_s)
