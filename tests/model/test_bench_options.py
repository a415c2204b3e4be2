"""Every benchmark explains itself and its options, and refuses a bad value in one line."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from pathlib import Path

import pytest

from bench import llamacpp_bench
from bench.command import Command, start
from bench.peer import Peer
from bench.telemetry import PROMPT_TOKENS, prompt_of
from core.errors import SettingsError

BENCH = Path(__file__).parents[2] / "bench"
NAMES = [
    path.stem
    for path in sorted(BENCH.glob("*.py"))
    if '__name__ == "__main__"' in path.read_text("utf-8")
]
TRUE = str(shutil.which("true"))


def options(name: str) -> Command:
    parser: Command = importlib.import_module(f"bench.{name}").options()
    return parser


def flags(metavar: str) -> list[tuple[str, str]]:
    """Give each benchmark's options that take such a value."""
    return [
        (name, action.option_strings[0])
        for name in NAMES
        for action in options(name)._actions
        if action.metavar == metavar
    ]


def test_there_are_benchmarks() -> None:
    assert {"llamacpp_bench", "peers", "server", "record_run"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_explains_itself_and_each_option(name: str) -> None:
    text = options(name).format_help()
    usage, line, rest = text.split("\n\n", 2)
    assert f"python -m bench.{name}" in usage
    assert line.endswith(".")
    assert "\n" not in line
    described = re.split(r"^  (?=-)", rest.split("options:\n")[1].split("\n\n")[0], flags=re.M)
    for option in described[1:]:
        flag, *words = option.split("  ", 1)
        assert words, f"{flag} has no help"
        optional = f"[{flag.split()[0]}" in usage
        assert not optional or "default:" in option or flag == "-h, --help", flag


def refusal(monkeypatch, capfd, name: str, *words: str) -> str:
    """Run a benchmark that cannot run; give the line that it ends with."""
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    with pytest.raises(SystemExit) as ended:
        start(importlib.import_module(f"bench.{name}").main)
    code = ended.value.code
    said = code if isinstance(code, str) else capfd.readouterr().err
    assert len(said.splitlines()) == 1, said
    return said


@pytest.mark.parametrize(("name", "flag"), flags("N"))
def test_a_count_that_is_none_is_refused(monkeypatch, capfd, name: str, flag: str) -> None:
    for value in ("0", "x", "1.5"):
        said = refusal(monkeypatch, capfd, name, f"{flag}={value}")
        assert flag in said
        assert f"'{value}' is not a whole number" in said


@pytest.mark.parametrize(("name", "flag"), flags("FILE"))
def test_a_file_that_cannot_be_written_is_refused_at_once(
    monkeypatch, capfd, tmp_path: Path, name: str, flag: str
) -> None:
    for path in (tmp_path, tmp_path / "nowhere" / "file"):
        assert flag in refusal(monkeypatch, capfd, name, flag, str(path))


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("chunked_prefill", ["--model", "nosuch"], "--model 'nosuch'"),
        ("growth", ["--model", "nosuch"], "--model 'nosuch'"),
        ("telemetry", ["--model", "nosuch"], "--model 'nosuch'"),
        ("validate_costmodel", ["--model", "nosuch"], "--model 'nosuch'"),
        ("chunked_prefill", ["--goal-ms", "0"], "--goal-ms"),
        ("chunked_prefill", ["--goal-ms", "nan"], "--goal-ms"),
        ("growth", ["--peer-python", "nosuch"], "--peer-python: 'nosuch' is not a program"),
        ("growth", ["--models", "nosuch"], "--models: 'nosuch' is not a file"),
        ("perplexity", ["--threads", "1000"], "--threads 1000"),
        ("scheduler", ["--steps", "1"], "--steps"),
        ("server", ["--peer", "ftp://nosuch"], "--peer"),
        ("validate_costmodel", ["--backend", "nosuch"], "choose from 'auto'"),
        ("validate_costmodel", ["--kv-memory", "much"], "--kv-memory"),
        ("validate_costmodel", ["--kv-memory", "100KB"], "--kv-memory: 32 tokens hold 2 steps"),
        ("verify_bytes", ["--driver", "nosuch"], "--driver: 'nosuch' is not a program"),
        ("verify_bytes", ["--driver", TRUE], f"--driver {TRUE} --isa avx2: it is no"),
        ("llamacpp_bench", ["nosuch"], "'nosuch' is not a file"),
        ("llamacpp_bench", [__file__, "--quantize", "Q9", "to"], "--quantize Q9"),
        ("llamacpp_bench", [__file__, "--parallel", "1,0"], "--parallel: '0'"),
        ("llamacpp_bench", [__file__, "--parallel", "1,1000"], "--parallel 1000"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_in_one_line(
    monkeypatch, capfd, name: str, words: list[str], said: str
) -> None:
    assert said in refusal(monkeypatch, capfd, name, *words)


def test_what_a_peer_lacks_is_told(monkeypatch, capfd) -> None:
    monkeypatch.setattr(llamacpp_bench, "lc", None)
    assert "llama-cpp-python" in refusal(monkeypatch, capfd, "llamacpp_bench", __file__)


def test_why_a_peer_was_not_timed_is_its_own_last_line(tmp_path: Path) -> None:
    python = Path(sys.executable)
    with pytest.raises(SettingsError, match=r"--peer-python .*nosuch' is not a file"):
        Peer(python, threads=1).time(tmp_path / "nosuch", prompt=1, gen=1, batches=(1,))


def test_a_peer_that_is_no_python_timed_nothing(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"--peer-python {TRUE}: ended with status 0"):
        Peer(Path(TRUE), threads=1).time(tmp_path / "nosuch", prompt=1, gen=1, batches=(1,))


def test_whoever_interrupts_is_shown_no_traceback() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        start(interrupted)
    assert ended.value.code == 130


@pytest.mark.parametrize("vocab_size", [260, 49_152])
def test_telemetry_s_prompts_are_of_the_model_s_vocabulary(vocab_size: int) -> None:
    prompts = [prompt_of(row, vocab_size) for row in range(32)]
    assert len(set(prompts)) == 32
    assert {len(prompt) for prompt in prompts} == {PROMPT_TOKENS}
    assert all(0 <= token < vocab_size for prompt in prompts for token in prompt)


@pytest.mark.slow
def test_what_telemetry_costs_can_be_measured_on_tinygpt(monkeypatch, capfd) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--model", "tinygpt", "--rounds", "1"])
    with pytest.raises(SystemExit) as ended:
        start(importlib.import_module("bench.telemetry").main)
    assert not ended.value.code
    assert "of the step" in capfd.readouterr().out


def test_a_flag_that_is_cut_short_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        options("scheduler").parse_args(["--step", "5"])
    assert "--step" in capsys.readouterr().err
