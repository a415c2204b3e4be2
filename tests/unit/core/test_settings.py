"""The defaults, as what they are in bytes."""

from __future__ import annotations

from core.inputs.quantities import parse_bytes
from core.settings import HttpSettings, KVSettings


def test_the_default_sizes_are_powers_of_two() -> None:
    assert parse_bytes(KVSettings().kv_memory, "--kv-memory") == 2**29
    assert parse_bytes(HttpSettings().max_body, "--max-body") == 2**23
    assert parse_bytes(HttpSettings().max_text, "--max-text") == 2**20
