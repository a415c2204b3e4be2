"""The lab reads the steps of a server as typed records."""

from __future__ import annotations

import json

import pytest

from lab.measure.server import Server, ServerSlice

STEP = {
    "index": 7, "kind": "decode", "start_ns": 5, "duration_ms": 2, "floor_ms": None,
    "regime": "memory", "bytes": 4096, "useful_floor_ms": 0.5, "lost_ms": {"host": 1.5},
    "segments_ms": {"forward": 1.25},
    "slices": [{"id": 3, "start": 8, "length": 1, "rows": 1}],
}  # fmt: skip


def told(monkeypatch: pytest.MonkeyPatch, *steps: dict[str, object]) -> Server:
    monkeypatch.setattr(Server, "text", lambda self, path: json.dumps({"steps": steps}))
    return Server("http://nowhere")


def test_a_step_is_read_with_its_slices_and_its_account(monkeypatch: pytest.MonkeyPatch) -> None:
    (step,) = told(monkeypatch, STEP).steps(1)
    assert (step.index, step.duration_ms, step.slices) == (7, 2.0, [ServerSlice(start=8, length=1)])
    assert step.account().floor_s == 0.0005
    assert step.account().lost_s == {"host": 0.0015}


def test_a_step_of_another_shape_is_refused_at_the_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="duration_ms"):
        told(monkeypatch, STEP | {"duration_ms": "long"}).steps(1)
