"""Run experiments one after another: predict all, then measure each; what is done is kept."""

from __future__ import annotations

import contextlib
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from core.children import python_child
from core.errors import SettingsError
from core.inputs.quantities import counted, scaled
from costmodel.planning.sizes import Width
from lab.ask.describe import describe
from lab.experiments import EXPERIMENTS
from lab.experiments.base import Bench, Experiment
from lab.experiments.widths import Widths
from lab.measure.outcome import LabResult
from lab.measure.server import Server, serving
from lab.measure.subject import Subject, peaks_of
from lab.report import page_of, prediction_text, text_of
from loadgen.report.summary import write_file

INTERRUPTED: Final = 130
REPORT_FILE, NUMBERS_FILE, PREDICTIONS_FILE = "report.html", "lab.json", "predictions.json"

Serve = Callable[..., AbstractContextManager[Server]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """What to run, on what, and where to put it."""

    numbers: tuple[int, ...]
    model: str
    flags: tuple[str, ...] = ()  # for every server
    short: bool = False
    out: Path | None = None


def server_of(lab: Lab) -> Serve:
    """Serve the lab's model at the widths that the predictions are for; later flags win."""
    common = ("--model", lab.model, "--weights", "fp32", "--kv-dtype", "fp32", *lab.flags)
    return lambda *flags: serving(*common, *flags)


def run_lab(lab: Lab, serve: Serve) -> int:
    """Predict, measure and report.

    Returns: 0, 1 where an experiment could not be measured, or 130 after an interrupt; what was
        done by then is shown and written.
    Raises:
        SettingsError: the model cannot be served, or the folder cannot be written.
    """
    if lab.out is not None:
        _make_folder(lab.out)
    subject = learn(lab, serve)
    chosen = [kind(subject, lab.short) for kind in EXPERIMENTS if kind.number in lab.numbers]
    _write_predictions(lab, chosen)
    outcomes: list[LabResult] = []
    try:
        for outcome in measured(chosen, serve):
            outcomes.append(outcome)
            print(text_of(outcome), end="\n\n", flush=True)
            _write(lab, subject, outcomes)
    except KeyboardInterrupt:
        print(
            f"interrupted: {len(outcomes)} of {counted(len(chosen), 'experiment')} done",
            file=sys.stderr,
        )
        return INTERRUPTED
    return int(any(outcome.worst is None for outcome in outcomes))


def learn(lab: Lab, serve: Serve) -> Subject:
    """Ask the engine what the model is, and a server of each width for the machine's peaks.

    Cost: a start for each width, where narrower ones are compared; the peaks are measured again.
    Raises:
        SettingsError: no peak is known, so that nothing can be predicted.
    """
    description = describe(lab.model)
    child = python_child("engine", "--calibrate", *lab.flags)
    subprocess.run(child.command, env=child.environment, check=False, capture_output=True)
    with serve() as server:
        peaks = peaks_of(server.scrape(), description.cache_bytes)
    if peaks is None:
        raise SettingsError("the server knows no peaks of this machine")
    by_width = {}
    for width in Widths.others(lab.short) if Widths.number in lab.numbers else ():
        with contextlib.suppress(SettingsError), serve("--weights", width) as server:
            if found := peaks_of(server.scrape(), description.cache_bytes):
                by_width[width] = found
    fp32 = Width.parse("fp32")
    config = description.model
    return Subject(config=config, weights=fp32, kv=fp32, peaks=peaks, peaks_by_width=by_width)


def measured(chosen: Sequence[Experiment], serve: Serve) -> Iterator[LabResult]:
    """Tell each prediction, then measure it, with a bar on standard error.

    An experiment whose server or load fails says so in its reading, and the next one goes on.
    """
    for experiment in chosen:
        rows = experiment.predict()
        title = f"{experiment.number}. {experiment.title}"
        print(prediction_text(title, experiment.quantity, rows), flush=True)
        try:
            with _bar(title, len(rows)) as tick:
                found = experiment.measure(Bench(serve, tick), rows)
        except SettingsError as error:
            yield replace(experiment.outcome(rows), reading=f"Not measured: {error}")
        else:
            yield experiment.outcome(found)


@contextmanager
def _bar(name: str, total: int) -> Iterator[Callable[[], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=total)
        yield lambda: progress.advance(task)


def conditions(lab: Lab, subject: Subject) -> str:
    """Say on what, and how, the numbers were made."""
    peaks, sums = subject.peaks, subject.sums
    assert peaks.dram is not None
    assert peaks.flops is not None
    cache = "" if peaks.cache is None else f"; cache {scaled(peaks.cache.per_s, 'B/s')}"
    return "\n".join(
        (
            f"model    {lab.model}, {sums.parameters:,} parameters in {subject.weights.name}",
            f"machine  {platform.machine()}, {platform.system()}",
            f"peaks    memory {scaled(peaks.dram.per_s, 'B/s')}{cache};"
            f" arithmetic {scaled(peaks.flops.per_s, 'FLOP/s')}",
            f"flags    {' '.join(lab.flags) or 'none'}",
            f"form     {'short' if lab.short else 'full'}",
        )
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"--out {folder}: {error.strerror}") from None


def _write_predictions(lab: Lab, chosen: Sequence[Experiment]) -> None:
    if lab.out is not None:
        _put(lab.out / PREDICTIONS_FILE, predictions(chosen))


def predictions(chosen: Sequence[Experiment]) -> dict[str, list[list[object]]]:
    """List every prediction by experiment, as (series, x, value)."""
    return {
        str(experiment.number): [[row.series, row.x, row.predicted] for row in experiment.predict()]
        for experiment in chosen
    }


def _write(lab: Lab, subject: Subject, outcomes: Sequence[LabResult]) -> None:
    if lab.out is None:
        return
    told = conditions(lab, subject)
    numbers = {"conditions": told, "outcomes": [outcome.as_dict() for outcome in outcomes]}
    _put(lab.out / NUMBERS_FILE, numbers)
    page_of("floorline lab", told, outcomes).write(lab.out / REPORT_FILE)


def _put(path: Path, value: object) -> None:
    write_file(path, json.dumps(value, indent=1) + "\n")
