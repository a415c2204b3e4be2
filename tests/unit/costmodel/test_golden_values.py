"""The numbers that the arithmetic must reproduce, from the text that the project grew from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.errors import SettingsError
from core.formats import KVFormat, MatrixFormat, Storage
from costmodel.planning.capacity import (
    batch_one_ceiling,
    crossover_tokens,
    decode_ceiling_tokens_per_s,
    requests_that_fit,
    speculation_tokens_per_pass,
)
from costmodel.planning.datasheet import DEVICES, device
from costmodel.planning.scenario import Scenario, Speculation
from costmodel.planning.sizes import Size, Width
from costmodel.storage import kv_bytes_per_token, kv_bytes_per_token_and_layer
from costmodel.sums import ModelSums, attended_pairs
from tests.unit.costmodel.models import TINYGPT, model, peaks, piece

TINY = ModelSums.of(TINYGPT, Storage(MatrixFormat.FP32), KVFormat.FP32)
SEVEN_B_BYTES = 7e9 * 2


def kv_token_bytes(layers: int, kv_heads: int, head_dim: int) -> int:
    config = model(
        num_layers=layers,
        num_heads=kv_heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        sliding_window=(None,) * layers,
    )
    return kv_bytes_per_token(config, KVFormat.FP16)


def scenario(billions: int, weights: str, name: str) -> Scenario:
    """A size given by hand, without KV, on a device of the table."""
    return Scenario(
        model=Size(parameters=billions * 10**9),
        weights=Width.parse(weights),
        kv=Width.parse("fp16"),
        device=device(name),
        context=1,
    )


def test_tinygpt_at_context_96_reads_mostly_weights() -> None:
    kv_bytes = 96 * TINY.kv_token_bytes
    assert TINY.stored_bytes / (TINY.stored_bytes + kv_bytes) == pytest.approx(0.988, abs=5e-4)
    work = TINY.work((piece(start=96),), (), distinct_token_ids=1)
    weights = work.weights_bytes + work.lm_head_bytes
    assert weights / work.bytes_total == pytest.approx(0.987, abs=5e-4)


def test_tinygpt_crosses_over_at_7602_tokens() -> None:
    assert crossover_tokens(TINY.stored_bytes, TINY.kv_token_bytes) == 7602


def test_a_billion_parameters_in_16_bit() -> None:
    weights, kv = 1e9 * 2, kv_token_bytes(16, 8, 128)
    assert kv == 65_536
    assert 8000 * kv == pytest.approx(524e6, rel=1e-3)
    assert 16 * 8000 * kv == pytest.approx(8.39e9, rel=1e-3)
    assert 16 * 8000 * kv > weights
    assert decode_ceiling_tokens_per_s(weights, 0, 100e9) == pytest.approx(50)
    assert decode_ceiling_tokens_per_s(1e9 * 4 / 8, 0, 100e9) == pytest.approx(200)
    assert decode_ceiling_tokens_per_s(1e9 * 4.5 / 8, 0, 100e9) == pytest.approx(178, abs=0.5)
    assert decode_ceiling_tokens_per_s(weights, 8000 * kv, 100e9) == pytest.approx(39.6, abs=0.05)
    assert crossover_tokens(weights, kv) == 30_518


@pytest.mark.parametrize(
    ("name", "floor_ms", "tokens_per_s"),
    [("l4", 46.7, 21), ("a100", 7.0, 143), ("h100", 4.18, 239), ("h200", 2.92, 343)],
)
def test_seven_billion_in_bf16_at_batch_1(name: str, floor_ms: float, tokens_per_s: float) -> None:
    ceiling = decode_ceiling_tokens_per_s(SEVEN_B_BYTES, 0, device(name).bytes_per_s)
    assert 1e3 / ceiling == pytest.approx(floor_ms, abs=0.04)
    assert ceiling == pytest.approx(tokens_per_s, abs=0.5)


def test_seven_billion_at_600_gb_per_s_take_23_ms() -> None:
    assert 1e3 / decode_ceiling_tokens_per_s(SEVEN_B_BYTES, 0, 600e9) == pytest.approx(
        23.3, abs=0.05
    )


def test_an_a100_s_ceiling_makes_90_tokens_per_s_an_efficiency_of_0_63_and_200_impossible() -> None:
    ceiling = decode_ceiling_tokens_per_s(SEVEN_B_BYTES, 0, device("a100").bytes_per_s)
    assert 90 / ceiling == pytest.approx(0.63, abs=5e-3)
    assert ceiling < 200


def test_seventy_billion_fit_an_a100_in_int8_and_not_in_fp16() -> None:
    a100 = device("a100")
    assert scenario(70, "int8", "a100").weights_fit
    assert not scenario(70, "fp16", "a100").weights_fit
    assert requests_that_fit(a100.memory_bytes, 140e9, 1e9) == 0
    assert requests_that_fit(a100.memory_bytes, 70e9, 3e9) == 3
    ceiling = decode_ceiling_tokens_per_s(70e9, 0, a100.bytes_per_s)
    assert 1e3 / ceiling == pytest.approx(35)
    assert ceiling == pytest.approx(28.6, abs=0.05)


def test_prefill_of_4096_tokens_on_an_h100() -> None:
    matrices = 4096 * scenario(7, "bf16", "h100").sums.linear_flops_per_token
    assert matrices == pytest.approx(5.73e13, rel=1e-3)
    assert matrices / device("h100").flops_per_s == pytest.approx(58e-3, rel=2e-3)
    attention = 32 * 4 * 32 * 128 * attended_pairs(0, 4096, None)
    assert attention == pytest.approx(4.4e12, rel=1e-3)
    assert (matrices + attention) / device("h100").flops_per_s == pytest.approx(62.4e-3, rel=1e-3)


def test_speculation_follows_the_geometric_series() -> None:
    assert speculation_tokens_per_pass(4, 1.0) == 5
    assert speculation_tokens_per_pass(4, 0.0) == 1
    assert speculation_tokens_per_pass(2, 0.5) == pytest.approx(1 + 0.5 + 0.25)


def test_three_tokens_a_pass_whose_drafts_cost_a_fifth_of_it_are_2_5_times_as_fast() -> None:
    plain = scenario(7, "bf16", "a100")
    drafted = replace(plain, speculation=Speculation(drafts=2, acceptance=1.0, cost_ratio=0.2))
    assert plain.decode(1).itl_s / drafted.decode(1).itl_s == pytest.approx(2.5)


def test_crossovers_of_larger_models() -> None:
    assert crossover_tokens(SEVEN_B_BYTES, kv_token_bytes(32, 32, 128)) == 26_703
    assert crossover_tokens(70e9, kv_token_bytes(80, 8, 128)) == 213_623


def test_the_ceiling_of_one_request_is_its_decode_step_over_the_peak() -> None:
    ceiling = batch_one_ceiling(TINY, peaks(bytes_per_s=10e9, flops_per_s=1e15), 96)
    assert ceiling is not None
    moved = TINY.layers_bytes + TINY.lm_head_bytes + 256 * 4 + 97 * 3072
    assert ceiling.floor_s == pytest.approx(moved / 10e9)
    assert ceiling.tokens_per_s == pytest.approx(10e9 / moved)


def test_every_data_sheet_entry_names_its_source_and_makes_whole_peaks() -> None:
    for entry in DEVICES.values():
        assert entry.source
        assert entry.peaks.dram is not None
        assert entry.peaks.flops is not None
    assert (device("a100-sxm").bytes_per_s, device("a100-pcie").bytes_per_s) == (2.039e12, 1.935e12)


def test_an_unknown_device_is_refused_with_the_list() -> None:
    with pytest.raises(SettingsError, match="h200"):
        device("tpu")


def test_kv_bytes_per_layer_sum_to_the_token() -> None:
    assert kv_bytes_per_token_and_layer(TINYGPT, KVFormat.FP16) * 6 == kv_bytes_per_token(
        TINYGPT, KVFormat.FP16
    )
