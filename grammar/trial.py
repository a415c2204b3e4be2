"""Compiles a grammar in a process of its own, which can be killed. No tensors live here.

The library bounds its work in steps, but not what a step costs where a JSON schema intersects many
patterns: 16 of them took 1 s, 20 took 25 s. A thread that is caught in it cannot be stopped.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from typing import Final

from core.children import die_with_parent, python_child
from core.errors import InvalidValue
from core.request import Grammar, GrammarKind
from grammar.compile import validate

LIMIT_S: Final = 3  # of processor time, so that a busy machine refuses nothing; the start among it
_PATIENCE_S: Final = 60.0  # ends a process that the machine does not run
_REFUSED: Final = 3  # exit status; the message is on standard output


def try_grammar(grammar: Grammar) -> None:
    """Compile, and forget.

    Raises:
        InvalidValue: it cannot be compiled, or not in time.
    """
    child = python_child("grammar.trial", grammar.kind)
    try:
        done = subprocess.run(
            child.command,
            env=child.environment,
            input=grammar.text.encode(),
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InvalidValue(f"{grammar.kind}: not compiled in {_PATIENCE_S:g} s") from None
    if done.returncode == -signal.SIGXCPU:
        message = f"{grammar.kind}: not compiled in {LIMIT_S} s; it combines too many patterns"
        raise InvalidValue(message)
    if done.returncode == _REFUSED:
        raise InvalidValue(done.stdout.decode())
    done.check_returncode()


def main() -> int:
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 1))
    text = sys.stdin.buffer.read().decode()
    try:
        validate(Grammar(GrammarKind(sys.argv[1]), text))
    except InvalidValue as error:
        sys.stdout.buffer.write(error.message.encode())
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
