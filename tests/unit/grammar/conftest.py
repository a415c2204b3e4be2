"""A byte-level model dir, for what reads a tokenizer and runs no model."""

from __future__ import annotations

import pytest

from grammar.compile import GrammarCompiler
from tests.fakes_engine import MODEL, write_model_dir


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> GrammarCompiler:
    return GrammarCompiler.load(write_model_dir(tmp_path_factory.mktemp("bytes")), MODEL)
