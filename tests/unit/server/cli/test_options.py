"""Flags, variables, file, defaults: who wins, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import SettingsError
from core.formats import KVFormat, WeightFormat
from core.settings import Settings
from server.cli.main import build_parser, main, read_settings
from server.cli.options import OPTIONS, resolve


def test_nothing_given_is_the_defaults() -> None:
    assert resolve({}, {}, {}, "") == Settings()


def test_a_flag_wins_over_a_variable_and_that_over_the_file() -> None:
    flags, environment, file = {"port": "1"}, {"FLOORLINE_PORT": "2"}, {"port": 3}
    assert resolve(flags, environment, file, "").http.port == 1
    assert resolve({}, environment, file, "").http.port == 2
    assert resolve({}, {}, file, "").http.port == 3


def test_file_keys_take_dashes_and_toml_types() -> None:
    file = {"max-num-seqs": 8, "response_cost": False, "drain-timeout": 1.5, "weights": "fp16"}
    file |= {"peak-bandwidth": 94e9, "peak-flops": "2TFLOP/s"}
    settings = resolve({}, {}, file, "")
    assert settings.engine.scheduler.max_num_seqs == 8
    assert settings.telemetry.response_cost is False
    assert settings.http.drain_timeout == 1.5
    assert (settings.engine.peak_bandwidth, settings.engine.peak_flops) == (94e9, 2e12)
    assert settings.engine.model.weights is WeightFormat.FP16


def test_auto_is_how_a_number_is_left_to_the_engine() -> None:
    told = resolve({"max_num_batched_tokens": "64"}, {}, {}, "").engine.scheduler
    assert told.max_num_batched_tokens == 64
    assert resolve({"max_num_batched_tokens": "auto"}, {}, {}, "") == Settings()
    assert (
        resolve({"served_model_name": "auto"}, {}, {}, "").engine.model.served_model_name == "auto"
    )


def test_steps_are_sized_for_the_itl_of_the_slo_unless_told_another() -> None:
    slo = {"slo": "ttft=1s,itl=50ms"}
    assert resolve(slo, {}, {}, "").engine.scheduler.itl_goal == 0.05
    assert resolve({**slo, "itl_goal": "0.2"}, {}, {}, "").engine.scheduler.itl_goal == 0.2
    assert resolve({"slo": "ttft=1s"}, {}, {}, "").engine.scheduler.itl_goal is None


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("port", "x", "is not a whole number between 0 and 65535"),
        ("port", "65536", "between 0 and 65535"),
        ("max_num_seqs", "0", "above zero"),
        ("max_num_seqs", "1.5", "is not a whole number"),
        ("seed", "9223372036854775808", "is not a whole number of 64 bits"),
        ("api_key", "", "must not be empty"),
        ("drain_timeout", "nan", "is not a number"),
        ("weights", "int3", "is not one of fp32, fp16"),
        ("kv_memory", "lots", "is not a size"),
        ("peak_bandwidth", "94", "is below 1 MB/s: write it like 94GB/s or 94e9"),
        ("peak_flops", "2 teraflops", "is not written like 989TFLOP/s or 989e12"),
        ("response_cost", "maybe", "is not true or false"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, text: str, words: str) -> None:
    flag, variable = "--" + name.replace("_", "-"), "FLOORLINE_" + name.upper()
    with pytest.raises(SettingsError, match=f"^{flag}: .*{words}"):
        resolve({name: text}, {}, {}, "")
    with pytest.raises(SettingsError, match=f"^{variable}: .*{words}"):
        resolve({}, {variable: text}, {}, "")
    for key in (name, name.replace("_", "-")):
        with pytest.raises(SettingsError, match=rf"^a\.toml: {key}: .*{words}"):
            resolve({}, {}, {key: text}, "a.toml")


@pytest.mark.parametrize("file", [{"max-num-sqs": 1}, {"max_num_sqs": 1}, {"http": {"port": 1}}])
def test_an_unknown_key_of_the_file_is_refused_as_it_is_written(file: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=rf"^a\.toml: unknown key: {next(iter(file))}$"):
        resolve({}, {}, file, "a.toml")


def test_a_key_that_is_written_both_ways_is_refused() -> None:
    file = {"kv-dtype": "fp16", "kv_dtype": "fp32"}
    with pytest.raises(SettingsError, match=r"^a\.toml: kv-dtype and kv_dtype are the same key$"):
        resolve({}, {}, file, "a.toml")


@pytest.mark.parametrize("file", [{"max-num-seqs": [1]}, {"api_key": [["k"]]}])
def test_a_list_in_the_file_is_refused(file: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=rf"^a\.toml: {next(iter(file))}: must be a text"):
        resolve({}, {}, file, "a.toml")


def test_option_names_are_unique() -> None:
    names = [option.name for option in OPTIONS]
    assert len(names) == len(set(names))


def test_the_command_line_reads_the_file_and_the_flags(tmp_path: Path) -> None:
    config = tmp_path / "floorline.toml"
    config.write_text('model = "tinygpt"\nkv-dtype = "fp16"\nport = 9\n')
    parsed = build_parser().parse_args(
        ["serve", "--config", str(config), "--port", "0", "--no-response-cost"]
    )
    settings = read_settings(parsed, {})
    assert settings.engine.model.model == "tinygpt"
    assert settings.engine.model.kv_dtype is KVFormat.FP16
    assert settings.http.port == 0
    assert not settings.telemetry.response_cost


def test_an_error_names_the_file(tmp_path: Path) -> None:
    config = tmp_path / "floorline.toml"
    config.write_text("max-num-seqs = 0\n")
    parsed = build_parser().parse_args(["serve", "--config", str(config)])
    with pytest.raises(SettingsError) as caught:
        read_settings(parsed, {})
    assert str(caught.value) == f"{config}: max-num-seqs: '0' must be above zero"


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--port", "x"],
        ["serve", "--prot", "1"],
        ["serve", "--max-num-seq", "4"],
        ["plan", "tinygpt", "--concurrenc", "4"],
        ["serve", "--config", "/nowhere/floorline.toml"],
        ["serve", "--weights", "int3"],
        ["sing"],
    ],
)
def test_what_the_caller_got_wrong_is_one_line_and_exit_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(arguments)
    except SystemExit as exit:
        status = int(exit.code or 0)
    out, err = capsys.readouterr()
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert any(argument in err for argument in arguments[-2:])


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "floorline.toml"
    config.write_text("port = ")
    parsed = build_parser().parse_args(["serve", "--config", str(config)])
    with pytest.raises(SettingsError, match="--config: cannot read"):
        read_settings(parsed, {})


def test_the_variable_names_the_file_where_no_flag_does(tmp_path: Path) -> None:
    for port in (1, 2):
        (tmp_path / f"{port}.toml").write_text(f"port = {port}\n")
    environment = {"FLOORLINE_CONFIG": str(tmp_path / "1.toml")}
    bare = build_parser().parse_args(["serve"])
    assert read_settings(bare, environment).http.port == 1
    flag = build_parser().parse_args(["serve", "--config", str(tmp_path / "2.toml")])
    assert read_settings(flag, environment).http.port == 2
    with pytest.raises(SettingsError, match=r"^FLOORLINE_CONFIG: cannot read /nowhere\.toml"):
        read_settings(bare, {"FLOORLINE_CONFIG": "/nowhere.toml"})


def test_help_shows_every_flag_with_its_default_and_unit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    for option in OPTIONS:
        assert option.flag in text
    assert "(requests; default: 64)" in text
    assert "(threads; default: the cores it may use)" in text
    assert "a cost object into responses (default: yes)" in text
    assert "How large the KV store is:" in text


def test_the_version_is_printed() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "server.cli.main", "--version"], capture_output=True, check=True
    )
    assert re.fullmatch(rb"floorline \d+\.\d+\.\d+\n", result.stdout)


def test_a_variable_that_no_option_reads_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    parsed = build_parser().parse_args(["serve"])
    read_settings(parsed, {"FLOORLINE_MAX_NUM_SEQ": "3", "FLOORLINE_CACHE": "/x", "OTHER": "1"})
    assert (
        capsys.readouterr().err
        == "floorline: FLOORLINE_MAX_NUM_SEQ is not a setting; it is ignored\n"
    )
