"""Grammars and what a model can do with them."""

from __future__ import annotations

import pytest

from core.errors import UnsupportedParameter
from server.contract.grammars import refuse_without_end


def test_a_model_that_names_no_end_of_sequence_takes_no_grammar() -> None:
    refuse_without_end((2,), "response_format")
    with pytest.raises(UnsupportedParameter, match="no end-of-sequence token") as refused:
        refuse_without_end((), "response_format")
    assert refused.value.param == "response_format"
