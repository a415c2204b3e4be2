"""Turns a grammar's text into masks over the vocabulary, by llguidance. No tensors live here.

The server imports this file too, to refuse a bad grammar before it is queued: it needs no torch.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from core.errors import InvalidValue
from core.model import ModelConfig
from core.request import Grammar, GrammarKind
from grammar.vocabulary import special_texts, within_vocabulary

log = logging.getLogger("floorline.engine")

MAX_TEXT_BYTES: Final = 64 * 1024
_MAX_MESSAGE: Final = 300  # characters of the library's own words
_ADVICE: Final = {  # it names options that no request has
    "Enable 'coerce_one_of' option to approximate oneOf with anyOf": "Use anyOf, or branches of "
    "which no two can fit",
}
_KEPT: Final = 32  # compiled grammars

# Work is counted, and too much of it is an error. A lexer state takes 0.5 to 2 kB. Each character
# of a text with a bound takes nine of them: about 3,500 in all, equal bounds once.
# With so many items the worst mask found took 0.2 s, once, since the error lasts.
_LIMITS: Final = LLParserLimits(
    max_lexer_states=32_000, step_max_items=10_000, verbose_errors=False
)

# White space only where one blank is usual: unbounded, a model may emit it until its length ends.
JSON_OPTIONS: Final[Any] = {
    "whitespace_flexible": False,
    "item_separator": ", ?",
    "key_separator": ": ?",
    "lenient": False,
    "coerce_one_of": False,
}


def validate(grammar: Grammar) -> None:
    """Refuse what cannot be compiled, however long that takes to find out.

    Raises:
        InvalidValue: no such grammar; the message names the keyword or the place.
    """
    text = _library_text(grammar)
    failed, messages = LLMatcher.validate_grammar_with_warnings(text, limits=_LIMITS)
    if failed or (messages and grammar.kind is GrammarKind.JSON_SCHEMA):
        raise _fault(grammar, messages[0])
    matcher = LLMatcher(_bytes(), text, log_level=0, limits=_LIMITS)
    matcher.compute_bitmask()  # some that compile have no first token, or too much work in it
    if matcher.is_error():
        raise _fault(grammar, f"no output can follow it ({matcher.get_error()})")


@functools.cache
def _bytes() -> LLTokenizer:
    """The vocabulary of single bytes: what no output of it can begin, none of another's can."""
    return LLTokenizer("byte")


class Matcher:
    """Follows one output through its grammar.

    Invariant: what is allowed next is a function of the output alone; an output that is not the
        last one plus more tokens is followed anew from its start.
    """

    def __init__(self, matcher: LLMatcher, vocab_size: int, end_token_ids: frozenset[int]) -> None:
        self._matcher, self._vocab_size = matcher, vocab_size
        self._followed: list[int] = []
        self.end_token_ids = end_token_ids
        self._fault = ""  # what the library raised

    def allowed(self, output_ids: Sequence[int], stop_token_ids: Iterable[int]) -> np.ndarray:
        """Tell which tokens may come next; those that end the output, where it may end.

        Returns: [V] bool; all False where the output left the grammar or the limits: see `error`.
        """
        nothing = np.zeros(self._vocab_size, dtype=bool)
        try:
            self._follow(list(output_ids))
            bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        except Exception as error:  # the library's: the step is not this request's alone
            log.exception("a grammar could not be followed")
            self._fault = f"{type(error).__name__}: {error}"
            return nothing
        if self._matcher.is_error():
            return nothing
        mask = np.unpackbits(bits, count=self._vocab_size, bitorder="little").view(bool)
        mask[list(stop_token_ids)] = self._matcher.is_accepting()
        return mask

    @property
    def error(self) -> str:
        """Why nothing is allowed any more; empty while something is."""
        return _one_line(self._fault or self._matcher.get_error())

    def _follow(self, output_ids: list[int]) -> None:
        known = len(self._followed)
        if output_ids[:known] != self._followed:
            self._matcher.reset()
            known = 0
        if len(output_ids) > known:
            self._matcher.consume_tokens(output_ids[known:])
        self._followed = output_ids


