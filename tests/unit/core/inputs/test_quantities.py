"""Quantities as people write them."""

from __future__ import annotations

import pytest

from core.errors import SettingsError
from core.inputs.quantities import BANDWIDTH, FLOPS, MEMORY, Notation, parse_bytes, scaled, time_s


@pytest.mark.parametrize(
    ("notation", "text", "amount"),
    [
        (BANDWIDTH, "94e9", 94e9),
        (BANDWIDTH, "94GB/s", 94e9),
        (BANDWIDTH, " 3.35 TB/s ", 3.35e12),
        (BANDWIDTH, "94GB", 94e9),
        (BANDWIDTH, "1MB/s", 1e6),
        (FLOPS, "989TFLOP/s", 989e12),
        (FLOPS, "2.5T", 2.5e12),
        (FLOPS, "1PFLOPS", 1e15),
        (MEMORY, "24GB", 24e9),
        (MEMORY, "24GiB", 24 * 2**30),
        (MEMORY, "80000MB", 80e9),
    ],
)
def test_a_prefix_is_a_power_of_ten_unless_it_says_i(
    notation: Notation, text: str, amount: float
) -> None:
    assert notation.read(text, "--x") == pytest.approx(amount, rel=1e-15)


@pytest.mark.parametrize(
    "text",
    ["", "GB/s", "94gb/s", "94Gb/s", "94GB/h", "1.2.3G", "24i", "-1G", "inf", "nan", "1e999"],
)
def test_what_is_written_otherwise_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^--x: .* is not written like 94GB/s or 94e9$"):
        BANDWIDTH.read(text, "--x")


def test_what_is_too_small_to_be_meant_is_refused_with_the_limit() -> None:
    with pytest.raises(SettingsError, match=r"^--x: '94' is below 1 MB/s: .* 94GB/s or 94e9$"):
        BANDWIDTH.read("94", "--x")
    with pytest.raises(SettingsError, match=r"^--x: '24' is below 1 MB: .* 24GB, 24GiB or 24e9$"):
        MEMORY.read("24", "--x")


@pytest.mark.parametrize(
    ("value", "text"),
    [(94.2e9, "94.2 G"), (1.1e12, "1.1 T"), (33_554_432, "33.6 M"), (1000, "1 k"), (12, "12 ")],
)
def test_an_amount_is_shown_with_three_digits_and_a_prefix(value: float, text: str) -> None:
    assert scaled(value) == text


def test_a_time_is_read_with_its_unit_and_a_bare_one_is_seconds() -> None:
    written = {"20us": 2e-5, "500ms": 0.5, "1.5 s": 1.5, "2m": 120.0, "1h": 3600.0, "3": 3.0}
    assert {text: time_s(text) for text in written} == pytest.approx(written)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MB", 512 * 10**6),
        ("512MiB", 512 * 2**20),
        ("512M", 512 * 10**6),
        ("512Mi", 512 * 2**20),
        ("2 gb", 2 * 10**9),
        ("2 gib", 2**31),
        ("1TB", 10**12),
        ("1TiB", 2**40),
        ("1.5k", 1500),
        ("1.5Ki", 1536),
        ("100", 100),
        ("100b", 100),
        ("1e3MB", 10**9),
        ("1_000", 1000),
        ("+5.kb", 5000),
    ],
)
def test_a_size_is_read_in_powers_of_ten_unless_it_says_i(text: str, size: int) -> None:
    assert parse_bytes(text, "--kv-memory") == size


@pytest.mark.parametrize("text", ["1GB", "1GiB", "24gb", "24 Gi", "80000M", "2e9"])
def test_serve_and_plan_read_a_size_alike(text: str) -> None:
    assert MEMORY.read(text, "--memory") == parse_bytes(text, "--kv-memory")


@pytest.mark.parametrize(
    "text", ["", "MB", "0", "-1MB", "1e999", "nan", "inf", "5iB", "five MB", "3 parsecs"]
)
def test_what_is_no_size_is_refused_by_the_settings_name(text: str) -> None:
    with pytest.raises(SettingsError, match="--kv-memory"):
        parse_bytes(text, "--kv-memory")
