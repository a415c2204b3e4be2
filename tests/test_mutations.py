"""Each mutant is one change of code that is there; whether a test kills it, `make mutants` says.

Not below tests/invariants: there it would itself kill each mutant.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.invariants.mutants import mutated, touched
from tests.invariants.mutations import MUTANTS, Mutant

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.bug)
def test_a_mutant_is_one_change_of_today_s_code(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text()
    changed = mutated(mutant, source)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


def test_no_two_mutants_are_the_same() -> None:
    assert len({mutant.bug for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


def test_the_mutants_of_a_change_are_those_of_its_files() -> None:
    files = {"scheduler/pace.py", "scheduler/record.py", "README.md"}
    assert {mutant.file for mutant in touched(files)} == files - {"README.md"}
    assert touched({"README.md"}) == []
