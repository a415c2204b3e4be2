"""The lab as a whole: predictions first, what is done is kept, bad input is one line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.errors import SettingsError
from lab.commands import add_commands
from lab.experiments.context import Context
from lab.measure.outcome import Account, LabResult, LabRow, merged
from lab.measure.subject import peaks_of
from lab.report import page_of, text_of
from lab.run import Lab, run_lab
from loadgen.run.scrape import Scrape
from tests.unit.lab.subjects import METRICS, SUBJECT, ScriptedServers

PEAKS = 'floorline_peak_bytes_per_second{level="dram"} 1e10\n'


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know the machine already, so that no process is started."""
    monkeypatch.setattr("lab.run.learn", lambda lab, serve: SUBJECT)


def lab(*numbers: int, out: Path | None = None) -> Lab:
    return Lab(numbers=numbers, model="tinygpt", short=True, out=out)


@pytest.mark.usefixtures("known")
def test_every_prediction_is_written_before_anything_is_measured(tmp_path: Path) -> None:
    servers, seen = ScriptedServers(), []

    def serve(*flags: str):  # type: ignore[no-untyped-def]
        seen.append(json.loads((tmp_path / "predictions.json").read_text()))
        return servers.serve(*flags)

    assert run_lab(lab(4, 7, out=tmp_path), serve) == 0  # type: ignore[arg-type]
    assert len(seen) == 2
    assert [list(predicted) for predicted in seen] == [["4", "7"]] * 2


@pytest.mark.usefixtures("known")
def test_a_run_leaves_a_page_and_its_numbers(tmp_path: Path, capsys) -> None:
    assert run_lab(lab(4, 5, out=tmp_path), ScriptedServers().serve) == 0  # type: ignore[arg-type]
    numbers = json.loads((tmp_path / "lab.json").read_text())
    assert [outcome["number"] for outcome in numbers["outcomes"]] == [4, 5]
    assert all(outcome["flag"] for outcome in numbers["outcomes"])
    page = (tmp_path / "report.html").read_text()
    assert "4. Batch size" in page
    assert page.count('class="flag"') == 2
    shown = capsys.readouterr().out
    assert shown.index("predicted ITL, ms") < shown.index("off by")


@pytest.mark.usefixtures("known")
def test_an_interrupt_keeps_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def interrupted(self: Context, bench: object, rows: Sequence[LabRow]) -> list[LabRow]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Context, "measure", interrupted)
    assert run_lab(lab(4, 5, 7, out=tmp_path), ScriptedServers().serve) == 130  # type: ignore[arg-type]
    numbers = json.loads((tmp_path / "lab.json").read_text())
    assert [outcome["number"] for outcome in numbers["outcomes"]] == [4]
    assert "4. Batch size" in (tmp_path / "report.html").read_text()
    assert "interrupted: 1 of 3 experiments done" in capsys.readouterr().err


@pytest.mark.usefixtures("known")
def test_an_experiment_that_fails_says_why_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: Context, bench: object, rows: Sequence[LabRow]) -> list[LabRow]:
        raise SettingsError("a server did not start: no memory")

    monkeypatch.setattr(Context, "measure", failing)
    assert run_lab(lab(5, 7, out=tmp_path), ScriptedServers().serve) == 1  # type: ignore[arg-type]
    first, second = json.loads((tmp_path / "lab.json").read_text())["outcomes"]
    assert first["reading"] == "Not measured: a server did not start: no memory"
    assert [row["measured"] for row in first["rows"]] == [None] * 4
    assert second["rows"][0]["measured"]


def command(*words: str) -> int:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    given = parser.parse_args(["lab", *words])
    return int(given.command(given))


@pytest.mark.parametrize("word", ["9", "0", "-1", "five", "²"])
def test_an_unknown_experiment_is_refused_with_the_list(word: str) -> None:
    with pytest.raises(SettingsError, match="one of 1, 2, 3, 4, 5, 6, 7, 8, or all"):
        command("1", "--", word)


def test_a_folder_that_cannot_be_made_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="--out"):
        command("4", "--out", str(tmp_path / "file" / "inside"))


def test_a_folder_without_a_name_is_refused_instead_of_nothing_written() -> None:
    with pytest.raises(SettingsError, match="--out: the file name is empty"):
        command("4", "--out", "")


def test_peaks_are_read_off_the_metrics_and_unknown_ones_predict_nothing() -> None:
    found = peaks_of(Scrape(PEAKS + METRICS), cache_bytes=2**25)
    assert found is not None
    assert found.dram is not None
    assert found.flops is not None
    assert (found.dram.per_s, found.flops.per_s) == (1e10, 1e11)
    assert (found.cache, found.cache_bytes) == (None, 0)
    assert peaks_of(Scrape(METRICS), cache_bytes=2**25) is None


def outcome(*rows: LabRow) -> LabResult:
    return LabResult(
        number=9,
        title="T",
        question="Q?",
        quantity="ms",
        x_name="x",
        tolerance=2.0,
        rows=rows,
        facts=(("what", "1", "2"),),
        reading="R.",
    )


def test_a_prediction_within_the_factor_is_not_flagged_either_way() -> None:
    assert outcome(LabRow(series="a", x=1, predicted=2.0, measured=3.9)).flag is None
    assert outcome(LabRow(series="a", x=1, predicted=2.0, measured=1.1)).flag is None
    too_slow = outcome(LabRow(series="a", x=1, predicted=2.0, measured=9.0)).flag
    assert too_slow == (
        "The prediction misses by 4.5 × at a, x 1, more than the stated 2 ×."
        " No account of its time was kept."
    )
    too_fast = outcome(LabRow(series="a", x=1, predicted=9.0, measured=2.0)).flag
    assert too_fast is not None
    assert "4.5 ×" in too_fast


def test_accounts_add_up_and_are_told_largest_first() -> None:
    account = Account(1.0, {"host": 1.0, "sample": 6.0, "failed": 0.0})
    assert account.total_s == 8.0
    assert account.words() == "floor 12%, sample 75%, host 12%"
    both = merged([account, Account(1.0, {"idle": 2.0, "host": 1.0})])
    assert both == Account(2.0, {"host": 2.0, "sample": 6.0, "failed": 0.0, "idle": 2.0})


def test_a_condition_that_could_not_be_measured_is_shown_as_such() -> None:
    text = text_of(outcome(LabRow(series="a", x="int4", predicted=2.0)))
    assert "int4" in text
    assert "n/a" in text
    page = page_of("lab", "conditions", [outcome(LabRow(series="a", x="int4", predicted=2.0))])
    assert page is not None
