"""The test of the tests: break the pool or the scheduler on purpose, and see a test notice.

Each mutant is one textual change, applied to a copy of the tree; the unit tests and the short form
of the invariants run on it and have to fail. Prints a line each; exits with 1 when one survives.

    python -m tests.invariants.mutants [WORD] [--changed BASE] [--within SECONDS]

WORD: only those whose description holds it. --changed: only those of files that differ from the
commit BASE. --within: none is begun after so long, and how many were left out is told.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from tests.invariants.mutations import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
COPIED = (
    "core",
    "kvcache",
    "costmodel",
    "scheduler",
    "tests",
    "pyproject.toml",
)
SUITE = ("tests/unit/kvcache", "tests/unit/scheduler", "tests/invariants")
# An editable installation would lead the imports of a copy back to this tree.
ALONE = """import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]
import pytest
sys.exit(pytest.main(sys.argv[1:]))"""


def mutated(mutant: Mutant, source: str) -> str:
    assert source.count(mutant.old) == 1, f"{mutant.bug}: not exactly one place in {mutant.file}"
    return source.replace(mutant.old, mutant.new)


def touched(files: Collection[str]) -> list[Mutant]:
    return [mutant for mutant in MUTANTS if mutant.file in files]


def changed_since(base: str) -> set[str]:
    """Name the files whose text is not what it was in the commit `base`."""
    command = ["git", "-C", str(ROOT), "diff", "--name-only", "--relative", base, "--"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


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
            path = tree / mutant.file
            path.write_text(mutated(mutant, path.read_text()))
        return first_failure(tree)


def judged(mutant: Mutant) -> bool:
    """Run the suite on one mutant, and say what came of it; True where it was killed."""
    start_s = time.monotonic()
    killer = killer_of(mutant)
    verdict = f"killed by {killer}" if killer else "SURVIVED"
    print(f"{time.monotonic() - start_s:5.1f} s  {mutant.bug}: {verdict}", flush=True)
    return killer is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument("--changed", metavar="BASE")
    parser.add_argument("--within", type=float, metavar="SECONDS", default=float("inf"))
    given = parser.parse_args()
    chosen = touched(changed_since(given.changed)) if given.changed else list(MUTANTS)
    chosen = [mutant for mutant in chosen if given.word in mutant.bug]
    if not chosen:
        print("no mutant to run")
        return 0
    end_s = time.monotonic() + given.within
    broken = killer_of(None)
    assert broken is None, f"the suite fails without any mutant: {broken}"
    killed: list[bool] = []
    for mutant in chosen:
        if time.monotonic() > end_s:
            break
        killed.append(judged(mutant))
    survivors, left_out = killed.count(False), len(chosen) - len(killed)
    print(f"{survivors} survived" + (f"; {left_out} were not run in time" if left_out else ""))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
