"""The process that renders chat templates: tasks on standard input, answers on standard output.

It renders until its input ends. What limits it is set here, before a template is read; who waits
for it ends it when it takes too long. `marshal` carries what JSON cannot: tuples, large integers.
"""

from __future__ import annotations

import marshal
import resource
import struct
import sys
import time
from enum import StrEnum
from typing import Any, Final

from core.children import die_with_parent
from core.errors import ModelError, TemplateFailed
from server.templates.chat_template import ChatTemplate, RenderedTooLong

MEMORY_BYTES: Final = 512 * 2**20  # address space; an interpreter with Jinja takes a tenth
KEPT: Final = 4  # compiled: a model has one template or two, with marks and without
SPARE_S: Final = 1  # processor time beyond the template's, for what is around it
HEADER: Final = struct.Struct(">cQ")  # how it went, and how many bytes follow
LENGTH: Final = struct.Struct(">Q")

Task = tuple[str, dict[str, str], dict[str, Any], float, int, dict[str, str]]
# source, tokens, variables, timeout in seconds, most bytes of output, marks


class Outcome(StrEnum):
    READY = "r"  # it was started, and can take a task
    RENDERED = "t"  # the text follows
    FAILED = "f"  # a complaint follows
    TOO_LONG = "l"


def main() -> None:
    """Answer tasks until standard input ends."""
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    templates: dict[Any, ChatTemplate] = {}
    _answer(Outcome.READY, b"")
    while size := sys.stdin.buffer.read(LENGTH.size):
        task = marshal.loads(sys.stdin.buffer.read(*LENGTH.unpack(size)))
        _answer(*_render(task, templates))


def _render(task: Task, kept: dict[Any, ChatTemplate]) -> tuple[Outcome, bytes]:
    """Render one task; the templates of the last ones are kept compiled."""
    source, tokens, variables, timeout_s, most_bytes, marks = task
    _limit_time(timeout_s)
    key = (source, tuple(tokens.items()), tuple(marks.items()))
    try:
        if key not in kept:
            if len(kept) == KEPT:
                kept.clear()
            kept[key] = ChatTemplate(source, tokens, timeout_s, marks)
        return Outcome.RENDERED, kept[key].render(variables, most_bytes)
    except (ModelError, TemplateFailed) as error:
        return Outcome.FAILED, str(error)[:500].encode("utf-8", "replace")
    except RenderedTooLong:
        return Outcome.TOO_LONG, b""


def _limit_time(timeout_s: float) -> None:
    """Let the system end this process where its parent is gone and can do so no more."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    used_s = time.process_time()
    soft = int(used_s + timeout_s) + 1 + SPARE_S
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _answer(outcome: Outcome, text: bytes) -> None:
    sys.stdout.buffer.write(HEADER.pack(outcome.encode(), len(text)) + text)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
