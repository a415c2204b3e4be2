"""Compiles a grammar in a process of its own, which can be killed. No tensors live here.

The library bounds its work in steps, but not what a step costs where a JSON schema intersects many
patterns: 16 of them took 1 s, 20 took 25 s. A thread that is caught in it cannot be stopped.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from core.errors import InvalidValue
from core.request import Grammar, GrammarKind

LIMIT_S: Final = 3.0  # the start of the process, some 0.2 s, among them
_REFUSED: Final = 3  # exit status; the message is on standard output


def try_grammar(grammar: Grammar) -> None:
    """Compile, and forget.

    Raises:
        InvalidValue: it cannot be compiled, or not in time.
    """
    command = [sys.executable, "-m", "engine.grammar_trial", grammar.kind]
    try:
        done = subprocess.run(
            command, input=grammar.text.encode(), capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        message = f"{grammar.kind}: not compiled in {LIMIT_S:g} s; it combines too many patterns"
        raise InvalidValue(message) from None
    if done.returncode == _REFUSED:
        raise InvalidValue(done.stdout.decode())
    done.check_returncode()


def main() -> int:
    from engine.grammar import validate

    text = sys.stdin.buffer.read().decode()
    try:
        validate(Grammar(GrammarKind(sys.argv[1]), text))
    except InvalidValue as error:
        sys.stdout.buffer.write(error.message.encode())
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
