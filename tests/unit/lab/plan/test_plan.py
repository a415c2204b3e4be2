"""The plan's own output reproduces the numbers that the arithmetic must give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.formats import KVFormat
from costmodel.sums import ModelSums
from tests.unit.costmodel.models import TINYGPT
from tests.unit.lab.plans import BILLION, MIXED, SEVEN_B, SEVEN_B_HEADS, only, plan, text


def test_tinygpt_s_numbers() -> None:
    words = ("tinygpt", "--weights", "fp32", "--context", "96", "--peak-bandwidth", "10e9")
    model = plan(*words)["model"]
    assert model["parameters"] == 5_838_080
    assert model["kv_bytes_per_token"] == 3072
    assert model["crossover_tokens"] == 7602
    shown = text(*words)
    assert "5,838,080 parameters" in shown
    assert "weights are 98.8% of weights + KV" in shown
    assert "98.7% of the bytes of its step" in shown
    assert "7,602 tokens" in shown


@pytest.mark.parametrize("words", [(), ("--weights", "native"), ("--dtype", "native")])
def test_a_checkpoint_s_own_formats_are_planned_by_the_server_s_arithmetic(
    words: tuple[str, ...],
) -> None:
    found = plan("tinygpt", *words, "--device", "l4", "--context", "96")
    served = ModelSums.of(TINYGPT, MIXED, KVFormat.FP16)
    step_bytes = served.layers_bytes + served.lm_head_bytes + served.embedding_row_bytes
    assert found["model"]["weights"] == "native"
    assert found["model"]["weight_bytes"] == served.stored_bytes
    assert only(found)["decode"]["weight_bytes"] == step_bytes
    assert found["model"]["kv_dtype"] == "fp16"
    assert found["model"]["kv_bytes_per_token"] == served.kv_token_bytes
    levers = {lever["lever"] for lever in only(found)["levers"]}
    assert "weights in int8" not in levers, "it would take more bytes"
    assert "weights in int4" in levers


def test_a_billion_parameters_with_16_requests_of_8000_tokens() -> None:
    words = (*BILLION, "--peak-bandwidth", "100e9", "--context", "8000", "--concurrency", "16")
    found = plan(*words)
    assert found["model"]["weight_bytes"] == 2_000_000_000
    assert found["model"]["kv_bytes_per_token"] == 65_536
    assert found["model"]["kv_bytes_per_request"] == pytest.approx(524e6, rel=1e-3)
    assert found["model"]["crossover_tokens"] == 30_518
    assert only(found)["weights_alone"]["tokens_per_s"] == pytest.approx(50)
    assert only(found)["decode_alone"]["tokens_per_s"] == pytest.approx(39.6, abs=0.05)
    shown = text(*words)
    assert "8,000 tokens: 524 MB of KV; 16 of them 8.39 GB, more than the weights" in shown
    assert "50 tokens/s at batch 1" in shown


@pytest.mark.parametrize(("bits", "tokens_per_s"), [("int4", 200), ("4.5", 178)])
def test_a_billion_parameters_at_fewer_bits(bits: str, tokens_per_s: float) -> None:
    found = plan("--params", "1e9", "--weights", bits, "--peak-bandwidth", "100GB/s")
    assert only(found)["weights_alone"]["tokens_per_s"] == pytest.approx(tokens_per_s, abs=0.5)


@pytest.mark.parametrize(
    ("device", "line"),
    [
        ("l4", "floor 46.7 ms per token, 21.4 tokens/s at batch 1"),
        ("a100", "floor 7 ms per token, 143 tokens/s at batch 1"),
        ("h100", "floor 4.18 ms per token, 239 tokens/s at batch 1"),
        ("h200", "floor 2.92 ms per token, 343 tokens/s at batch 1"),
    ],
)
def test_the_weights_only_line_of_seven_billion_parameters(device: str, line: str) -> None:
    assert line in text(*SEVEN_B, "--device", device)
    compared = text(*SEVEN_B, "--compare", "l4,a100,h100,h200")
    floor, rate = line.split()[1], line.split()[5]
    assert f"{floor} ms, {rate}/s" in compared


def test_seven_billion_at_600_gb_per_s() -> None:
    assert "floor 23.3 ms per token" in text(*SEVEN_B, "--peak-bandwidth", "600e9")


def test_a_measured_rate_is_an_efficiency_or_impossible() -> None:
    good = text(*SEVEN_B, "--device", "a100", "--measured", "90tok/s")
    assert "90 tokens/s is an efficiency of 0.63" in good
    bad = text(*SEVEN_B, "--device", "a100", "--measured", "200tok/s")
    assert "200 tokens/s is IMPOSSIBLE: the floor allows 143 tokens/s" in bad
    both = text(*SEVEN_B, "--compare", "l4,h200", "--measured", "200")
    assert "l4: 200 tokens/s is IMPOSSIBLE: the floor allows 21.4 tokens/s" in both
    assert "h200: 200 tokens/s is an efficiency of 0.58" in both


def test_seventy_billion_fit_an_a100_in_int8_and_not_in_fp16() -> None:
    int8 = text("--params", "70e9", "--weights", "int8", "--device", "a100")
    assert "floor 35 ms per token, 28.6 tokens/s at batch 1" in int8
    fp16 = ("--params", "70e9", "--weights", "fp16", "--layers", "80", "--kv-heads", "8")
    shown = text(*fp16, "--head-dim", "128", "--device", "a100")
    assert "NO: the weights take 140 GB, the device has 80 GB" in shown
    assert "the memory holds a batch of 0" in shown
    assert "What each batch gives" not in shown


def test_prefill_of_4096_tokens_on_an_h100() -> None:
    words = (*SEVEN_B_HEADS, "--device", "h100", "--context", "4096")
    found = plan(*words)
    assert found["model"]["prefill_matrix_flops"] == pytest.approx(5.73e13, rel=1e-3)
    assert found["model"]["prefill_flops"] == pytest.approx(5.73e13 + 4.4e12, rel=1e-3)
    assert only(found)["prefill"]["alone"]["floor_ms"] == pytest.approx(62.4, abs=0.05)
    assert "floor 62.4 ms alone" in text(*words)
    bare = plan(*SEVEN_B, "--device", "h100", "--context", "4096")
    assert only(bare)["prefill"]["alone"]["floor_ms"] == pytest.approx(58, abs=0.05)


@pytest.mark.parametrize(
    ("words", "tokens"),
    [
        (SEVEN_B_HEADS, "26,703 tokens"),
        (("--params", "70e9", "--weights", "int8", "--layers", "80", "--kv-heads", "8",
          "--head-dim", "128"), "213,623 tokens"),
    ],
)  # fmt: skip
def test_crossovers_of_larger_models(words: tuple[str, ...], tokens: str) -> None:
    assert tokens in text(*words, "--device", "h200")


def test_three_tokens_a_pass_at_a_fifth_of_its_cost_are_two_and_a_half_times_as_fast() -> None:
    shown = text(*SEVEN_B_HEADS, "--device", "a100", "--draft", "2,1,0.2")
    assert "3 tokens a pass, ITL 2.91 ms: 2.5 ×" in shown
    found = only(plan(*SEVEN_B, "--device", "a100", "--draft", "2,0.5,0"))
    assert found["speculation"]["tokens_per_pass"] == pytest.approx(1 + 0.5 + 0.25)


def test_goals_and_claims_are_held_against_the_drafts_that_were_asked_for() -> None:
    words = (*SEVEN_B_HEADS, "--device", "a100", "--slo", "itl=5ms", "--measured", "200")
    assert "200 tokens/s is IMPOSSIBLE" in text(*words)
    assert "ITL 5 ms is IMPOSSIBLE at any batch" in text(*words)
    drafted = (*words, "--draft", "2,1,0.2")
    found = only(plan(*drafted))
    assert found["measured"]["ceiling_tokens_per_s"] == pytest.approx(
        1e3 / found["speculation"]["itl_ms"]
    )
    assert found["goals"]["itl"]["largest_batch"] > 0
    shown = text(*drafted)
    assert "200 tokens/s is an efficiency of 0.58 (floor / measured) with the drafts" in shown
    assert "ITL 5 ms with the drafts: largest batch" in shown


def test_a_goal_finds_the_largest_batch_and_what_binds() -> None:
    words = (*SEVEN_B_HEADS, "--device", "a100", "--context", "1024")
    roomy = only(plan(*words, "--slo", "itl=1s"))["goals"]
    assert roomy["itl"]["largest_batch"] == roomy["memory"]["largest_batch"] == 122
    assert roomy["itl"]["binding"] == "memory"
    tight = only(plan(*words, "--slo", "itl=10ms,ttft=100ms"))["goals"]
    assert tight["itl"] == {
        "goal_ms": 10, "largest_batch": 11, "binding": "bandwidth", "decided": True,
    }  # fmt: skip
    assert tight["ttft"]["prompts_at_once"] == 2
    assert "IMPOSSIBLE at any batch" in text(*words, "--slo", "itl=5ms")
    short = (*SEVEN_B, "--layers", "32", "--kv-heads", "1", "--head-dim", "128", "--context", "16")
    compute = plan(*short, "--device", "a100", "--slo", "itl=10ms")
    assert only(compute)["goals"]["itl"] == {
        "goal_ms": 10, "largest_batch": 222, "binding": "compute", "decided": True,
    }  # fmt: skip


def test_the_curve_prices_tokens_and_rises_with_the_batch() -> None:
    words = (*SEVEN_B_HEADS, "--device", "a100", "--price-per-hour", "2.5", "--concurrency", "3")
    curve = only(plan(*words))["curve"]
    assert [point["batch"] for point in curve[:4]] == [1, 2, 3, 4]
    rates = [point["tokens_per_s"] for point in curve]
    assert rates == sorted(rates)
    for point in curve:
        usd = 2.5 / 3600 / point["tokens_per_s"] * 1e6
        assert point["usd_per_million_tokens"] == pytest.approx(usd)


def test_each_lever_says_which_term_it_reduces_and_more_flops_buy_decode_nothing() -> None:
    words = (*SEVEN_B_HEADS, "--device", "a100", "--context", "4096", "--concurrency", "16")
    levers = {lever["lever"]: lever for lever in only(plan(*words))["levers"]}
    assert levers["weights in int4"]["term"] == "weight bytes"
    assert levers["KV in int8"]["term"] == "KV bytes"
    assert levers["KV in int8"]["requests_that_fit"] > 60
    assert levers["GQA: 32 → 8 kv-heads"]["throughput_gain"] > 2
    assert levers["batch 32"]["term"] == "tokens per weight read"
    assert levers["twice the FLOP/s"]["throughput_gain"] == 1
    assert levers["twice the FLOP/s"]["ttft_gain"] == pytest.approx(2)
    assert levers["twice the bandwidth"]["throughput_gain"] == pytest.approx(2)
    reuse = levers["prefix reuse: half of the context shared"]
    assert reuse["ttft_gain"] > 1.5
    assert reuse["throughput_gain"] > 1.4


def test_a_width_that_is_reached_is_no_lever() -> None:
    found = only(plan(*BILLION, "--weights", "int4", "--device", "a100"))["levers"]
    levers = [lever["lever"] for lever in found]
    assert "KV in int8" in levers
    assert not [lever for lever in levers if "weights in" in lever]


def test_the_page_shows_what_the_command_says() -> None:
    page = (Path(__file__).parents[4] / "docs/plan.md").read_text()
    shown = re.search(
        r"^    floorline plan ([^\n]*)\n\n```\n(.*?)\n```", page, re.DOTALL | re.MULTILINE
    )
    assert shown is not None
    assert text(*shown[1].split()) == shown[2]


def test_by_hand_forbids_only_what_no_such_model_could_do() -> None:
    """Llama-3.1-8B reads 8.03e9 parameters but for an embedding of 128,256 × 4,096."""
    eight = ("--params", "8.03e9", "--device", "h100", "--measured", "215")
    bare, whole = only(plan(*eight)), only(plan(*eight, "--vocab", "128256", "--hidden", "4096"))
    assert bare["measured"]["possible"] is None
    assert "IMPOSSIBLE" not in text(*eight)
    assert whole["measured"]["possible"] is True
    assert whole["weights_alone"]["tokens_per_s"] == pytest.approx(223, abs=0.5)
    assert only(plan(*eight[:-1], "270"))["measured"]["possible"] is False


def test_experts_by_hand_are_read_by_their_active_parameters() -> None:
    words = ("--params", "30.5e9", "--active-params", "3.35e9", "--experts", "8/128")
    found = plan(*words, "--device", "H100")
    assert only(found)["weights_alone"]["floor_ms"] == pytest.approx(2.0, abs=0.005)
    assert found["model"]["weight_bytes"] == 61_000_000_000


def test_narrow_weights_are_multiplied_at_their_own_rate() -> None:
    words = (*SEVEN_B_HEADS[:2], *SEVEN_B_HEADS[4:], "--context", "4096", "--device", "h100")
    wide = only(plan(*words))["prefill"]["alone"]["compute_ms"]
    narrow = only(plan(*words, "--weights", "fp8"))["prefill"]["alone"]["compute_ms"]
    assert wide / narrow == pytest.approx(1979 / 989)
    asked_for = only(plan(*words, "--weights", "fp8", "--arithmetic", "bf16"))
    assert asked_for["prefill"]["alone"]["compute_ms"] == wide


def test_two_devices_halve_the_bytes_and_tell_each_other_each_layer_twice() -> None:
    words = (*SEVEN_B_HEADS, "--hidden", "4096", "--context", "4096")
    one, two = (only(plan(*words, "--device", name)) for name in ("h100", "2xH100"))
    assert two["decode"]["memory_ms"] == pytest.approx(one["decode"]["memory_ms"] / 2)
    assert two["memory_bytes"] == 160e9
    sent_bytes = 2 * 32 * 4096 * 2  # all-reduces × layers × hidden × 2 bytes, × 2 (n − 1) / n = 1
    assert two["decode"]["link_ms"] == pytest.approx(sent_bytes / 450e9 * 1e3)
    assert two == only(plan(*words, "--device", "h100", "--tp", "2"))
