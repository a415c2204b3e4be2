"""Turns any source into a folder in the user's cache: config, tokenizer, weights as we store them.

A folder that is there is checked file by file before it is used. Nothing here computes a step.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from msgspec import json as typed_json

from core.cache import MANIFEST_FILE, models_dir
from core.errors import ModelError
from core.formats import CheckpointBytes, MatrixFormat, Storage
from core.inputs.quantities import scaled
from core.model import ModelConfig, TensorRole, TensorSpec
from core.settings import ModelSettings
from costmodel.storage import weight_bytes
from engine.checkpoint.locate import locate
from engine.checkpoint.source import TOKENIZER_FILE, Checkpoint, Source
from engine.prepare.checkpoint_bytes import checkpoint_bytes
from engine.prepare.shards import WriteProgress, shards, write_shard
from engine.tokenizer.vocabulary import fit_to_vocabulary

CONFIG_FILE: Final = "config.json"
STORAGE_FILE: Final = "storage.json"
CHECKPOINT_FILE: Final = "checkpoint.json"
CONVERTER_VERSION: Final = 3  # raise it when the same source would give other files

_READ_ONLY: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A folder whose files were verified, the model it holds, and how its weights are stored."""

    dir: Path
    config: ModelConfig
    storage: Storage
    checkpoint: CheckpointBytes


class Packer(Protocol):
    """How tensors are laid out for whatever computes with them."""

    layout: str

    def storage_of(self, checkpoint: Checkpoint) -> Storage:
        """Say how the matrices will be stored, before any is."""

    def runs(
        self, spec: TensorSpec, checkpoint: Checkpoint, kind: MatrixFormat
    ) -> Iterator[np.ndarray]:
        """Bring one matrix into the form it is stored in, a run of rows at a time.

        Raises:
            ModelError: it is not what the config says, or the format cannot hold its range.
        """


def say(message: str) -> None:
    with suppress(OSError):  # a full disk behind standard error ends no start
        print(f"floorline: {message}", file=sys.stderr, flush=True)


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def prepare(
    model: ModelSettings,
    packer: Packer,
    progress: Callable[[str], None] = say,
    room: Callable[[Path], int] = free_bytes,
) -> PreparedModel:
    """Give the folder of a model; convert it first if the folder is missing, damaged or stale.

    Mutates: the cache. One process at a time works on a folder; it appears in one rename.
    Cost: a pass of SHA-256 over all files at each start. To convert takes a few runs of rows in
        memory, whatever the size of a matrix.
    Raises:
        ModelError: the source cannot be read, is not supported or does not fit the format, its
            tokenizer gives ids that the model does not have, or the disk has not enough room.
    """
    source = locate(model.model, model.seed)
    folder = models_dir() / _folder_name(source, packer.layout)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_suffix(".lock")):
            if not is_whole(folder, source.fingerprint):
                _rebuild(folder, source, packer, progress, room)
            found, tokenizer = _read(folder), (folder / TOKENIZER_FILE).read_text("utf-8")
            config = fit_to_vocabulary(found.config, tokenizer, source.identity, progress)
            return replace(found, config=config)
    except OSError as error:  # disk full, not writable, or the source vanished
        raise ModelError(f"{source.name} could not be prepared in {folder}: {error}") from error


def is_whole(folder: Path, fingerprint: str) -> bool:
    """Whether the files are those that were written, from a source that has not changed since."""
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text("utf-8"))
        return bool(manifest == _manifest(folder, fingerprint))
    except (OSError, ValueError):  # absent or broken: rebuild it
        return False


def _manifest(folder: Path, fingerprint: str) -> dict[str, object]:
    files = [path for path in sorted(folder.iterdir()) if path.name != MANIFEST_FILE]
    return {"fingerprint": fingerprint, "files": {path.name: sha256(path) for path in files}}


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(folder: Path) -> PreparedModel:
    return PreparedModel(
        folder,
        typed_json.decode((folder / CONFIG_FILE).read_bytes(), type=ModelConfig),
        typed_json.decode((folder / STORAGE_FILE).read_bytes(), type=Storage),
        typed_json.decode((folder / CHECKPOINT_FILE).read_bytes(), type=CheckpointBytes),
    )


def _folder_name(source: Source, layout: str) -> str:
    key = f"{source.identity}\n{layout}\n{CONVERTER_VERSION}"
    readable = re.sub(r"[^\w-]+", "-", source.name)
    return f"{readable}-{layout}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes; the system drops it when its holder dies.

    Where nobody may write and the folder is there, nobody changes it: no lock is needed to read.
    """
    try:
        file = path.open("w")
    except OSError as error:
        if error.errno not in _READ_ONLY or not path.with_suffix("").is_dir():
            raise
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _rebuild(
    folder: Path,
    source: Source,
    packer: Packer,
    progress: Callable[[str], None],
    room: Callable[[Path], int],
) -> None:
    """Convert into a folder beside it, then rename; first remove what a dead process left."""
    progress(f"preparing {source.name} as {packer.layout} in {folder}")
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        checkpoint = source.open()
        storage = packer.storage_of(checkpoint)
        size = sum(weight_bytes(checkpoint.config, storage).values())
        if (free := room(partial)) < size:
            raise ModelError(
                f"{source.name} takes {scaled(size)}B as {packer.layout}, and {folder.parent} has "
                f"{scaled(free)}B free: make room, or set FLOORLINE_CACHE to a folder elsewhere"
            )
        _convert(checkpoint, packer, storage, partial, WriteProgress(size, progress))
        manifest = _manifest(partial, source.fingerprint)
        (partial / MANIFEST_FILE).write_text(json.dumps(manifest, indent=1), "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _convert(
    checkpoint: Checkpoint, packer: Packer, storage: Storage, folder: Path, progress: WriteProgress
) -> None:
    def runs(spec: TensorSpec) -> Iterator[np.ndarray]:
        if spec.role is TensorRole.VECTOR:
            return iter([checkpoint.checked(spec).float().numpy()])
        return packer.runs(spec, checkpoint, storage.format_of(spec.name))

    _write(folder / CONFIG_FILE, checkpoint.config)
    for name, text in checkpoint.files.items():
        (folder / name).write_text(text, "utf-8")
    for number, shard in enumerate(shards(checkpoint.config.tensors(), storage)):
        path = folder / f"weights-{number:05}.safetensors"
        write_shard(path, shard, storage, runs, progress.wrote)
    _write(folder / STORAGE_FILE, storage)
    _write(folder / CHECKPOINT_FILE, checkpoint_bytes(checkpoint, storage))


def _write(path: Path, value: ModelConfig | Storage | CheckpointBytes) -> None:
    path.write_bytes(typed_json.format(typed_json.encode(value), indent=1))
