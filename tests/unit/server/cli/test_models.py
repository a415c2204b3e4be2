"""What `floorline models` lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server.cli.models import prepared


def test_a_prepared_model_is_listed_with_its_size(tmp_path: Path) -> None:
    folder = tmp_path / "a-model"
    folder.mkdir()
    (folder / "weights").write_bytes(bytes(2_500_000))
    (folder / "manifest.json").write_text(json.dumps({"files": {"weights": "hash"}}))
    (tmp_path / "half-a-model").mkdir()
    (line,) = prepared(tmp_path)
    assert line.split() == ["a-model", "2.5", "MB"]


@pytest.mark.parametrize("manifest", ["{", "[]", "{}", '{"files": {"weights": "hash"}}'])
def test_a_broken_one_is_listed_as_such(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "a-model").mkdir()
    (tmp_path / "a-model" / "manifest.json").write_text(manifest)
    (line,) = prepared(tmp_path)
    assert line.split() == ["a-model", "broken"]
