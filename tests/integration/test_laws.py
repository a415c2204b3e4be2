"""The laws of time, money and bytes on live engines with measured peaks, from /metrics alone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from loadgen.run.scrape import Scrape
from tests.live import LiveServer, Serve

MODELS = ("tinygpt", "smollm2-135m")
USD_PER_HOUR = 0.25
CLIENTS, TURNS = 4, 3
PREFIX = "It was a bright cold day in April, and the clocks were striking thirteen. "

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=MODELS)
def scrapes(request: pytest.FixtureRequest, serve: Serve) -> Iterator[list[Scrape]]:
    """Scrape a server before, during and after prompts and answers of several lengths."""
    flags = ["--model", request.param, "--kv-memory", "64MiB"]
    with serve(*flags, "--price-per-hour", str(USD_PER_HOUR)) as server:
        yield traffic(server)


def traffic(server: LiveServer) -> list[Scrape]:
    taken = [scrape(server)]
    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = [clients.submit(talk, server, number) for number in range(CLIENTS)]
        while not all(answer.done() for answer in answers):
            taken.append(scrape(server))
        for answer in answers:
            answer.result()
    return [*taken, scrape(server)]


def talk(server: LiveServer, number: int) -> None:
    for turn in range(TURNS):
        prompt = PREFIX * (1 + number) + f"Client {number}, turn {turn}:"
        answer = server.post("/v1/completions", prompt=prompt, max_tokens=8 * (1 + number))
        assert answer.status_code == 200, answer.text


def scrape(server: LiveServer) -> Scrape:
    return Scrape(server.get("/metrics").raise_for_status().text)


def total(reading: Scrape, name: str, **labels: str) -> float:
    return reading.total(f"floorline_{name}", **labels) or 0.0


def test_useful_floor_and_lost_time_sum_to_the_wall_time(scrapes: list[Scrape]) -> None:
    for reading in scrapes:
        wall_s = total(reading, "engine_wall_seconds_total")
        parts_s = total(reading, "floor_seconds_total") + total(reading, "lost_seconds_total")
        assert parts_s == pytest.approx(wall_s, rel=0.01)
    assert total(scrapes[-1], "floor_seconds_total") > 0
    assert total(scrapes[-1], "lost_seconds_total", cause="unknown_peak") == 0


def test_all_money_is_the_price_of_the_wall_time(scrapes: list[Scrape]) -> None:
    for reading in scrapes:
        usd = total(reading, "engine_wall_seconds_total") * USD_PER_HOUR / 3600
        assert total(reading, "cost_usd_total") == pytest.approx(usd, rel=0.01)


def test_the_segments_of_steps_are_the_time_that_was_not_idle(scrapes: list[Scrape]) -> None:
    last = scrapes[-1]
    resting_s = sum(
        total(last, "lost_seconds_total", cause=cause) for cause in ("idle", "calibration")
    )
    busy_s = total(last, "engine_wall_seconds_total") - resting_s
    assert total(last, "step_segment_seconds_total") == pytest.approx(busy_s, rel=0.01)


def test_the_peaks_are_measured_and_cover_every_byte(scrapes: list[Scrape]) -> None:
    last, ours = scrapes[-1], ("measured", "proven")  # a step may have raised what was measured
    assert sum(total(last, "peak_bytes_per_second", source=s, level="dram") for s in ours) > 0
    assert sum(total(last, "peak_flops_per_second", source=s) for s in ours) > 0
    for part in ("weights", "kv"):
        assert last.total("floorline_cost_model_coverage_ratio", of=part) == 1


def test_a_prefix_that_several_prompts_share_is_found_and_saves_time(scrapes: list[Scrape]) -> None:
    last = scrapes[-1]
    assert total(last, "prefix_tokens_total", result="hit") > 0
    assert total(last, "prefix_saved_seconds_total") > 0
    assert total(last, "tokens_total", kind="cached") <= total(last, "tokens_total", kind="prompt")


def test_what_computes_is_named(scrapes: list[Scrape]) -> None:
    backends = [
        reading.total("floorline_kernel_info", backend=backend)
        for reading in scrapes[-1:]
        for backend in ("native", "torch")
    ]
    assert sorted(value or 0 for value in backends) == [0, 1]
