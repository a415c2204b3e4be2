"""Two keys, two tenants: bills, prefixes, shares, queues and timelines of their own."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from core.wire import Submit
from tests.contract.conftest import Server
from tests.fakes_engine import GatedRunner
from tests.patience import PATIENCE_S

KEYS = ["alice=a-key", "bob=b-key"]
PROMPT = "a prompt of more than one block of 16 tokens"


def client_of(server: Server, name: str) -> httpx.Client:
    headers = {"authorization": f"Bearer {name[0]}-key"}
    return httpx.Client(base_url=server.url, timeout=PATIENCE_S, headers=headers)


def ask(client: httpx.Client, **fields: object) -> dict[str, object]:
    response = client.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 2} | fields)
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


def cached(answer: dict[str, object]) -> int:
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]  # type: ignore[index,no-any-return]


@pytest.fixture
def server(start: Callable[..., Server]) -> Server:
    return start(api_key=KEYS, price_per_hour="1000000")


@pytest.fixture
def alice(server: Server) -> Iterator[httpx.Client]:
    with client_of(server, "alice") as client:
        yield client


@pytest.fixture
def bob(server: Server) -> Iterator[httpx.Client]:
    with client_of(server, "bob") as client:
        yield client


def test_each_key_has_its_own_account(
    server: Server, alice: httpx.Client, bob: httpx.Client
) -> None:
    bills = {name: ask(client)["cost"] for name, client in (("alice", alice), ("bob", bob))}
    assert server.client.get("/metrics").status_code == 401
    metrics = alice.get("/metrics").text
    for name, bill in bills.items():
        line = rf'floorline_cost_usd_total{{.*component="\w+",.*tenant="{name}"}} (.+)'
        paid = sum(float(value) for value in re.findall(line, metrics))
        assert paid == pytest.approx(bill["cost_usd"])  # type: ignore[index]
        assert paid > 0
        assert re.search(rf'kv_block_seconds_total{{.*tenant="{name}"}}', metrics)
    assert 'tenant="default"' not in metrics
    assert "-key" not in metrics


def test_tenants_share_no_prefixes(alice: httpx.Client, bob: httpx.Client) -> None:
    assert [cached(ask(client)) for client in (alice, bob, alice, bob)] == [0, 0, 32, 32]


def test_a_request_exists_for_its_own_tenant_only(alice: httpx.Client, bob: httpx.Client) -> None:
    path = f"/debug/requests/{ask(alice)['id']}"
    assert alice.get(path).status_code == 200
    other, nobody = bob.get(path), bob.get("/debug/requests/nobody")
    assert other.status_code == nobody.status_code == 404
    assert other.json() == nobody.json()


def test_a_name_is_no_key(server: Server) -> None:
    for given in ("alice", "alice=a-key", "A-KEY", "default"):
        headers = {"authorization": f"Bearer {given}"}
        assert server.client.get("/v1/models", headers=headers).status_code == 401


def test_the_flood_of_one_tenant_neither_fills_anothers_queue_nor_goes_before_it(
    start: Callable[..., Server],
) -> None:
    runner = GatedRunner()  # stands in the first step until all have come
    server = start(runner, api_key=KEYS, max_queue="100")
    received = server.launcher.engine.received
    answers: dict[str, dict[str, object]] = {}

    def send(name: str, count: int, all_in_all: int) -> threading.Thread:
        def run() -> None:
            with client_of(server, name) as client:
                answers[name] = ask(client, prompt=["a"] * count, max_tokens=20)

        thread, pause = threading.Thread(target=run), threading.Event()
        thread.start()
        while sum(isinstance(message, Submit) for message in received) < all_in_all:
            pause.wait(0.002)
        return thread

    threads = [send("alice", 100, 100)]
    with client_of(server, "alice") as alice:
        body = {"prompt": "a", "max_tokens": 1}
        assert alice.post("/v1/completions", json=body).status_code == 429
    threads.append(send("bob", 1, 101))
    runner.open()
    for thread in threads:
        thread.join(PATIENCE_S)
    first, *later = [plan.admitted for plan in runner.plans]
    order = [id for admitted in later for id in admitted]
    assert len({*first, *order}) == 101
    assert answers["bob"]["id"] in order[:2]
