"""What `plan` reads and what it refuses: each in one line that names the flag and the limit."""

from __future__ import annotations

import re

import pytest

from core.errors import SettingsError
from core.settings import TelemetrySettings
from lab.ask.values import parameters
from loadgen.options import parser_of
from server.cli.options import resolve
from telemetry.objectives import resolve as telemetry_of
from tests.unit.lab.plans import BILLION, SEVEN_B, asked, only, plan

INT3 = (
    "--weights: 'int3' is neither a width (fp32, bf16, fp16, fp8, int8, int4) nor a number of bits"
)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--device", "tpu"), "--device: no data sheet for 'tpu': one of l4, l40s"),
        (("--compare", "l4,tpu"), "--compare: no data sheet for 'tpu': one of l4, l40s"),
        ((), "--device is missing"),
        (
            ("--device", "a100", "--compare", "l4,h100"),
            "--device goes without --compare: a device is named (--device, or",
        ),
        (
            ("--device", "h100", "--memory", "100MB"),
            "--device goes without --memory: a device is named (--device, or several with"
            " --compare) or given by hand (--peak-bandwidth, --peak-flops, --memory)",
        ),
        (("--compare", "l4", "--peak-flops", "1T"), "--compare goes without --peak-flops: a "),
        (("--peak-flops", "1e12"), "--peak-bandwidth is missing"),
        (("--device", "a100", "--context", "9999"), "at most 8192 tokens"),
        (("--device", "a100", "--context", "0"), "--context: '0'"),
        (("--device", "a100", "--context", "nan"), "--context: 'nan'"),
        (
            ("--device", "a100", "--concurrency", "1.5"),
            "--concurrency: '1.5' is not a whole number",
        ),
        (("--device", "a100", "--context", "8k"), "'8k' is not a whole number from 1 to 1e15"),
        (("--device", "a100", "--params", "0"), "--params: '0' is not a whole number from 1 to"),
        (("--device", "a100", "--params", "7x"), "from 1 to 1e15, such as 7e9 or 7B"),
        (("--device", "a100", "--params", "1.2345b", "--layers", "1e300"), "--layers: '1e300'"),
        (("--device", "a100", "--params", "0.5e0B"), "--params: '0.5e0B'"),
        (("--device", "a100", "--weights", "int3"), INT3),
        (("--device", "a100", "--params", "7B", "--weights", "int3"), INT3),
        (("--device", "a100", "--dtype", "-4"), "--dtype: '-4' is neither a width"),
        (("--device", "a100", "--dtype", ""), "--dtype: '' is neither a width"),
        (("--device", "a100", "--weights", ""), "--weights: '' is neither a width"),
        (("--device", "a100", "--weights", "", "--dtype", "bf16"), "--weights: ''"),
        (("--device", "a100", "--kv-dtype", "int9"), "--kv-dtype: 'int9' is neither a width"),
        (("--device", "a100", "--weights", "int8", "--dtype", "bf16"), "differ"),
        (("--device", "a100", "--params", "7e9", "--weights", "native"), "--weights native: there"),
        (("--device", "a100", "--params", "7e9", "--dtype", "native"), "--dtype native: there"),
        (("--device", "a100", "--slo", "itl=fast"), "--slo: itl: 'fast' is not a time"),
        (("--device", "a100", "--slo", "e2e=1s"), "--slo: 'e2e=1s' is not one of itl, ttft"),
        (("--device", "a100", "--slo", "itl=0ms"), "--slo: itl: '0ms' is not a time from 1us"),
        (("--device", "a100", "--slo", ""), "--slo: '' is not one of itl, ttft"),
        (
            ("--device", "a100", "--slo", "itl=1s,itl=2s"),
            "--slo: 'itl=2s' is not one of itl, ttft with a limit, each once",
        ),
        (("--device", "a100", "--price-per-hour", "1,2"), "one for each device"),
        (
            ("--device", "a100", "--price-per-hour", "-1"),
            "--price-per-hour: '-1' is not a number above 0",
        ),
        (("--device", "a100", "--price-per-hour", "2GB"), "such as 2.5"),
        (("--device", "a100", "--draft", "4,0.7"), "--draft: '4,0.7'"),
        (("--device", "a100", "--draft", "4,1.7,0.1"), "acceptance from 0 to 1"),
        (("--device", "a100", "--measured", "fast"), "--measured: 'fast'"),
        (("--device", "a100", "--layers", "4"), "go with --params"),
        (("--device", "a100", "--params", "7e9", "tinygpt"), "one of them"),
        (("--device", "a100", "--params", "7e9", "--layers", "4"), "given together"),
        (("--device", "a100", "--params", "7e9", "--heads", "4"), "--heads only with them"),
        (("--device", "a100", *BILLION, "--heads", "9"), "no multiple"),
        (("--device", "a100", "--measured", "90GB"), "such as 90tok/s"),
        (("--peak-bandwidth", "100e9", "--memory", "much"), "--memory: 'much'"),
        (("--peak-bandwidth", "100e9", "--memory", "24"), "--memory: '24' is below 1 MB"),
        (
            ("--peak-bandwidth", "1e11", "--peak-flops", "989"),
            "--peak-flops: '989' is below 1 MFLOP/s",
        ),
    ],
)
def test_bad_input_is_one_line_that_names_the_flag(words: tuple[str, ...], reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        asked(*words)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_memory_is_read_in_powers_of_ten_and_of_two() -> None:
    sizes = {"24GB": 24e9, "24GiB": 24 * 2**30, "24e9": 24e9}
    for words, size in sizes.items():
        device = only(plan(*SEVEN_B, "--peak-bandwidth", "1T", "--memory", words))
        assert device["memory_bytes"] == size


@pytest.mark.parametrize("flag", ["peak_bandwidth", "peak_flops"])
@pytest.mark.parametrize("words", ["94e9", "94G", "94 G", "94000000000.0", "9.4e+10", "0.094T"])
def test_plan_and_serve_read_a_peak_alike(flag: str, words: str) -> None:
    served = getattr(resolve({flag: words}, {}, {}, "").engine, flag)
    peaks = {"peak_bandwidth": "1T", flag: words}
    flags = [f"--{name.replace('_', '-')}={text}" for name, text in peaks.items()]
    device = only(plan(*SEVEN_B, *flags))
    planned = device["bytes_per_s" if flag == "peak_bandwidth" else "flops_per_s"]
    assert planned == served == pytest.approx(94e9)


@pytest.mark.parametrize("words", ["94", "999999", "0", "-94e9", "inf", "nan", "94Gb/s", "94GB/h"])
def test_plan_and_serve_refuse_a_bandwidth_alike(words: str) -> None:
    """A bare 94 is bytes a second, and never what was meant; a b is a bit."""
    with pytest.raises(SettingsError) as served:
        resolve({"peak_bandwidth": words}, {}, {}, "")
    with pytest.raises(SettingsError, match=f"^{re.escape(str(served.value))}$"):
        asked(*SEVEN_B, f"--peak-bandwidth={words}")
    assert str(served.value).startswith(f"--peak-bandwidth: {words!r} ")
    assert str(served.value).endswith("like 94GB/s or 94e9")


@pytest.mark.parametrize("limit", ["20", "0ms", "fast", "", "-5ms", "1.2.3s", "9" * 400 + "s"])
def test_plan_serve_and_loadgen_refuse_a_goal_alike(limit: str) -> None:
    """A bare 20 is seconds to one reader and milliseconds to another."""
    with pytest.raises(SettingsError) as served:
        telemetry_of(TelemetrySettings(slo=f"itl={limit}"))
    told = re.escape(str(served.value))
    assert str(served.value).startswith(f"--slo: itl: {limit!r} is not a time ")
    with pytest.raises(SettingsError, match=f"^{told}$"):
        asked(*SEVEN_B, "--device", "h100", "--slo", f"itl={limit}")
    with pytest.raises(SettingsError, match=f"^{told}$"):
        parser_of("run").parse_args(["--slo", f"itl={limit}"])


@pytest.mark.parametrize(
    ("words", "number"),
    [("7B", 7_000_000_000), ("7b", 7_000_000_000), ("1.1B", 1_100_000_000), ("135M", 135_000_000),
     ("134.515008m", 134_515_008), ("1T", 10**12), ("7e9", 7_000_000_000), ("12", 12)],
)  # fmt: skip
def test_parameters_are_counted_as_models_are_named(words: str, number: int) -> None:
    assert parameters(words) == number
