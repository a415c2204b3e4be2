"""Pages are opened in a real browser that has no network."""

from __future__ import annotations

import json
import re
from pathlib import Path

from loadgen.cli import main
from tests.browser import legends, opened


def test_a_run_s_page_draws_every_plot_without_a_network(serve, tmp_path: Path) -> None:
    out = tmp_path / "run"
    flags = ("--rate", "40", "--requests", "40", "--quiet", "--out", str(out))
    assert main([serve(gap_s=0.005), *flags, "--price-per-hour", "0.4"]) in (0, 3)
    assert {path.name for path in out.iterdir()} == {
        "report.html", "requests.jsonl", "run.csv", "run.json",
    }  # fmt: skip
    dom = opened(out / "report.html", tmp_path / "profile")
    names = legends(dom)
    for series in ("offered", "sent", "completed", "ttft_send", "e2e", "usage", "metrics"):
        assert series in names, series
    assert dom.count('class="main-svg"') >= 4
    assert len(re.findall(r'class="point"', dom)) > 80, "dots of TTFT and bars of the bill"


def test_a_sweep_s_page_draws_measured_and_predicted_curves(serve, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    flags = ("--rates", "20,40", "--requests", "40", "--quiet", "--out", str(out))
    assert main(["sweep", serve(gap_s=0.005), *flags]) in (0, 3)
    shown = json.loads((out / "sweep.json").read_text())
    assert [point["rate"] for point in shown["points"]] == [20.0, 40.0]
    assert {point["plan"]["spec"]["rate"] for point in shown["points"]} == {20.0, 40.0}
    assert shown["predicted"], "the mock's counters give a floor curve"
    names = legends(opened(out / "report.html", tmp_path / "profile"))
    assert names == ["ITL p50", "ITL p90", "predicted floor"]


def test_a_stored_run_is_shown_again_and_compared_with_itself(
    serve, tmp_path: Path, capsys
) -> None:
    out = str(tmp_path / "run")
    main([serve(gap_s=0.005), "--rate", "40", "--requests", "40", "--quiet", "--out", out])
    first = capsys.readouterr().out
    (tmp_path / "run" / "report.html").unlink()
    assert main(["report", out]) in (0, 3)
    assert capsys.readouterr().out == first
    assert (tmp_path / "run" / "report.html").exists()
    assert len(first.splitlines()) <= 30
    assert main(["compare", out, out]) == 0
    compared = capsys.readouterr().out
    assert "+0.0%" in compared
    assert "within noise" in compared
    assert "differs" not in compared
