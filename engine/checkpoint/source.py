"""What a checkpoint is to the engine, whatever it was stored as. Nothing is read here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from core.model import ModelConfig

TOKENIZER_FILE: Final = "tokenizer.json"
TOKENIZER_CONFIG_FILE: Final = "tokenizer_config.json"
TEMPLATE_FILE: Final = "chat_template.jinja"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened source.

    `read` gives the tensor of a `TensorSpec` by its name, in the type it is stored in (blocks of
    quantised numbers come as fp32); a vector is one-dimensional. `files` are texts by file name.
    """

    config: ModelConfig
    read: Callable[[str], torch.Tensor]
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """A place that holds a checkpoint.

    `identity` names the place, `fingerprint` what lies there now: when it changes, a converted
    copy is stale.
    """

    name: str
    identity: str
    fingerprint: str
    open: Callable[[], Checkpoint]


def fingerprint(files: list[Path]) -> str:
    """Describe files by name, size and time of change. Cost: one stat a file."""
    stats = [(path.name, path.stat()) for path in sorted(files)]
    return " ".join(f"{name}:{stat.st_size}:{stat.st_mtime_ns}" for name, stat in stats)
