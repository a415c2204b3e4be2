"""What a plan says where it knows little, and where what it plans cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.inputs.quantities import counted
from lab.plan.answer import answer_question
from lab.plan.page import plan_page
from tests.unit.lab.plans import BILLION, SEVEN_B, SEVEN_B_HEADS, asked, only, plan, text

BARE_DEVICE = ("--peak-bandwidth", "100GB/s")
FLAGS = "--layers, --kv-heads and --head-dim"


def line(shown: str, label: str) -> str:
    """Give the first line of that label: the tables come after."""
    found = next(line for line in shown.splitlines() if line.startswith(f"  {label} "))
    return found.removeprefix(f"  {label}").strip()


def zeros(value: Any) -> list[str]:
    """Name every zero of an answer; a batch of nothing is a finding, and no unknown."""
    if isinstance(value, dict):
        return [f"{key}.{path}" if path else key for key, of in value.items() for path in zeros(of)]
    if isinstance(value, list):
        return [path for of in value for path in zeros(of)]
    return [""] if value == 0 and value is not False else []


@pytest.mark.parametrize("device", [("--device", "h100"), BARE_DEVICE])
@pytest.mark.parametrize("model", [SEVEN_B, SEVEN_B_HEADS])
def test_what_is_not_known_is_no_zero(model: tuple[str, ...], device: tuple[str, ...]) -> None:
    words = (*model, *device, "--slo", "itl=1s,ttft=2s", "--draft", "2,1,0.2", "--measured", "1")
    assert zeros(plan(*words)) == []
    assert " 0 " not in text(*words)


def test_without_kv_there_is_no_rate_and_the_flags_that_would_tell_are_named() -> None:
    words = (*SEVEN_B, "--device", "h100", "--concurrency", "4", "--slo", "itl=20ms,ttft=500ms")
    words += ("--price-per-hour", "2.5", "--draft", "2,1,0.2")
    found, shown = only(plan(*words)), text(*words)
    for decode in (found["decode_alone"], found["decode"]):
        known = {name for name, value in decode.items() if value is not None}
        assert known == {"batch", "weight_bytes"}
    assert found["curve"] == found["levers"] == []
    assert found["concurrency_fits"] is None
    assert found["goals"]["itl"]["largest_batch"] is None
    assert found["speculation"] == {
        "tokens_per_pass": 3, "fits": None, "itl_ms": None, "speedup": None,
    }  # fmt: skip
    assert line(shown, "KV") == line(shown, "ITL") == f"n/a: unknown without {FLAGS}"
    assert "14 GB of weights and n/a of KV" in shown
    assert "requests beside them n/a" in line(shown, "fits")
    assert "ITL 20 ms with the drafts: n/a while KV is unknown" in shown
    assert "at most 34 prompts at once, by the weights alone" in shown
    assert "3 tokens a pass, ITL n/a" in shown
    assert "each batch gives and each lever buys: n/a" in shown


def test_without_kv_the_weights_alone_still_bound_what_can_be() -> None:
    shown = text(*SEVEN_B, "--device", "a100", "--slo", "itl=5ms", "--measured", "90")
    assert line(shown, "weights only") == "floor 7 ms per token, 143 tokens/s at batch 1"
    assert line(shown, "TTFT").startswith("at least 45.9 ms alone")
    assert "ITL 5 ms is IMPOSSIBLE at any batch" in shown
    assert "0.63 (floor / measured), by the weights alone" in shown
    model = plan(*SEVEN_B, "--device", "a100")["model"]
    assert model["prefill_flops"] is None
    assert "n/a with attention" in line(shown, "prefill")


def test_a_table_says_what_it_does_not_know() -> None:
    shown = text(*SEVEN_B, "--compare", "l4,h100", "--price-per-hour", "1,2")
    row = line(shown, "h100").split()
    assert row.count("n/a") == 7, "fits, requests, ITL, tokens/s, batch, what binds, money"
    assert f"n/a: unknown without {FLAGS}" in shown


def test_without_flops_a_prefill_has_no_floor() -> None:
    words = (*SEVEN_B_HEADS, *BARE_DEVICE, "--slo", "ttft=1s")
    found, shown = only(plan(*words)), text(*words)
    alone = found["prefill"]["alone"]
    assert alone["floor_ms"] is alone["compute_ms"] is alone["regime"] is None
    assert alone["memory_ms"] == pytest.approx(145.4, abs=0.05)
    assert line(shown, "TTFT") == "n/a: no --peak-flops (bytes 145 ms)"
    assert "TTFT 1 s: n/a without --peak-flops" in shown
    assert "no --peak-flops; no --memory" in line(shown, "device")
    assert line(shown, "fits") == "n/a: no --memory"
    impossible = text(*SEVEN_B_HEADS, *BARE_DEVICE, "--slo", "ttft=100ms")
    assert "TTFT 100 ms: IMPOSSIBLE even for one prompt" in impossible, "the bytes alone tell"


def test_without_flops_decode_is_bounded_by_bytes_alone() -> None:
    words = (*SEVEN_B_HEADS, *BARE_DEVICE, "--slo", "itl=200ms", "--measured", "6")
    found, shown = only(plan(*words)), text(*words)
    assert found["decode"]["compute_ms"] is found["decode"]["regime"] is None
    assert line(shown, "ITL") == "floor 145 ms at batch 1: 6.88 tokens/s, by bytes alone"
    assert "largest batch at most 11, by bytes alone" in shown
    assert "(floor / measured), by bytes alone" in line(shown, "measured")
    assert "What each lever buys at batch 1, by bytes alone" in shown
    assert "bound by memory" not in shown
    assert "twice the FLOP/s" not in [lever["lever"] for lever in found["levers"]]
    assert {lever["ttft_gain"] for lever in found["levers"]} == {None}


def test_weights_that_do_not_fit_reach_no_rate() -> None:
    size = ("--params", "70e9", "--layers", "80", "--kv-heads", "8", "--head-dim", "128")
    words = (*size, "--device", "a100", "--draft", "2,1,0.2", "--measured", "1", "--slo", "ttft=9s")
    found, shown = only(plan(*words)), text(*words)
    assert found["decode"]["fits"] is found["prefill"]["alone"]["fits"] is False
    assert found["requests_that_fit"] == 0
    assert found["curve"] == []
    for label in ("weights only", "TTFT", "ITL", "a step moves", "speculation"):
        assert line(shown, label).startswith("if it fitted: "), label
    assert "TTFT 9 s: IMPOSSIBLE even for one prompt" in shown
    assert line(shown, "measured") == "1 tokens/s is IMPOSSIBLE: the device cannot hold it"
    assert "What each lever buys at batch 1, which does not fit" in shown
    fits = {lever["lever"]: lever["fits"] for lever in found["levers"]}
    assert fits["weights in int4"] is True
    assert fits["twice the bandwidth"] is False


def test_too_many_requests_reach_no_rate_and_one_does() -> None:
    words = (*SEVEN_B_HEADS, "--device", "a100", "--concurrency", "500", "--slo", "ttft=60s")
    shown = text(*words, "--measured", "1000")
    assert line(shown, "fits") == "NO: 122 requests of this length beside the weights, 500 wanted"
    assert line(shown, "ITL").startswith("floor 7.27 ms at batch 1; if it fitted: 141 ms")
    assert "; if it fitted: 23.4 s for the last of 500" in line(shown, "TTFT")
    assert "TTFT 60 s: 122 prompts at once" in shown, "no more of them fit"
    assert "0.33 (floor / measured) with the 122 that fit" in line(shown, "measured")
    beyond = text(*words, "--measured", "3500")
    assert "IMPOSSIBLE: the floor allows 3,067 tokens/s with the 122 that fit" in beyond


def test_a_lever_to_a_batch_that_does_not_fit_says_so() -> None:
    words = (*SEVEN_B_HEADS, "--device", "a100", "--concurrency", "100")
    (more,) = [one for one in only(plan(*words))["levers"] if one["lever"] == "batch 200"]
    assert more["fits"] is False
    assert line(text(*words), "batch 200").endswith("122    NO")


def test_a_table_puts_what_does_not_fit_in_brackets() -> None:
    shown = text("--params", "70e9", "--compare", "l4,h200")
    assert "(467 ms, 2.14/s)  (1.18 s)" in line(shown, "l4")
    assert "29.2 ms, 34.3/s" in line(shown, "h200")
    assert "(" not in line(shown, "h200")
    assert "in brackets: if it fitted" in shown


def test_one_of_a_thing_is_not_many() -> None:
    assert [counted(number, "request") for number in (0, 1, 2000)] == [
        "0 requests", "1 request", "2,000 requests",
    ]  # fmt: skip
    assert counted(1.0, "token") == "1 token"
    words = (*SEVEN_B_HEADS, "--device", "a100", "--context", "100000", "--slo", "ttft=30s")
    shown = text(*words, "--draft", "1,0,0")
    assert line(shown, "fits") == "yes: 1 request of this length beside the weights"
    assert "TTFT 30 s: 1 prompt at once" in shown
    assert "1 token a pass" in shown
    one = text(*BILLION, "--device", "a100", "--context", "1")
    assert line(one, "a request").startswith("1 token: ")
    assert "(1 byte)" in text("--params", "1", "--weights", "int4", "--device", "a100")


def test_at_batch_1_nothing_is_said_twice() -> None:
    shown = text(*SEVEN_B_HEADS, "--device", "a100")
    assert line(shown, "ITL") == "floor 7.27 ms at batch 1: 138 tokens/s, bound by memory"
    assert "at once" not in line(shown, "TTFT")


def test_a_page_has_no_plot_of_what_is_not_known(tmp_path: Path) -> None:
    def page(*words: str) -> str:
        plan_page(answer_question(asked(*words))).write(tmp_path / "plan.html")
        return (tmp_path / "plan.html").read_text()

    plot = 'class="plotly-graph-div"'
    assert page(*SEVEN_B_HEADS, "--device", "a100").count(plot) == 3
    assert plot not in page(*SEVEN_B, "--device", "a100")
    unfit = page(*BILLION, "--context", "8e6", "--device", "a100")
    assert unfit.count(plot) == 1, "no batch fits; the levers do say what would"
    assert "twice the bandwidth (does not fit)" in unfit
    assert "1 / TTFT" not in page(*SEVEN_B_HEADS, *BARE_DEVICE)
