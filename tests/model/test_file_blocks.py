"""A GGUF file in its own blocks gives the logits of the same file dequantised."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFReader

from core.errors import ModelError
from core.formats import MatrixFormat, WeightFormat
from core.settings import ModelSettings
from core.step import StepPlan
from engine.forward.batch import build_batch
from engine.forward.weights import load_weights
from engine.prepare.packing import PanelPacker
from engine.prepare.prepare import prepare
from tests.model.gguf_writing import write_gguf
from tests.model.preparing import prepare_rows
from tests.model.running import BLOCK_SIZE, Model, NativeModelUnderTest, sliced

PROMPT = tuple(range(1, 60))  # more rows than are multiplied without expanding a panel
MIXES = [
    *(("Q4_K", "Q6_K"), ("Q5_K", "Q6_K"), ("Q6_K", "Q8_0"), ("Q4_0", "Q6_K"), ("Q5_0", "Q5_1")),
    *(("Q5_1", "Q4_1"), ("IQ4_NL", "Q6_K"), ("IQ4_XS", "Q5_K"), ("MXFP4", "Q8_0")),
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOORLINE_CACHE", str(tmp_path / "cache"))


def plan(start: int, length: int) -> StepPlan:
    return StepPlan((sliced(PROMPT, 0, start, length),))


@pytest.mark.parametrize(("matrices", "head"), MIXES)
def test_a_file_s_logits_are_those_of_its_dequantised_weights(
    matrices: str, head: str, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "m.gguf", matrices, head)
    rows = prepare_rows(ModelSettings(model=str(path)))
    plain = Model.of(rows.config, load_weights(rows.dir, rows.config))
    native = NativeModelUnderTest.of(
        str(path), weights=WeightFormat.NATIVE, activations="fp32"
    ).network(8)
    store = plain.kv(8)
    for start, length in ((0, len(PROMPT) - 2), (len(PROMPT) - 2, 1), (len(PROMPT) - 1, 1)):
        expected = plain.logits(plan(start, length), store)
        batch = native.prepare(build_batch(plan(start, length), BLOCK_SIZE))
        ours = native.forward(batch).logits
        assert (ours - expected).abs().max() < 2e-3 * expected.abs().max()


def test_what_has_no_kernel_is_held_in_eight_bits(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "Q2_K", "Q6_K")
    prepared = NativeModelUnderTest.of(str(path), weights=WeightFormat.NATIVE).prepared
    assert prepared.storage.matrices is MatrixFormat.INT8_G32
    assert prepared.storage.format_of("lm_head") is MatrixFormat.Q6_K


def test_a_scale_that_is_no_number_is_refused_by_tensor(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "Q4_K", "Q6_K")
    (tensor,) = (t for t in GGUFReader(path).tensors if t.name == "blk.1.ffn_up.weight")
    with path.open("r+b") as file:
        file.seek(tensor.data_offset + 5 * 144)
        file.write(b"\x00\x7c")  # the sixth block's factor: infinity
    with pytest.raises(ModelError, match=r"layers\.1\.up_proj: holds NaN or infinity"):
        prepare(ModelSettings(model=str(path)), PanelPacker(WeightFormat.NATIVE), lambda _: None)
