"""What a start says of a file that is held in more bytes than it has, and serves in spite of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.inputs.quantities import scaled
from tests.contract.test_process import Process
from tests.model.gguf_writing import write_gguf
from tests.model.test_larger_copy import step_bytes

pytestmark = pytest.mark.slow


def test_each_start_says_both_sizes_on_its_page_and_in_its_log(
    tmp_path: Path,
) -> None:
    path = write_gguf(tmp_path / "m.gguf", "Q2_K", "Q6_K")
    size = f"{scaled(step_bytes(path))}B of it"
    for start in ("converts", "reads the cache"):
        process = Process("--model", str(path))
        body = {"prompt": "a", "max_tokens": 2, "temperature": 0}
        assert process.client.post("/v1/completions", json=body).status_code == 200
        metrics = process.client.get("/metrics").text
        process.client.close()
        process.popen.terminate()
        status, _, err = process.end()
        assert status == 0
        assert ("preparing" in err) == (start == "converts")
        assert len(re.findall(rf"^  WARNING .*{size}", err, re.MULTILINE)) == 1
        (logged,) = re.findall(rf"^\S+ \S+ WARNING .*{size}.*$", err, re.MULTILINE)
        assert "Q2_K held as int8_g32" in logged
        assert "what helps" in logged
        gauge = re.search(r'step_weight_bytes{copy="checkpoint",[^}]*} (\S+)', metrics)
        assert gauge
        assert float(gauge[1]) == step_bytes(path)
