"""Counts what a step needs of a checkpoint in the checkpoint's own bytes. Nothing is read here."""

from __future__ import annotations

from core.formats import CheckpointBytes, Expansion, MatrixFormat, Storage
from core.model import TensorRole, TensorSpec
from costmodel.storage import stored_bytes, tensor_bytes
from engine.checkpoint.source import Checkpoint


def checkpoint_bytes(checkpoint: Checkpoint, storage: Storage) -> CheckpointBytes:
    """Sum the checkpoint's tensors, and by type those matrices that `storage` holds in more bytes.

    An embedding that is only looked up is left out: a step reads few of its rows. Padding to whole
    panels is counted in what is held, but does not by itself make an expansion.
    """
    total = 0
    by_type: dict[tuple[str, MatrixFormat], list[TensorSpec]] = {}
    for spec in checkpoint.config.tensors():
        if spec.role is TensorRole.EMBEDDING:
            continue
        total += checkpoint.bytes_of(spec)
        if spec.role is not TensorRole.VECTOR:
            key = checkpoint.kind(spec.name), storage.format_of(spec.name)
            by_type.setdefault(key, []).append(spec)
    expansions = []
    for (kind, held), specs in by_type.items():
        file_bytes = sum(map(checkpoint.bytes_of, specs))
        if sum(stored_bytes(spec.rows, spec.columns, held) for spec in specs) > file_bytes:
            held_bytes = sum(tensor_bytes(spec, storage) for spec in specs)
            expansions.append(Expansion(kind, held, file_bytes, held_bytes))
    return CheckpointBytes(total, tuple(expansions))
