"""No test of the lab starts an engine to ask what a model is."""

from __future__ import annotations

import pytest

from core.formats import WeightFormat
from core.wire import Description
from tests.unit.costmodel.models import TINYGPT
from tests.unit.lab.plans import MIXED


@pytest.fixture(autouse=True)
def described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer for the engine: the tests here start no process."""
    description = Description(
        model=TINYGPT, storage=MIXED, weights=WeightFormat.NATIVE, cache_bytes=32 * 2**20
    )
    monkeypatch.setattr("lab.ask.model.describe", lambda name: description)
