"""Says whether a grammar can be compiled in time, before its request is queued."""

from __future__ import annotations

import json
from typing import Final

from core.request import Grammar, GrammarKind
from grammar.compile import validate
from grammar.trial import try_grammar

_MANY_PATTERNS: Final = 8  # to intersect them takes 5 ms; each more can double that


def check_grammar(grammar: Grammar) -> None:
    """Refuse what cannot be compiled, or not in time.

    Cost: up to 0.1 s, or 3 s in a process where a schema has many patterns; not for an event loop.
    Raises:
        InvalidValue: no such grammar; the message names the keyword or the place.
    """
    if _patterns(grammar) > _MANY_PATTERNS:
        try_grammar(grammar)
    else:
        validate(grammar)


def _patterns(grammar: Grammar) -> int:
    """Count the keywords that make a schema's regular expressions, however they are escaped."""
    text = grammar.text
    if grammar.kind is GrammarKind.LARK and "%json" in text:
        if "\\u" in text:  # a keyword may be spelled so, and cannot be cut out here
            return _MANY_PATTERNS + 1
    elif grammar.kind is not GrammarKind.JSON_SCHEMA:
        return 0
    else:
        try:
            text = json.dumps(json.loads(text))
        except (ValueError, RecursionError):  # the library says it better
            return 0
    return text.count('"pattern') + text.count('"format"')
