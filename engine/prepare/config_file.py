"""What a prepared folder says of its model, as JSON and back: config, storage, checkpoint."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from core.formats import CheckpointBytes, Expansion, MatrixFormat, Storage
from core.model import Activation, ModelConfig, RopeConfig, RopeScaling

CONFIG_FILE: Final = "config.json"
STORAGE_FILE: Final = "storage.json"
CHECKPOINT_FILE: Final = "checkpoint.json"


def config_to_json(config: ModelConfig) -> str:
    return json.dumps(asdict(config), indent=1)


def config_from_json(text: str) -> ModelConfig:
    """Invariant: gives back what `config_to_json` was given."""
    raw = json.loads(text)
    rope = raw.pop("rope")
    rope["scaling"] = RopeScaling(rope["scaling"])
    raw["activation"] = Activation(raw["activation"])
    raw["sliding_window"] = tuple(raw["sliding_window"])
    raw["eos_token_ids"] = tuple(raw["eos_token_ids"])
    return ModelConfig(rope=RopeConfig(**rope), **raw)


def storage_to_json(storage: Storage) -> str:
    return json.dumps(asdict(storage), indent=1)


def storage_from_json(text: str) -> Storage:
    """Invariant: gives back what `storage_to_json` was given."""
    raw = json.loads(text)
    exceptions = tuple((name, MatrixFormat(kind)) for name, kind in raw["exceptions"])
    return Storage(MatrixFormat(raw["matrices"]), raw["panels"], exceptions)


def checkpoint_bytes_to_json(checkpoint: CheckpointBytes) -> str:
    return json.dumps(asdict(checkpoint), indent=1)


def checkpoint_bytes_from_json(text: str) -> CheckpointBytes:
    """Invariant: gives back what `checkpoint_bytes_to_json` was given."""
    raw = json.loads(text)
    expansions = (one | {"held": MatrixFormat(one["held"])} for one in raw["expansions"])
    return CheckpointBytes(raw["step_bytes"], tuple(Expansion(**one) for one in expansions))
