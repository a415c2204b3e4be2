from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.cli import main


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("loadgen: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_an_unreachable_server_is_named(capsys) -> None:
    assert "cannot reach http://127.0.0.1:9/" in refused(
        capsys, "http://127.0.0.1:9", "--rate", "1"
    )


def test_a_wrong_key_is_told(serve, capsys) -> None:
    server = serve(api_key="right")
    assert "refuses the API key" in refused(capsys, server, "--rate", "1", "--api-key", "wrong")
    assert main([server, "--rate", "50", "--requests", "5", "--quiet", "--api-key", "right"]) in (
        0,
        3,
    )


def test_a_model_that_is_not_there_is_told_with_those_that_are(serve, capsys) -> None:
    assert "the server has mock" in refused(capsys, serve(), "--rate", "1", "--model", "other")


@pytest.mark.parametrize("status", [404, 503])
def test_a_server_that_does_not_list_its_models_is_told_in_its_own_words(serve, capsys, status):
    said = refused(capsys, serve(models_status=status), "--rate", "1")
    assert f"/v1/models answers {status}: " in said
    assert "no list now" in said
    assert "--model" in said


def test_an_empty_name_of_a_model_is_none(serve, capsys) -> None:
    said = refused(capsys, serve(models_status=404), "--rate", "1", "--model", "")
    assert "/v1/models answers 404: " in said


def test_a_server_without_a_list_of_models_works_with_a_named_one(serve, load) -> None:
    url = serve(models_status=404)
    causes, run = load(url, "--rate", "50", "--requests", "5", "--model", "mock")
    assert causes == set()
    assert run["outcomes"] == {"ok": 5}


def test_a_plan_over_the_context_limit_is_refused_before_it_is_sent(serve, capsys) -> None:
    assert "tokens of context" in refused(capsys, serve(max_model_len=50), "--rate", "1")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:9/v1/chat/completions", "--api chat"),
        ("ftp://127.0.0.1", "a server such as http://127.0.0.1:8000"),
        ("127.0.0.1:9", "cannot reach http://127.0.0.1:9/"),
        ("127.0.0.1:0", "a server such as http://127.0.0.1:8000"),
        ("http://localhost:99999", "'http://localhost:99999' is not a server such as http:"),
        ("127.0.0.1:8x", "'127.0.0.1:8x' is not a server such as http:"),
        ("http://[::1", "'http://[::1' is not a server such as http:"),
    ],
)
def test_what_names_no_server_is_told_what_would(capsys, url, said) -> None:
    assert said in refused(capsys, url, "--rate", "1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--rate is missing"),
        (("--rate", "0"), "'0' is not a number above 0"),
        (("--rate", "-1"), "'-1' is not a number above 0"),
        (("--rate", "nan"), "'nan' is not a number above 0"),
        (("--rate", "x"), "'x' is not a number above 0"),
        (("--rate", "1", "--seed", "x"), "'x' is not a whole number"),
        (("--rate", "1", "--requests", "1.5"), "'1.5' is not a whole number"),
        (("--rate", "1", "--requests", "9" * 400), "from 1 to 1,000,000,000"),
        (("--rate", "1", "--timeout", "0"), "'0' is not a time above 0"),
        (("--rate", "1", "--timeout", "1.2.3s"), "'1.2.3s' is not a time"),
        (("--rate", "1", "--duration", "0s"), "'0s' is not a time above 0"),
        (("--rate", "1", "--duration", "-1s"), "as FLAG=VALUE where it begins with -"),
        (("--rate", "1", "--max-error-rate", "x"), "'x' is not a share"),
        (("--rate", "1", "--prompt", "96-32"), "upward"),
        (("--rate", "1", "--output", "0-4"), "at least 1"),
        (("--rate", "1", "--arrival", "ramp:5"), "ramp:A-B"),
        (("--rate", "1", "--slo", "speed=1"), "ttft.p95=500ms"),
        (("--rate", "1", "--slo", "ttft.p95=fast"), "--slo: ttft.p95: 'fast' is not a time"),
        (("--rate", "1", "--slo", "errors=x"), "'x' is not a share"),
        (("--rate", "1", "--goodput", "ttft:x"), "'x' is not a number above 0"),
        (("--rate", "1", "--sessions", "think=exp:2s"), "turns"),
        (("--rate", "1", "--cancel", "200%@1s"), "share"),
        (("--rate", "1", "--cancel", "10%"), "'10%' is not like 10%@0.5s"),
        (("--rate", "1", "--header", "x=é"), "'x=é' is not K=V, in ASCII"),
        (("--rate", "1", "--header", "=v"), "'=v' is not K=V"),
        (("--rate", "1", "--api-key", "schlüssel"), "--api-key: a key is printable ASCII"),
        (("--rate", "1", "--body", "[]"), "'[]' is not a JSON object such as"),
        (("--rate", "1", "--body", "{x"), "'{x' is not a JSON object such as"),
        (("--rate", "1", "--duration", "5s", "--requests", "5"), "--duration"),
        (("--rate", "1", "--warmup", "1000s"), "longer than the plan"),
        (("--arrival", "closed:4", "--warmup", "1000s"), "all 60 requests began before it ended"),
        (("--rate", "1", "--nonsense"), "--nonsense"),
        (("--plan", "/nowhere/plan.jsonl"), "--plan /nowhere/plan.jsonl: No such file"),
        (
            ("--rate", "1", "--seed", "3", "--plan", "plan.jsonl"),
            "cannot be combined with --rate, --seed",
        ),
        (("--prompt", "=5", "--trace", "a.csv"), "--trace cannot be combined with --prompt"),
        (
            ("--rate", "1", "--speed", "2", "--map", "prompt:1-2"),
            "--speed, --map: only for a load from --trace",
        ),
        (("--rate", "1", "--out", ""), "--out: the file name is empty"),
        (("--plan", ""), "--plan: the file name is empty"),
        (("--trace", "/nowhere/trace.csv"), "--trace /nowhere/trace.csv: No such file"),
        (("--rate", "1", "--out", "/proc/nowhere/run"), "--out"),
        (("--rate", "1", "--workers", "4", "--max-inflight", "2"), "--workers 4"),
    ],
)
def test_bad_flags_are_one_line(serve, capsys, words, said) -> None:
    server = serve() if "--warmup" in words or "--workers" in words else "http://127.0.0.1:9"
    assert said in refused(capsys, server, *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sweep", "--rates", "1,2", "--plan", "plan.jsonl"), "--plan"),
        (("sweep", "--rates", "1,2", "--rate", "3"), "--rate"),
        (("sweep", "--rates", "1,2", "--arrival", "closed:4"), "--rate does not change a trace"),
        (("search", "--trace", "a.csv", "--slo", "ttft.p50=1s"), "--rate does not change a trace"),
        (("search", "--slo", "ttft.p50=1s", "--plan", "plan.jsonl"), "--plan"),
        (("plan", "--rate", "1", "-o", ""), "-o: the file name is empty"),
        (("plan", "--rate", "1", "-o", "/"), "cannot write /"),
    ],
)
def test_an_option_that_would_be_passed_over_is_refused(capsys, words, said) -> None:
    assert said in refused(capsys, *words)


