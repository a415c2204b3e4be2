"""API keys: which are refused at start, and whose tenant a header stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import SettingsError
from core.settings import HttpSettings
from server.cli.main import build_parser, read_settings
from server.cli.options import resolve
from server.http.keys import Keyring, parse_keys


def test_a_bare_key_is_the_default_tenants_and_a_name_is_a_tenant() -> None:
    ring = Keyring(("s3cret", "alice=one=two", "bob=k"))
    assert ring.tenant_of("Bearer s3cret") == "default"
    assert ring.tenant_of("bearer  one=two ") == "alice"
    assert ring.tenant_of("Bearer k") == "bob"


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Bearer s", "Bearer bob=k", "Basic k", "k", "Bearer k k", "Bearer ü"],
)
def test_nobody_else_is_a_tenant(header: str) -> None:
    assert Keyring(("s3cret", "bob=k")).tenant_of(header) is None


def test_without_keys_everybody_is_the_default_tenant() -> None:
    assert Keyring(None).tenant_of("") == "default"
    assert Keyring(None).tenant_of("Bearer any") == "default"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ((), "must not be empty"),
        (("",), "key 1 of 1: it must not be empty"),
        (("k", "alice="), "key 2 of 2: it must not be empty"),
        (("c2VjcmV0MQ==",), "key 1 of 1: it must not be empty; one with an = in it needs a name"),
        (("=k",), "its name must be 1 to 64 letters"),
        (("-a=k",), "its name must be 1 to 64 letters"),
        (("_shared=k",), "its name must be 1 to 64 letters"),
        (("a/b=k",), "its name must be 1 to 64 letters"),
        (("é=k",), "its name must be 1 to 64 letters"),
        (("a" * 65 + "=k",), "its name must be 1 to 64 letters"),
        (("other=k",), "the name 'other' is reserved"),
        (("a=k k",), "printable ASCII without spaces"),
        (("schlüssel",), "printable ASCII without spaces"),
        (("a=k\n",), "printable ASCII without spaces"),
        (("a=1", "b=2", "a=3"), "key 3 of 3: its name is taken"),
        (("1", "default=2"), "key 2 of 2: its name is taken"),
        (("a=k", "k"), "key 2 of 2: it is the same as one before it"),
        (tuple(f"t{i}=k{i}" for i in range(65)), "key 65 of 65: there may be 64 names at most"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_by_its_place(
    texts: tuple[str, ...], words: str
) -> None:
    with pytest.raises(SettingsError, match=f"^--api-key: .*{words}"):
        parse_keys(texts, "--api-key")


def test_as_many_names_as_metrics_tell_apart_are_taken() -> None:
    assert len(parse_keys([f"t{i}=k{i}" for i in range(64)], "--api-key")) == 64


def test_no_refusal_shows_what_may_be_a_secret() -> None:
    for texts in (("S3CR3T/x=y",), ("S3CR3T==",), ("S3CR3T S3CR3T",), ("a=S3CR3T", "b=S3CR3T")):
        with pytest.raises(SettingsError) as caught:
            parse_keys(texts, "--api-key")
        assert "S3CR3T" not in str(caught.value)


def test_the_flag_is_repeated_the_variable_has_words_and_the_file_a_list() -> None:
    keys = ("alice=1", "bob=2")
    parsed = build_parser().parse_args(["serve", "--api-key", "alice=1", "--api-key", "bob=2"])
    assert read_settings(parsed, {}).http == HttpSettings(api_key=keys)
    assert resolve({}, {"FLOORLINE_API_KEY": " alice=1  bob=2"}, {}, "").http.api_key == keys
    assert resolve({}, {}, {"api-key": list(keys)}, "").http.api_key == keys
    assert resolve({}, {}, {"api_key": "alice=1"}, "").http.api_key == keys[:1]
    assert resolve({"api_key": "k"}, {"FLOORLINE_API_KEY": "l"}, {}, "").http.api_key == ("k",)


def test_a_space_in_a_flag_or_in_the_file_does_not_make_two_keys_of_one() -> None:
    with pytest.raises(SettingsError, match=r"^--api-key: key 1 of 1"):
        resolve({"api_key": ["alice=1 2"]}, {}, {}, "")
    with pytest.raises(SettingsError, match=r"^a\.toml: api_key: key 1 of 1"):
        resolve({}, {}, {"api_key": "alice=1 2"}, "a.toml")


def test_keys_come_from_a_file_too_and_the_scrape_key_must_be_another(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# of the tenants\nalice=one\n\n  bob=two\n")
    http = resolve({"api_key_file": str(file), "api_key": ["k"]}, {}, {}, "").http
    ring = Keyring(http.api_key)
    assert [ring.tenant_of(f"Bearer {key}") for key in ("one", "two", "k")] == [
        "alice",
        "bob",
        "default",
    ]
    with pytest.raises(SettingsError, match="no tenant's key"):
        Keyring(http.api_key, "two")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"a=1\na=2\n", "key 2 of 2: its name is taken"), (b"\xff", "not UTF-8"), (b"", "empty")],
)
def test_a_file_of_keys_that_cannot_be_used_is_refused_and_shows_none(
    tmp_path: Path, content: bytes, words: str
) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=f"--api-key-file: .*{words}"):
        resolve({"api_key_file": str(file)}, {}, {}, "")


def test_a_missing_file_of_keys_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="--api-key-file: cannot read /no/keys: No such file"):
        resolve({"api_key_file": "/no/keys"}, {}, {}, "")


def test_a_key_on_the_command_line_is_warned_of_without_being_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    read_settings(build_parser().parse_args(["serve", "--api-key", "s3cret"]), {})
    said = capsys.readouterr().err
    assert "--api-key on the command line is shown" in said
    assert "s3cret" not in said
    read_settings(build_parser().parse_args(["serve"]), {"FLOORLINE_API_KEY": "s3cret"})
    assert capsys.readouterr().err == ""
