"""`floorline why`: what a running server says of a slow request, or of its last minute.

It asks over HTTP and prints a card that can be pasted. Nothing is judged here.
"""

from __future__ import annotations

import argparse
import json
import os
import textwrap
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from core.errors import SettingsError
from core.inputs.options import ENV_PREFIX

WIDTH: Final = 72
_TIMEOUT_S: Final = 10.0
_KEY_VARIABLE: Final = f"{ENV_PREFIX}API_KEY"

Told = Mapping[str, Any]  # an answer of the server, as JSON


def add_why(commands: argparse._SubParsersAction[Any]) -> None:
    why = commands.add_parser(
        "why",
        help="ask a running server what made a request, or its last minute, slow",
        epilog="Exit status: 0 if nothing was slow, 1 if something was, 2 without an answer.",
    )
    url = "where the server is (default: http://127.0.0.1:8000)"
    why.add_argument("url", nargs="?", default="http://127.0.0.1:8000", metavar="URL", help=url)
    of = why.add_mutually_exclusive_group()
    of.add_argument("--request", metavar="ID", help="one of the last requests, by its id")
    of.add_argument("--window", default="60s", metavar="S", help="the last seconds (default: 60s)")
    why.add_argument("--key", metavar="KEY", help=f"the API key (default: ${_KEY_VARIABLE})")
    why.add_argument("--json", action="store_true", help="print the server's record")
    why.set_defaults(command=why_command)


def why_command(given: argparse.Namespace) -> int:
    """Ask and print.

    Raises:
        SettingsError: there is no answer; names the URL and says why.
    """
    path = f"/debug/why?window={quote(given.window)}"
    if given.request is not None:
        path = f"/debug/requests/{quote(given.request, safe='')}"
    answer = _get(_base(given.url) + path, given.key or os.environ.get(_KEY_VARIABLE))
    told = answer["why"] if given.request is not None else answer
    print(json.dumps(told, indent=1) if given.json else card(told))
    return int(bool(told["slow"]))


def card(told: Told) -> str:
    """Write a sentence, what would help, and the pieces, the largest first."""
    lines = [*textwrap.wrap(told["sentence"], WIDTH)]
    worst = told if told["of"] == "request" else told["worst"]
    if worst is not told and worst is not None:
        lines += ["", f"The slowest, {worst['id']}:", *_indented(worst["sentence"], "  ")]
    for advice in worst["advice"] if worst else ():
        lines += _indented(advice["text"], "  → ")
    whole = sum(told["spent_ms"].values())
    ranked = sorted(told["spent_ms"].items(), key=lambda item: -item[1])
    if ranked:
        lines.append("")
    lines += [f"  {name:<18} {ms:>12,.1f} ms {ms / whole:>5.0%}" for name, ms in ranked]
    if worst is told and told["doubt"]:
        lines += ["", f"Floors here rest on this: {told['doubt']}."]
    return "\n".join(lines)


def _indented(text: str, first: str) -> list[str]:
    rest = " " * len(first)
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest)


def _base(url: str) -> str:
    url = url if "://" in url else f"http://{url}"
    return url.rstrip("/").removesuffix("/v1")


def _get(url: str, key: str | None) -> Any:
    try:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise SettingsError(f"{url}: {error.code}: {_message(error.read())}") from error
    except (OSError, ValueError) as error:
        raise SettingsError(f"{url}: no answer of a Floorline server: {error}") from error


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "not an answer of a Floorline server"
