"""Which model a plan is about: one given by hand, or what a name, a file or a directory says."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from core.anatomy.families import SERVED
from core.anatomy.fields import Fields, read_fields
from core.anatomy.parts import Anatomy, anatomy_of
from core.anatomy.read import family_of, read_anatomy, text_part
from core.cache import PRESETS
from core.errors import FloorlineError, ModelError, SettingsError
from core.formats import WeightFormat
from costmodel.planning.published import published_width, served_width
from costmodel.planning.sizes import Width
from lab.ask.describe import describe

CONFIG_FILE: Final = "config.json"
_HUB_ID: Final = re.compile(r"\w[\w.-]*/\w[\w.-]*")


@dataclass(frozen=True, slots=True)
class Described:
    """A model that something describes, and the width of its weights where none is asked for."""

    model: Anatomy
    own: Width  # as it is published, or as `serve` holds it
    usual: Width


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model's description is. `fields` are of its `config.json`, if that is enough."""

    name: str
    fields: Fields | None
    weights: bool  # lie beside it

    def described(self, own_width: bool) -> Described:
        """Describe the model; `own_width` where its weights are asked for as they are.

        Cost: a fraction of a second by a `config.json`; some seconds where the engine's process
            has to read the weights.
        Raises:
            SettingsError: it is no model that can be described; one line.
        """
        try:
            if self.fields is None:
                return _by_engine(self.name)
            served = family_of(text_part(self.fields)) in SERVED
            if served and self.weights and own_width:
                return _by_engine(self.name)
            own = (served_width(self.fields) if served else None) if own_width else None
            anatomy = read_anatomy(self.fields, self.name)
            width = own or (published_width(self.fields) if own_width else Width.parse("bf16"))
            return Described(anatomy, width, width)
        except ModelError as error:
            raise SettingsError(str(error)) from None


def _by_engine(name: str) -> Described:
    found = describe(name)
    own = Width.of(WeightFormat.NATIVE, found.model, found.storage)
    usual = own if found.weights == WeightFormat.NATIVE else Width.parse(found.weights)
    return Described(anatomy_of(found.model), own, usual)


def find_model(name: str) -> Place:
    """Find what describes a model: a preset, a GGUF file, a `config.json`, its directory, a hub id.

    A hub id is looked for in the hub's local cache; nothing is downloaded.
    Raises:
        SettingsError: nothing is there; one line.
    """
    try:
        return _find(name)
    except (FloorlineError, OSError, RuntimeError, ValueError) as error:  # a path that cannot be
        raise SettingsError(f"model {error}") from None


def _find(name: str) -> Place:
    if name in PRESETS:
        return Place(name, None, weights=True)
    path = Path(name).expanduser()
    if path.is_dir():
        return _in_folder(name, path)
    if path.suffix == ".json" or (path.exists() and not path.is_file()):
        return Place(name, read_fields(path), weights=False)
    if path.is_file():
        return Place(name, None, weights=True)
    if _HUB_ID.fullmatch(name):
        if folder := _cached(name):
            return _in_folder(name, folder)
        raise SettingsError(
            f"{name!r}: no such directory or GGUF file, and no hub id in the local cache;"
            " nothing is downloaded"
        )
    if "/" in name:
        raise SettingsError(
            f"{name!r}: no such directory or GGUF file, and nothing is downloaded;"
            " `floorline models` lists the presets"
        )
    raise SettingsError(
        f"{name!r}: no preset ({', '.join(PRESETS)}), directory, config.json, GGUF file or hub id"
    )


def _in_folder(name: str, folder: Path) -> Place:
    config = folder / CONFIG_FILE
    if not config.exists():
        raise SettingsError(f"{name!r}: no {CONFIG_FILE} in this directory")
    return Place(name, read_fields(config), weights=any(folder.glob("*.safetensors")))


def _cached(hub_id: str) -> Path | None:
    """Find the newest snapshot of a hub id, as huggingface_hub lays its cache out."""
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()
    snapshots = cache / f"models--{hub_id.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob(f"*/{CONFIG_FILE}"), key=lambda path: path.stat().st_mtime)
    return found[-1].parent if found else None
