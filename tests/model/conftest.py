"""The two presets beside their oracles, once a session."""

from __future__ import annotations

import pytest
import torch

from tests.model.oracle import Oracle

torch.set_num_threads(
    1
)  # small steps: a second thread costs more than it gives when cores are shared


@pytest.fixture(scope="session")
def tinygpt() -> Oracle:
    return Oracle.of("tinygpt")


@pytest.fixture(scope="session")
def smollm2() -> Oracle:
    return Oracle.of("smollm2-135m")