class GrammarCompiler:
    """Compiles grammars for one vocabulary. Safe to call from several threads."""

    def __init__(
        self, tokenizer: LLTokenizer, end_token_ids: Iterable[int], special: Iterable[str] = ()
    ) -> None:
        self._tokenizer, self._end_token_ids = tokenizer, frozenset(end_token_ids)
        self._special = tuple(special)  # texts of special tokens
        self._compiled = functools.lru_cache(_KEPT)(self._compile)

    @classmethod
    def load(cls, model_dir: Path, config: ModelConfig) -> GrammarCompiler:
        """Read a prepared model's `tokenizer.json`.

        Cost: up to 0.5 s, all of it under Python's lock.
        Raises:
            ValueError: the library cannot read the file, or the model knows no end of sequence.
        """
        if not config.eos_token_ids:
            raise ValueError(f"{config.name} has no end-of-sequence token")
        text, ends = (model_dir / "tokenizer.json").read_text("utf-8"), list(config.eos_token_ids)
        known = within_vocabulary(text, config.vocab_size)
        tokenizer = LLTokenizer(known, n_vocab=config.vocab_size, eos_token=ends)
        if tokenizer.vocab_size != config.vocab_size:  # its masks would not fit the logits
            raise ValueError(f"the library reads {tokenizer.vocab_size} ids from its tokenizer")
        return cls(tokenizer, ends, special_texts(text))

    def compile(self, grammar: Grammar) -> Matcher:
        """Give a matcher at the start of an output.

        Cost: up to 0.1 s without Python's lock; 1 ms for a grammar compiled a short while ago.
        Raises:
            InvalidValue: no such grammar.
        """
        matcher = self._compiled(grammar).deep_copy()
        return Matcher(matcher, self._tokenizer.vocab_size, self._end_token_ids)

    def _compile(self, grammar: Grammar) -> LLMatcher:
        text = _library_text(grammar)
        if self._may_spell_special(grammar.text):
            text = _unforced(text)
        matcher = LLMatcher(self._tokenizer, text, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise _fault(grammar, matcher.get_error())
        return matcher

    def _may_spell_special(self, text: str) -> bool:
        """Say whether the text of a special token may be among what the grammar allows."""
        plain = text.replace("\\", "")
        escaped = "\\u" in text or "\\x" in text
        return escaped or any(special in plain for special in self._special)


def _unforced(library_text: str) -> str:
    """Have the library list all tokens that fit, also where one text alone may follow.

    It would encode that text, and read a special token in it, which then fits nothing: what the
    grammar says is text.
    """
    option = '\n%llguidance {"no_forcing": true}\n'  # last, so that it holds whatever stands before
    try:
        (inner,) = json.loads(library_text)["grammars"]
    except ValueError:  # it is Lark as it stands
        return library_text + option
    lark = inner["lark_grammar"]
    if lark is None:
        lark = f"start: %json {json.dumps(inner['json_schema'], ensure_ascii=False)}"
    return str(lark) + option


def _library_text(grammar: Grammar) -> str:
    try:
        if len(grammar.text.encode()) > MAX_TEXT_BYTES:
            raise ValueError(f"longer than {MAX_TEXT_BYTES} bytes")
        match grammar.kind:
            case GrammarKind.JSON_OBJECT:
                return LLMatcher.grammar_from_json_schema(
                    '{"type": "object"}', overrides=JSON_OPTIONS
                )
            case GrammarKind.JSON_SCHEMA:
                return LLMatcher.grammar_from_json_schema(grammar.text, overrides=JSON_OPTIONS)
            case GrammarKind.REGEX:
                return LLMatcher.grammar_from_regex(grammar.text)
            case GrammarKind.CHOICE:
                return LLMatcher.grammar_from_lark(_any_of(json.loads(grammar.text)))
            case GrammarKind.LARK:
                return LLMatcher.grammar_from_lark(grammar.text)
    except (ValueError, RecursionError) as error:
        raise _fault(grammar, str(error)) from None


def _any_of(choices: object) -> str:
    if not (isinstance(choices, list) and choices and all(isinstance(c, str) for c in choices)):
        raise ValueError("not a list of at least one string")
    return "start: " + " | ".join(json.dumps(choice) for choice in choices)


def _fault(grammar: Grammar, message: str) -> InvalidValue:
    for theirs, ours in _ADVICE.items():
        message = message.replace(theirs, ours)
    return InvalidValue(f"{grammar.kind}: {_one_line(message)}")


def _one_line(message: str) -> str:
    return " ".join(message.split())[:_MAX_MESSAGE]
