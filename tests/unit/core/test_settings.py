"""Sizes, as people write them."""

from __future__ import annotations

import pytest

from core.errors import SettingsError
from core.settings import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MB", 512 * 2**20),
        ("512MiB", 512 * 2**20),
        ("2 gb", 2**31),
        ("1TB", 2**40),
        ("1.5k", 1536),
        ("100", 100),
    ],
)
def test_a_size_is_read_in_powers_of_1024(text: str, size: int) -> None:
    assert parse_bytes(text, "--kv-memory") == size


@pytest.mark.parametrize("text", ["", "MB", "0", "-1MB", "1e999", "nan", "five MB", "3 parsecs"])
def test_what_is_no_size_is_refused_by_the_settings_name(text: str) -> None:
    with pytest.raises(SettingsError, match="--kv-memory"):
        parse_bytes(text, "--kv-memory")
