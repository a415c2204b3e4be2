"""What a model is, asked of the engine in a process of its own, so that no torch is loaded here."""

from __future__ import annotations

import subprocess
from pathlib import Path

from core.children import python_child
from core.errors import SettingsError
from core.wire import Description, description_from_json


def describe(model: str) -> Description:
    """Describe a preset, a directory or a GGUF file; nothing is downloaded.

    Cost: a few seconds, in which the engine's process imports torch.
    Raises:
        SettingsError: nothing there, or nothing that we read; one line.
    """
    if "/" in model and not Path(model).expanduser().exists():
        raise SettingsError(
            f"model {model!r}: no such directory or GGUF file, and nothing is downloaded;"
            " `floorline models` lists the presets"
        )
    child = python_child("engine", "--describe", model)
    done = subprocess.run(child.command, env=child.environment, capture_output=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no reason told"])[-1]
        reason = last.removeprefix("floorline: error: ")
        raise SettingsError(reason.removeprefix("--"))  # here the model is an argument, not a flag
    return description_from_json(done.stdout)