def test_nothing_is_written_when_the_preflight_fails(tmp_path: Path, capsys) -> None:
    refused(capsys, "http://127.0.0.1:9", "--rate", "1", "--out", str(tmp_path / "run"))
    assert list(tmp_path.rglob("*.*")) == []


def test_a_bad_row_of_a_trace_is_named_by_its_line(tmp_path: Path, capsys) -> None:
    trace = tmp_path / "trace.csv"
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    trace.write_text(f"{head}2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:47,ten,44\n")
    said = refused(capsys, "http://127.0.0.1:9", "--trace", str(trace))
    assert (
        "line 3: needs TIMESTAMP, ContextTokens of at least 1 and GeneratedTokens of at least 0"
        in said
    )


def test_a_file_that_is_no_plan_is_told_without_the_words_of_a_parser(tmp_path: Path, capsys):
    for text in ("", "# Floorline\n", "[]\n", '{"sha256": "", "spec": {}}\n{"x": 1}\n'):
        (tmp_path / "plan.jsonl").write_text(text)
        said = refused(capsys, "http://127.0.0.1:9", "--plan", str(tmp_path / "plan.jsonl"))
        assert said.endswith("plan.jsonl: not a file that loadgen plan wrote\n")


def test_a_changed_plan_is_refused(tmp_path: Path, capsys) -> None:
    stored = tmp_path / "plan.jsonl"
    main(["plan", "--rate", "1", "-o", str(stored)])
    capsys.readouterr()
    stored.write_text(stored.read_text().replace('"output_tokens": 47', '"output_tokens": 48'))
    assert "hash" in refused(capsys, "http://127.0.0.1:9", "--plan", str(stored))


def test_a_folder_without_a_run_is_refused(tmp_path: Path, capsys) -> None:
    missing = f"loadgen: no run to read: {tmp_path}/run.json: No such file or directory\n"
    assert refused(capsys, "report", str(tmp_path)) == missing
    assert "no run to read" in refused(capsys, "compare", str(tmp_path), str(tmp_path))


def test_help_and_version_are_no_errors(capsys) -> None:
    for flag in ("--help", "--version"):
        with pytest.raises(SystemExit) as ended:
            main([flag])
        assert ended.value.code == 0
    assert "--max-inflight" in capsys.readouterr().out
