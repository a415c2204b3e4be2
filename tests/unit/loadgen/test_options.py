from __future__ import annotations

import pytest

from core.errors import SettingsError
from core.inputs.quantities import share
from loadgen.cli import HANDLERS
from loadgen.load.draws import map_by_rank, parse_lengths
from loadgen.load.spec import PlanSpec, RunSpec, seconds
from loadgen.options import COMMANDS, gather, parser_of


def parsed(*words: str) -> tuple[PlanSpec, RunSpec]:
    given = parser_of("run").parse_args(words)
    return gather(PlanSpec, given), gather(RunSpec, given)


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("swep", "sweep"),
        ("Sweep", "sweep"),
        ("serch", "search"),
        ("reprot", "report"),
        ("rnu", "run"),
    ],
)
def test_a_command_with_a_typing_error_is_not_taken_for_a_server(word: str, command: str) -> None:
    with pytest.raises(SettingsError, match=f"no command '{word}': did you mean loadgen {command}"):
        parser_of("run").parse_args([word])


def test_a_command_after_its_options_is_told_where_it_belongs() -> None:
    with pytest.raises(SettingsError, match="comes first: loadgen sweep"):
        parser_of("run").parse_args(["--rate", "1", "sweep"])


@pytest.mark.parametrize("word", ["gpu7", "localhost", "plan.example", "sweeps:80", "http://swep"])
def test_a_host_is_taken_for_a_server_even_where_it_is_one_word(word: str) -> None:
    assert parser_of("run").parse_args([word]).url == f"http://{word.removeprefix('http://')}"


def test_every_command_is_named_where_typing_errors_are_looked_up() -> None:
    assert tuple(HANDLERS) == COMMANDS


def test_defaults_come_from_the_specs() -> None:
    assert parsed() == (PlanSpec(), RunSpec())


@pytest.mark.parametrize(
    ("foreign", "own"),
    [
        (["--request-rate", "2"], ["--rate", "2"]),
        (["--num-prompts", "9"], ["--requests", "9"]),
        (["--max-concurrency", "3"], ["--max-inflight", "3"]),
        (["--burstiness", "0.25"], ["--arrival", "gamma:2.0"]),
        (["--random-input-len", "64"], ["--prompt", "=64"]),
        (["--random-output-len", "8"], ["--output", "=8"]),
        (["--goodput", "ttft:500", "tpot:50"], ["--slo", "ttft=500ms", "--slo", "tpot=50ms"]),
        (["--goodput", "e2el:900"], ["--slo", "e2e=900ms"]),
    ],
)
def test_spellings_of_other_tools_mean_ours(foreign: list[str], own: list[str]) -> None:
    assert parsed(*foreign) == parsed(*own)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("http://a:8000/v1", "http://a:8000"),
        ("http://a:8000/v1/completions", "http://a:8000"),
        ("https://a/proxy/v1/", "https://a/proxy"),
    ],
)
def test_a_server_is_named_with_or_without_scheme_and_path(said: str, meant: str) -> None:
    assert parser_of("run").parse_args([said]).url == meant
    assert parser_of("run").parse_args([]).url == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--arrival", ("gamma:inf", "gamma:1e-300", "gamma:1e200", "gamma:nan", "ramp:inf-1")),
        ("--arrival", ("ramp:1000000000000-1", "ramp:1-0.0000000000001", "closed:" + "9" * 400)),
        ("--rate", ("1e308", "1e-308")),
        ("--burstiness", ("1e308", "1e-300")),
        ("--prompt", ("norm:nan,1,1,5", "norm:1,nan,1,5", "lognorm:inf,1,1,5", "norm:1,-1,1,5")),
    ],
)
def test_a_number_that_nothing_can_be_drawn_with_is_refused(option: str, values) -> None:
    for value in values:
        with pytest.raises(SettingsError, match=option):
            parser_of("run").parse_args([option, value])


def test_units_are_read() -> None:
    assert [seconds(text) for text in ("500ms", "2s", "1.5m", "3")] == [0.5, 2.0, 90.0, 3.0]
    assert [share(text) for text in ("5%", "0.05", "100%")] == [0.05, 0.05, 1.0]


def test_lengths_stay_in_their_range() -> None:
    import random

    wide = ("lognorm:50,1e9,8,90", 8, 90)  # most of its draws are beyond any float
    for text, low, high in (("=5", 5, 5), ("norm:50,40,1,60", 1, 60), wide):
        drawn = [parse_lengths(text).draw(random.Random(n)) for n in range(400)]
        assert low == min(drawn)
        assert high == max(drawn)


def test_mapping_by_rank_keeps_order_and_ties() -> None:
    assert map_by_rank([10, 14_000, 10, 300], parse_lengths("32-96")) == [32, 96, 32, 64]
    assert map_by_rank([5, 5], parse_lengths("32-96")) == [32, 32]
