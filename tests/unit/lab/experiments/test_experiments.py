"""Each experiment's predictions are golden; what it measures and says is read off known steps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from core.settings import Batching
from lab.experiments import EXPERIMENTS
from lab.experiments.base import Bench, Experiment, steps_together, together
from lab.experiments.batch import Batch, free_until
from lab.experiments.batching import BatchingModes
from lab.experiments.context import Context
from lab.experiments.kv_cache import KVCache
from lab.experiments.prefill import Prefill
from lab.experiments.reference import Reference
from lab.experiments.saturation import Saturation
from lab.experiments.widths import Widths
from lab.measure.outcome import LabResult
from lab.measure.server import LoadResult
from lab.measure.simulate import makespan_s
from lab.run import predictions
from loadgen.load.spec import PlanSpec
from tests.unit.costmodel.models import peaks
from tests.unit.lab.subjects import SLOWDOWN, SUBJECT, ScriptedServer, ScriptedServers

GOLDEN = json.loads((Path(__file__).parent / "golden/predictions.json").read_text())


def run(kind: type[Experiment], short: bool = False) -> tuple[LabResult, ScriptedServers, int]:
    """Run an experiment on scripted servers; give its outcome, the servers and the ticks."""
    servers, ticks = ScriptedServers(), 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    experiment = kind(SUBJECT, short)
    rows = experiment.measure(Bench(servers.serve, tick), experiment.predict())  # type: ignore[arg-type]
    return experiment.outcome(rows), servers, ticks


def facts(outcome: LabResult) -> dict[str, tuple[str, str]]:
    return {what: (predicted, measured) for what, predicted, measured in outcome.facts}


@pytest.mark.parametrize("kind", EXPERIMENTS, ids=lambda kind: str(kind.number))
def test_predictions_are_those_of_the_golden_file(kind: type[Experiment]) -> None:
    (found,) = predictions([kind(SUBJECT)]).values()
    golden = GOLDEN[str(kind.number)]
    assert [row[:2] for row in found] == [row[:2] for row in golden]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in golden])


def test_the_golden_batch_1_step_is_its_bytes_over_the_bandwidth() -> None:
    """One prediction by hand, so that the file cannot drift with the code."""
    weights = 5_838_080 - 260 * 256 + 256  # all but the input embedding, and one row of it
    kv = (128 + 65 // 2 + 1) * 3072
    assert {row[1]: row[2] for row in GOLDEN["4"]}[1] == pytest.approx(
        (4 * weights + kv) / 10e9 * 1e3
    )


@pytest.mark.parametrize("kind", EXPERIMENTS, ids=lambda kind: str(kind.number))
def test_every_row_ticks_once_and_what_is_read_names_no_placeholder(kind) -> None:
    outcome, _, ticks = run(kind)
    assert ticks == len(outcome.rows)
    assert outcome.reading
    assert "Nothing was measured" not in outcome.reading
    assert json.loads(json.dumps(outcome.as_dict(), allow_nan=False))["number"] == kind.number


@pytest.mark.parametrize("kind", EXPERIMENTS, ids=lambda kind: str(kind.number))
def test_an_experiment_without_a_measurement_says_so(kind: type[Experiment]) -> None:
    experiment = kind(SUBJECT, short=True)
    outcome = experiment.outcome(experiment.predict())
    assert outcome.reading == "Nothing was measured."
    assert outcome.flag is None


@pytest.mark.parametrize("kind", [Batch, Context, Prefill])
def test_a_step_of_three_times_the_floor_is_flagged_with_its_largest_cost(kind) -> None:
    outcome, _, _ = run(kind)
    for row in outcome.rows:
        assert row.measured == pytest.approx(SLOWDOWN * row.predicted)
        assert row.account is not None
        assert row.account.total_s * 1e3 == pytest.approx(row.measured)
    assert outcome.flag is not None
    assert "misses by 3.0 ×" in outcome.flag
    assert "stated 2 ×" in outcome.flag
    assert "the engine's own work around a step" in outcome.flag


def test_the_reference_tells_what_is_known_beforehand() -> None:
    outcome, servers, _ = run(Reference)
    told = facts(outcome)
    assert told["parameters"][0] == "5,838,080"
    assert told["KV bytes per token"] == ("3,072", "3,072")
    assert told["weights' share of weights + KV at context 96"][0] == "98.8%"
    assert told["weights' share of a step's bytes at context 96"][0] == "98.7%"
    assert told["bandwidth: the peak of the dram, and what the steps imply"] == (
        "10 GB/s",
        "2 GB/s",
    )
    assert servers.flags == [()]
    ttft, itl = outcome.rows
    assert ttft.measured is not None
    assert itl.measured is not None
    assert ttft.account is not None
    assert ttft.account.total_s * 1e3 == pytest.approx(ttft.measured), "the rest is the server's"


def test_without_a_cache_flops_and_bytes_predict_differently() -> None:
    outcome, servers, _ = run(KVCache)
    assert [flags[:2] for flags in servers.flags] == [("--kv-cache", "on"), ("--kv-cache", "off")]
    for row in outcome.rows:
        assert row.miss == pytest.approx(1.0, rel=0.1)
    by_flops, by_bytes = KVCache(SUBJECT).naive(1024)
    assert by_flops > 500
    assert by_bytes == pytest.approx(1.0, abs=0.01)
    assert "counting FLOPs predicts" in outcome.reading


def test_continuous_batching_beats_static_batching_beats_none_at_the_floor() -> None:
    rows = {row.x: row.predicted for row in BatchingModes(SUBJECT).predict()}
    assert rows["none"] == 1
    assert 1 < rows["static"] < rows["continuous"]
    outcome, servers, _ = run(BatchingModes)
    modes = [flags[1] for flags in servers.flags]
    assert modes == ["none", "static", "continuous"]
    assert all(row.measured == 1 for row in outcome.rows), "the script takes 10 s for each"


def test_requests_run_one_after_another_take_the_sum_of_their_steps() -> None:
    lengths = [(40, 3), (8, 1)]
    alone_s = SUBJECT.prefill(40).s + SUBJECT.decode(1, 40).s + SUBJECT.decode(1, 41).s
    whole_s = alone_s + SUBJECT.prefill(8).s
    taken_s = makespan_s(SUBJECT, lengths, Batching.NONE, batch=8, budget=128)
    assert taken_s == pytest.approx(whole_s)
    chunked_s = makespan_s(SUBJECT, [(40, 1)], Batching.NONE, batch=8, budget=16)
    assert chunked_s > SUBJECT.prefill(40).s, "three chunks read the weights three times"


def test_a_static_batch_waits_for_its_longest_answer() -> None:
    lengths = [(8, 20), (8, 1), (8, 20), (8, 1)]
    static_s = makespan_s(SUBJECT, lengths, Batching.STATIC, batch=2, budget=128)
    continuous_s = makespan_s(SUBJECT, lengths, Batching.CONTINUOUS, batch=2, budget=128)
    assert continuous_s < 0.7 * static_s


def test_batching_is_free_until_the_step_is_a_quarter_longer() -> None:
    assert free_until([(1, 1.0), (2, 1.1), (4, 1.2), (8, 1.3), (16, 1.2)]) == 4
    assert "batching is free" in run(Batch)[0].reading


def test_narrow_weights_speed_up_decode_and_not_prefill() -> None:
    outcome, servers, _ = run(Widths)
    assert [flags[1] for flags in servers.flags] == ["fp32", "fp16", "int8", "int4"]
    found = {(row.series, row.x): row.measured for row in outcome.rows}
    assert found["decode", "fp16"] == pytest.approx(1.93, abs=0.01)
    assert found["prefill", "int4"] == pytest.approx(1.0)
    assert outcome.flag is None, "the scripted machine is as slow at each width"


def test_a_width_is_predicted_from_the_peaks_of_its_own_arithmetic() -> None:
    quick = replace(SUBJECT, peaks_by_width={"int8": peaks(flops_per_s=400e9)})
    found = {(row.series, row.x): row.predicted for row in Widths(quick).predict()}
    assert found["prefill", "int8"] == pytest.approx(4.0, rel=0.01)
    assert found["prefill", "fp16"] == pytest.approx(1.0)


def test_the_knee_is_the_most_that_any_rate_had_answered() -> None:
    outcome, _, _ = run(Saturation)
    by_rate = {row.x: row.measured for row in outcome.rows if row.series == "rate"}
    assert by_rate[16.0] == 16
    assert by_rate[32.0] == pytest.approx(20)
    assert by_rate[64.0] == pytest.approx(20)
    assert by_rate[128.0] is None, "a higher rate than one that is far behind is not tried"
    knee = outcome.rows[-1]
    assert knee.measured == pytest.approx(20)
    assert knee.predicted == pytest.approx(88.7, abs=0.1)
    assert outcome.flag is not None
    assert "measured, at 20.0" in outcome.reading


def test_without_an_overload_no_knee_is_claimed() -> None:
    outcome, _, _ = run(Saturation, short=True)
    assert outcome.rows[-1].measured is None
    assert "no rate up to 8 was too high" in outcome.reading


class Apart(ScriptedServer):
    """Its first `apart` loads are of requests that never ran together."""

    def __init__(self, apart: int) -> None:
        super().__init__(SUBJECT)
        self.apart, self.loads = apart, 0

    def load(self, plan: PlanSpec) -> LoadResult:
        self.loads += 1
        load = super().load(plan)
        return load if self.loads > self.apart else replace(load, steps=[])


@pytest.mark.parametrize(("apart", "loads", "steps"), [(0, 1, 3), (2, 3, 3), (3, 3, 0)])
def test_requests_that_did_not_meet_are_sent_again(apart: int, loads: int, steps: int) -> None:
    server = Apart(apart)
    found = steps_together(server, together(2, prompt=16, output=4), batch=2)  # type: ignore[arg-type]
    assert (server.loads, len(found)) == (loads, steps)
