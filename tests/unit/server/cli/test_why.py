"""`floorline why`: the card, the exit status, and what is said without an answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from server.cli.main import main
from server.cli.why import WIDTH, card

REQUEST: dict[str, Any] = {
    "of": "request",
    "id": "cmpl-7a",
    "slow": True,
    "sentence": "First token after 1.92 s: 1.89 s (98 %) waiting for one of 4 slots behind 7 "
    "requests.",
    "advice": [{"text": "KV blocks for 6 more were free: --max-num-seqs 10"}],
    "spent_ms": {"wait_slots": 1893.0, "floor_prefill": 13.79, "host": 1.2},
    "doubt": "the peaks were given by flags",
}
WINDOW: dict[str, Any] = {
    "of": "window",
    "slow": {"wait_slots": 1},
    "sentence": "1 of 4 requests were slow in 60 s, 1 by wait_slots.",
    "spent_ms": {"wait_slots": 1893.0},
    "worst": REQUEST,
}
QUIET = {**WINDOW, "slow": {}, "worst": None, "spent_ms": {}}


class Answers(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("authorization")))
        status, body = 200, {**WINDOW}
        if self.path.startswith("/debug/requests/cmpl-7a"):
            body = {"why": REQUEST}
        elif self.path == "/debug/why?window=10s":
            body = QUIET
        elif self.path.startswith("/debug/requests/"):
            status, body = 404, {"error": {"message": "no such request among the recent ones"}}
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_request_is_told_on_a_card(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", url, "--request", "cmpl-7a", "--key", "secret"]) == 1
    shown = capsys.readouterr().out
    assert "waiting for one of 4 slots" in shown.replace("\n", " ")
    assert "→ KV blocks for 6 more were free: --max-num-seqs 10" in shown
    assert "wait_slots              1,893.0 ms   99%" in shown
    assert max(map(len, shown.splitlines())) <= WIDTH
    assert Answers.asked[-1] == ("/debug/requests/cmpl-7a", "Bearer secret")


def test_a_window_is_the_last_minute(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", url]) == 1
    assert Answers.asked[-1][0] == "/debug/why?window=60s"
    assert "The slowest, cmpl-7a:" in capsys.readouterr().out
    assert main(["why", url, "--window", "10s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == QUIET


def test_without_an_answer_a_line_says_why(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", url, "--request", "x/y"]) == 2
    error = capsys.readouterr().err
    assert "404: no such request among the recent ones" in error
    assert Answers.asked[-1][0] == "/debug/requests/x%2Fy"
    assert main(["why", "127.0.0.1:1"]) == 2
    assert "no answer of a Floorline server" in capsys.readouterr().err


def test_doubt_is_said() -> None:
    assert card(REQUEST).endswith("Floors here rest on this: the peaks were given by flags.")
