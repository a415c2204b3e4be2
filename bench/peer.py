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


@dataclass(frozen=True, slots=True)
class BenchProgram:
    """The `llama-bench` of a fork of llama.cpp: it times one sequence, on the wall's clock."""

    program: Path
    threads: int
    options: Sequence[str] = ()  # of that fork

    def time(self, model: Path, prompt: int, gen: int) -> tuple[float, float]:
        """Time one prompt, and steps of an empty context. Units: seconds of the prompt, of a step.

        Raises:
            SettingsError: nothing was timed; its last line says why.
        """
        command = [str(self.program), "-m", str(model), "-t", str(self.threads), "-o", "json"]
        command += ["-p", str(prompt), "-n", str(gen), "-r", "2", *self.options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            prefill, decode = json.loads(done.stdout)
        except ValueError:
            told = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
            raise SettingsError(f"{self.program}: {told[-1]}") from None
        return prefill["avg_ns"] / 1e9, decode["avg_ns"] / 1e9 / gen
