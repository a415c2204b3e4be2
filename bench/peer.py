"""llama.cpp's side of a comparison, timed in a Python of its own by `bench.llamacpp_bench`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import SettingsError

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Peer:
    python: Path
    threads: int
    clock: str = "wall"

    def time(self, model: Path, prompt: int, gen: int, batches: Sequence[int]) -> list[Any]:
        """Time prompts of one length, and steps after them; an entry a batch.

        Raises:
            SettingsError: nothing was timed; the last line of that Python says why.
        """
        command = [str(self.python), "-m", "bench.llamacpp_bench", str(model)]
        command += ["--threads", str(self.threads), "--clock", self.clock]
        command += ["--prompt", str(prompt), "--gen", str(gen)]
        command += ["--parallel", ",".join(map(str, batches))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode or not done.stdout:
            told = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
            raise SettingsError(f"--peer-python {self.python}: {told[-1]}")
        return list(map(json.loads, done.stdout.splitlines()))
