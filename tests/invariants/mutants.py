"""The test of the tests: break the pool or the scheduler on purpose, and see a test notice.

Each mutant is one textual change, applied to a copy of the tree; the unit tests and the short form
of the invariants run on it and have to fail. `python tests/invariants/mutants.py [word]` prints one
line each (those whose description holds the word) and exits with 1 when a mutant survives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutations import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
COPIED = (
    "core",
    "kvcache",
    "costmodel",
    "scheduler",
    "engine/step/runner.py",
    "tests",
    "pyproject.toml",
)
SUITE = ("tests/unit/kvcache", "tests/unit/scheduler", "tests/invariants")
# An editable installation would lead the imports of a copy back to this tree.
ALONE = """import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]
import pytest
sys.exit(pytest.main(sys.argv[1:]))"""


def applied(mutant: Mutant, tree: Path) -> None:
    path = tree / mutant.file
    source = path.read_text()
    assert source.count(mutant.old) == 1, f"{mutant.bug}: not exactly one place in {mutant.file}"
    path.write_text(source.replace(mutant.old, mutant.new))


def copy_tree(tree: Path) -> None:
    for name in COPIED:
        source, target = ROOT / name, tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def first_failure(tree: Path) -> str | None:
    """Run the suite in `tree`; name the test that failed, or None when all passed."""
    options = ("-x", "-q", "-p", "no:cacheprovider", "--timeout=120")  # a mutant may hang
    command = [sys.executable, "-c", ALONE, *options, *SUITE]
    environment = {**os.environ, "FLOORLINE_INVARIANTS": "quick", "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if run.returncode == 0:
        return None
    failures = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    assert failures, f"the suite did not run:\n{run.stdout}{run.stderr}"
    return failures[0].partition(" - ")[0].partition(" ")[2]


def killer_of(mutant: Mutant | None) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_tree(tree)
        if mutant is not None:
            applied(mutant, tree)
        return first_failure(tree)


def main(word: str = "") -> int:
    broken = killer_of(None)
    assert broken is None, f"the suite fails without any mutant: {broken}"
    survivors = 0
    for mutant in (each for each in MUTANTS if word in each.bug):
        start_s = time.monotonic()
        killer = killer_of(mutant)
        survivors += killer is None
        verdict = f"killed by {killer}" if killer else "SURVIVED"
        print(f"{time.monotonic() - start_s:5.1f} s  {mutant.bug}: {verdict}", flush=True)
    print(f"{survivors} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
