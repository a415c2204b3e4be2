"""`floorline plan` and `floorline lab` as a user runs them; their pages in a real browser."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import legends, opened
from tests.live import BIN, end, wait_until
from tests.patience import PATIENCE_S

LAB = [str(BIN / "floorline"), "lab", "--threads", "1", "--short"]


def plan(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "floorline"), "plan", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_plan_of_a_preset_asks_the_engine_what_it_is() -> None:
    done = plan("tinygpt", "--device", "l4", "--weights", "fp32", "--context", "96", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["model"]["parameters"] == 5_838_080
    assert found["model"]["crossover_tokens"] == 7602
    assert found["devices"][0]["concurrency_fits"] is True


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--params", "7e9", "--device", "tpu"), "--device: no data sheet for 'tpu': one of l4"),
        (("EMPTY", "--device", "l4"), "no config.json in this directory"),
        (
            ("no/such/place", "--device", "l4"),
            "model 'no/such/place': no such directory or GGUF file",
        ),
        (
            ("nosuchmodel", "--device", "l4"),
            "model 'nosuchmodel': no preset (smollm2-135m, tinygpt)",
        ),
        (("tinygpt", "--device", "l4", "--context", "8193"), "made for at most 8192 tokens"),
        (("--params", "7e9", "--device", "l4", "--nope"), "unrecognized arguments: --nope"),
        (("", "--device", "l4"), "model: the file name is empty"),
        (("--params", "7e9", "--device", "l4", "--html", ""), "--html: the file name is empty"),
        (("--params", "7e9", "--device", "l4", "--html", "/no/such/folder/p.html"), "cannot write"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(
    words: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    done = plan(*(str(tmp_path) if word == "EMPTY" else word for word in words))
    assert done.returncode == 2
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_what_cannot_be_is_an_answer_and_no_error() -> None:
    done = plan("--params", "70e9", "--weights", "fp16", "--device", "a100", "--measured", "200")
    assert done.returncode == 0, done.stderr
    assert "NO: the weights take 140 GB, the device has 80 GB" in done.stdout
    assert "200 tokens/s is IMPOSSIBLE" in done.stdout


def test_the_commands_load_neither_torch_nor_a_server() -> None:
    code = (
        "import sys; from server.cli.main import main;"
        "main(['plan', '--params', '7e9', '--device', 'h100']);"
        "import lab.run;"
        "print(sorted({'torch', 'transformers', 'fastapi', 'uvicorn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_plan_s_page_draws_curve_bytes_and_levers(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    size = ("--params", "7e9", "--layers", "32", "--kv-heads", "8", "--head-dim", "128")
    assert plan(*size, "--compare", "l4,h100", "--html", str(page)).returncode == 0
    dom = opened(page, tmp_path / "profile")
    assert {"l4", "h100", "weights", "KV", "tokens/s"} <= set(legends(dom))
    assert dom.count('class="main-svg"') >= 4


@pytest.mark.slow
def test_every_experiment_runs_in_its_short_form(tmp_path: Path) -> None:
    out = tmp_path / "lab"
    command = [*LAB, "all", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = json.loads((out / "lab.json").read_text())["outcomes"]
    assert [outcome["number"] for outcome in outcomes] == [1, 2, 3, 4, 5, 6, 7, 8]
    predicted = json.loads((out / "predictions.json").read_text())
    for outcome in outcomes:
        told = [[row["series"], row["x"], row["predicted"]] for row in outcome["rows"]]
        assert told == predicted[str(outcome["number"])], "predictions were made before"
        needed = [row for row in outcome["rows"] if row["series"] in ("decode", "prefill", "ITL")]
        assert all(row["measured"] for row in needed), outcome["title"]
        assert any(row["account"] for row in outcome["rows"]), outcome["title"]
        assert outcome["title"] in done.stdout
    dom = opened(out / "report.html", tmp_path / "profile")
    drawn = set(legends(dom))
    assert {"ITL, predicted", "ITL, measured", "floor", "host", "decode, measured"} <= drawn
    assert dom.count("<table>") >= 8


@pytest.mark.slow
def test_an_interrupted_lab_keeps_what_is_done_and_leaves_no_server(tmp_path: Path) -> None:
    out, mark, log = tmp_path / "lab", str(tmp_path), tmp_path / "stderr.txt"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*LAB, "4", "8", "--out", str(out)],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
            env={**os.environ, "LAB_TEST": mark},
        )
    page = out / "report.html"
    try:
        wait_until(lambda: page.exists() or process.poll() is not None, "the first page")
        assert process.poll() is None, log.read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    finally:
        end(process)
    outcomes = json.loads((out / "lab.json").read_text())["outcomes"]
    assert [outcome["number"] for outcome in outcomes] == [4]
    assert "4. Batch size" in (out / "report.html").read_text()
    assert marked(mark) == []


def marked(mark: str) -> list[str]:
    """List living processes whose environment holds `mark`: a child hands it on to its own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"LAB_TEST={mark}" in path.read_text(errors="replace"):
                found.append(path.parent.name)
    return found
