from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import SettingsError
from loadgen.report.bill import Bill, Price
from loadgen.report.join import ServerView
from loadgen.report.measure import Judgement
from loadgen.report.stats import each_once, summarise
from loadgen.report.summary import Summary, read_run, write_run
from loadgen.show.table import render_run
from tests.unit.loadgen.summaries import summary_of

ENDLESS = {"ttft": summarise(each_once([0.1] * 80 + [math.inf] * 20), independent=True)}
PRICE = Price(0.5, None, 0.25, 0.25)
FULL = summary_of(
    metrics_with_failures=ENDLESS,
    slos=[Judgement("ttft.p90=1s", 1.0, math.inf, False)],
    server=ServerView(efficiency=0.5),
    bill=Bill({"prompt": {"client": 8, "usage": None}}, {"cost": 9}, None, None, PRICE),
)


@pytest.mark.parametrize("summary", [summary_of(), FULL], ids=["nothing known", "with all"])
def test_a_summary_that_was_written_is_read_back_the_same(summary: Summary, tmp_path: Path) -> None:
    write_run(tmp_path, summary, [])
    written = (tmp_path / "run.json").read_text()
    again, _ = read_run(str(tmp_path))
    assert replace(again, run=summary.run) == summary, "but for its options, whose tuples are lists"
    write_run(tmp_path, again, [])
    assert (tmp_path / "run.json").read_text() == written
    assert render_run(again) == render_run(summary)


def test_the_file_says_inf_and_holds_no_empty_price(tmp_path: Path) -> None:
    write_run(tmp_path, FULL, [])
    found = json.loads((tmp_path / "run.json").read_text())
    assert found["metrics_with_failures"]["ttft"]["p90"]["value"] == "inf"
    assert found["slos"][0]["value"] == "inf"
    assert found["bill"]["usd_per_million_tokens"] is None
    assert list(found["bill"])[4:] == [
        "window_usd", "usd_per_million_tokens", "usd_per_request", "usd_per_good_request",
    ]  # fmt: skip
    write_run(tmp_path, summary_of(), [])
    found = json.loads((tmp_path / "run.json").read_text())
    assert found["server"] == {}
    assert list(found["bill"]) == ["tokens", "nusd", "balanced", "others_on_server"]


def test_a_file_with_a_field_of_another_type_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, FULL, [])
    found = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(found | {"rates": 3}))
    with pytest.raises(SettingsError, match="not what --out wrote"):
        read_run(str(tmp_path))
