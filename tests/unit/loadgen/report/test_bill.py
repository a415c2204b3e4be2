from __future__ import annotations

from loadgen.report.bill import Bill, bill_of, price_of
from loadgen.report.join import ServerView, floors_ms
from loadgen.report.measure import Throughput
from loadgen.run.record import Record
from loadgen.run.scrape import Scrape

COUNTERS = """floorline_requests_received_total {requests}
floorline_tokens_total{{kind="prompt"}} 20
floorline_tokens_total{{kind="generated"}} 8
floorline_cost_usd_total{{component="prefill",tenant="default"}} {prefill}
floorline_cost_usd_total{{component="decode",tenant="default"}} 7e-09
floorline_cost_usd_total{{component="idle",tenant="_shared"}} 0.5
"""


def scrapes(requests: int = 2, prefill: float = 5e-9) -> list[Scrape]:
    return [Scrape(""), Scrape(COUNTERS.format(requests=requests, prefill=prefill), 9.0)]


def record(i: int, usd: float | None = 6e-9, floor_ms: float | None = 4.0) -> Record:
    return Record(
        i=i, intended_s=i, woke_s=i, sent_s=i, end_s=i + 1, outcome="ok", detail="",
        asked_prompt_tokens=10, asked_output_tokens=4, content=[(i + 1, 4)], counted_tokens=4,
        usage={"prompt_tokens": 10, "completion_tokens": 4},
        cost={"cost_usd": usd, "floor_ms": floor_ms}, finish_reason="length",
    )  # fmt: skip


def billed(records: list[Record], seen: list[Scrape]) -> Bill:
    return bill_of(records, seen, exact=True)


TWO = [record(0), record(1)]


def test_a_bill_balances_to_the_token_and_to_the_nano_dollar() -> None:
    account = billed(TWO, scrapes())
    assert account.tokens["output"] == {"client": 8, "usage": 8, "metrics": 8}
    assert account.nusd == {"cost": 12, "metrics": 12}, "idle time is nobody's"
    assert account.balanced is True


def test_a_nano_dollar_too_much_unbalances_it() -> None:
    account = billed(TWO, scrapes(prefill=6e-9))
    assert account.nusd == {"cost": 12, "metrics": 13}
    assert account.balanced is False


def test_without_a_price_the_tokens_alone_are_compared() -> None:
    account = billed([record(0, usd=None), record(1, usd=None)], scrapes())
    assert account.nusd["cost"] is None
    assert account.balanced is True


def test_counters_that_others_moved_are_left_out() -> None:
    account = billed(TWO, scrapes(requests=3))
    assert account.others_on_server is True
    assert account.tokens["output"]["metrics"] is None
    assert account.nusd == {"cost": 12, "metrics": None}


def test_each_latency_has_the_floor_that_the_server_tells() -> None:
    server = ServerView(floor_prefill_step_ms=3.0, floor_decode_step_ms=2.0)
    floors = floors_ms([record(0), record(1, floor_ms=6.0), record(2, floor_ms=None)], server)
    assert (floors["ttft"], floors["e2e"], floors["itl"]) == (3.0, 5.0, 2.0)
    assert set(floors_ms([], None).values()) == {None}


def test_a_price_without_known_tokens_prices_requests_alone() -> None:
    rates = Throughput(
        window_s=360.0, offered_per_s=None, answered=4, achieved_per_s=None, prompt_tokens=None,
        output_tokens=None, prompt_tokens_per_s=None, output_tokens_per_s=None,
        steady_s=0.0, steady_tokens_per_s=None,
    )  # fmt: skip
    priced = price_of(0.5, rates, good=0)
    assert priced is not None
    assert priced.usd_per_request == 0.05 / 4
    assert (priced.usd_per_million_tokens, priced.usd_per_good_request) == (None, None)
