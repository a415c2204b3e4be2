"""`floorline serve` with a number that it cannot use: a line that names the flag, and status 2."""

from __future__ import annotations

import pytest

from server.cli.main import main
from telemetry.objectives import parse_buckets

REFUSED = [
    ("--price-per-hour", "-0.01"),
    ("--price-per-hour", "nan"),
    ("--price-per-hour", "free"),
    ("--slo", "ttft=fast"),
    ("--slo", "tpot=5ms"),
    ("--slo", "ttft=0ms"),
    ("--slo", "ttft=1s,ttft=2s"),
    ("--metric-aliases", "sglang"),
    ("--metric-buckets", "tokens_total=1,2"),
    ("--metric-buckets", "step_batch_requests=2,1"),
    ("--metric-buckets", "step_batch_requests="),
]
PEAKS = [
    (flag, value)
    for flag in ("--peak-bandwidth", "--peak-flops")
    for value in ("0", "-1e9", "nan", "inf", "fast")
]


@pytest.mark.parametrize(("flag", "value"), [*REFUSED, *PEAKS])
def test_what_cannot_be_used_is_refused_before_anything_starts(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["serve", "--port", "0", f"{flag}={value}"])
    out, err = capsys.readouterr()
    assert status == 2
    assert out == ""
    assert err.startswith(f"floorline: error: {flag}: ")
    assert err.count("\n") == 1


def test_a_histogram_that_is_none_is_refused_with_an_example_that_is_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", "--port", "0", "--metric-buckets", "foo"]) == 2
    _, example = capsys.readouterr().err.strip().split("write it like ")
    assert parse_buckets(example) == {"step_duration_seconds": (0.01, 0.1, 1.0)}


def test_a_value_that_argparse_takes_for_a_flag_is_told_how_to_write(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--device", "h100", "--params", "-7e9"])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("floorline plan: error: argument --params: ")
    assert err.endswith("(as FLAG=VALUE where it begins with -)\n")


@pytest.mark.parametrize(
    ("words", "flag"),
    [(("plan", "--html="), "--html"), (("plan", ""), "model"), (("lab", "--out="), "--out")],
)
def test_an_empty_file_name_is_told_by_its_flag(
    words: tuple[str, ...], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == 2
    assert capsys.readouterr().err == (
        f"floorline: error: {flag}: the file name is empty (an unset shell variable?)\n"
    )
