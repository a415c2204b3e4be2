"""The command line: `floorline serve`, `calibrate`, `models`, `why`, `plan`, `lab`.

It decides nothing. Imports of the server's heavier parts wait until a command needs them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from core.children import python_child
from core.errors import EngineDead, ModelError, SettingsError
from core.inputs.options import ENV_PREFIX, USAGE_ERROR, Parser, add_options
from core.settings import Settings
from core.version import version
from lab.commands import add_commands
from server.cli.options import OPTIONS, resolve
from server.cli.why import add_why

CONFIG_VARIABLE: Final = f"{ENV_PREFIX}CONFIG"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0, 2 for what the caller got wrong, 1 for us."""
    try:
        parsed = build_parser().parse_args(arguments)
        return int(parsed.command(parsed))
    except (ModelError, SettingsError, EngineDead) as error:
        print(f"floorline: error: {error}", file=sys.stderr)
        return 1 if isinstance(error, EngineDead) else USAGE_ERROR
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # whoever read our output has enough; Python must not write the rest when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="floorline", description="An LLM server that knows its own arithmetic.")
    parser.add_argument("--version", action="version", version=f"floorline {version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    serve = commands.add_parser(
        "serve",
        help="serve a model over an OpenAI-compatible API",
        epilog="Every flag is also a variable (--max-num-seqs: FLOORLINE_MAX_NUM_SEQS) and a key "
        "of the --config file (max-num-seqs = 64). A flag wins over a variable, and a variable "
        "over the file.",
    )
    serve.add_argument("--config", metavar="FILE", help="TOML file with settings")
    add_options(serve, OPTIONS)
    serve.set_defaults(command=_serve)
    calibrate = commands.add_parser("calibrate", help="measure this machine's peaks again")
    calibrate.set_defaults(command=_calibrate)
    models = commands.add_parser("models", help="list presets, and the models that are prepared")
    models.set_defaults(command=_models)
    add_why(commands)
    add_commands(commands)
    return parser


def read_settings(
    parsed: argparse.Namespace, environment: Mapping[str, str] = os.environ
) -> Settings:
    """Resolve flags, variables and the file named by --config, or by its variable.

    Raises:
        SettingsError: names what cannot be used.
    """
    _warn_of_unknown(environment)
    given = {option.name for option in OPTIONS} & vars(parsed).keys()
    for name in given & {"api_key", "scrape_key"}:
        flag = name.replace("_", "-")
        print(
            f"floorline: --{flag} on the command line is shown to everybody on this machine (ps); "
            f"use {ENV_PREFIX}{name.upper()} or a file",
            file=sys.stderr,
        )
    flags = {
        name: value if isinstance(value := getattr(parsed, name), list) else str(value)
        for name in given
    }
    source, path = "--config", parsed.config
    if path is None:
        source, path = CONFIG_VARIABLE, environment.get(CONFIG_VARIABLE)
    return resolve(flags, environment, _read_file(source, path), path or "")


def _warn_of_unknown(environment: Mapping[str, str]) -> None:
    """Tell of variables that no option reads: a typing error, or a cluster's own variables."""
    known = {option.variable for option in OPTIONS} | {CONFIG_VARIABLE, "FLOORLINE_CACHE"}
    for name in environment:
        if name.startswith(ENV_PREFIX) and name not in known:
            print(f"floorline: {name} is not a setting; it is ignored", file=sys.stderr)


def _read_file(source: str, path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{source}: cannot read {path}: {error}") from None


def _serve(parsed: argparse.Namespace) -> int:
    settings = read_settings(parsed)
    from server.cli.serve import run

    run(settings)
    _leave()
    return 0


def _leave() -> None:
    """Exit with status 0 at once: a thread that still encodes or compiles is not waited for."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, full or none
            stream.flush()
    os._exit(0)


def _calibrate(_: argparse.Namespace) -> int:
    child = python_child("engine", "--calibrate")
    return subprocess.run(child.command, env=child.environment, check=False).returncode


def _models(_: argparse.Namespace) -> int:
    from server.cli.models import list_models

    list_models()
    return 0


if __name__ == "__main__":
    sys.exit(main())
