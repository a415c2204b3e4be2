"""Files of weights written a run at a time, and what is said meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from core.formats import MatrixFormat, Storage
from core.model import TensorRole, TensorSpec
from engine.prepare import shards
from engine.prepare.shards import WriteProgress, write_shard
from tests.fakes import FakeClock

MATRIX = TensorSpec("m", rows=5, columns=3, role=TensorRole.MATRIX)
NORM = TensorSpec("n", rows=1, columns=3, role=TensorRole.VECTOR)


def test_a_file_written_in_runs_is_read_back_whole(tmp_path: Path) -> None:
    values = np.arange(15, dtype=np.float16).reshape(5, 3)
    sizes: list[int] = []

    def runs(spec: TensorSpec) -> Iterator[np.ndarray]:
        yield from [values[:2], values[2:]] if spec is MATRIX else [np.ones(3, np.float32)]

    path = tmp_path / "w.safetensors"
    write_shard(path, [MATRIX, NORM], Storage(MatrixFormat.FP16), runs, sizes.append)
    found = load_file(path)
    np.testing.assert_array_equal(found["m"], values)
    np.testing.assert_array_equal(found["n"], np.ones(3, np.float32))
    assert sorted(sizes) == [12, 12, 18]


def test_tensors_are_grouped_in_files_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", 60)
    storage = Storage(MatrixFormat.FP16)  # 30 bytes the matrix, 12 the norm
    groups = list(shards.shards([MATRIX, NORM, MATRIX, MATRIX], storage))
    assert groups == [[MATRIX, NORM, MATRIX], [MATRIX]]


def test_progress_says_bytes_rate_and_time_left_at_most_every_five_seconds() -> None:
    said: list[str] = []
    clock = FakeClock()
    progress = WriteProgress(1_000_000_000, said.append, lambda: clock() / 1e9)
    for _ in range(5):
        clock.advance(2)
        progress.wrote(200_000_000)
    assert said == [
        "prepared 600 MB of 1 GB (60%), 100 MB/s, 4 s left",
        "prepared 1 GB of 1 GB (100%), 100 MB/s",
    ]
