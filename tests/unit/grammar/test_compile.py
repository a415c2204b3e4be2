"""Grammars over a byte vocabulary: what may come next, where an output may end, what is refused."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import InvalidValue
from core.request import Grammar, GrammarKind
from grammar.check import check_grammar
from grammar.compile import MAX_TEXT_BYTES, GrammarCompiler, Matcher
from tests.fakes_engine import EOS, IM_END, MODEL

ENDS = frozenset({EOS, IM_END})
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "size": {"enum": ["s", "m", "l"]},
        "tags": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    },
    "required": ["name", "size"],
    "additionalProperties": False,
}


def schema(value: object) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(value))


def choice(*texts: str) -> Grammar:
    return Grammar(GrammarKind.CHOICE, json.dumps(texts))


def allowed(matcher: Matcher, output: bytes, stop: frozenset[int] = ENDS) -> set[int]:
    return set(matcher.allowed(list(output), stop).nonzero()[0].tolist())


def walk(matcher: Matcher, seed: int, most: int = 400) -> bytes | None:
    """Take random allowed tokens until the output ends itself; None where it does not in time."""
    rng, output = random.Random(seed), bytearray()
    while len(output) < most:
        token = rng.choice(sorted(allowed(matcher, bytes(output))))
        if token in ENDS:
            return bytes(output)
        output.append(token)
    return None


def test_what_may_follow_a_choice_is_what_its_prefixes_say(compiler: GrammarCompiler) -> None:
    """The twin: a token may come if some text starts so, and the end if some text is this."""
    texts = ["yes", "yesterday", "no", 'née "x"\n\\', "🦊", "n"]
    whole = [text.encode() for text in texts]
    for text in whole:
        for cut in range(len(text) + 1):
            prefix = text[:cut]
            longer = {w[cut] for w in whole if w.startswith(prefix) and len(w) > cut}
            expected = longer | (ENDS if prefix in whole else set())
            assert allowed(compiler.compile(choice(*texts)), prefix) == expected


@pytest.mark.parametrize(
    "pattern", [r"[a-c]{2,4}[0-9]+x?", r"(ab|a)*c", r"-?[0-9]{1,3}(\.[0-9]+)?"]
)
def test_every_walk_that_ends_matches_its_regex(compiler: GrammarCompiler, pattern: str) -> None:
    matcher = compiler.compile(Grammar(GrammarKind.REGEX, pattern))
    ended = [text for seed in range(60) if (text := walk(matcher, seed)) is not None]
    assert len(set(ended)) > 10
    assert all(re.fullmatch(pattern, text.decode()) for text in ended)


def test_every_walk_that_ends_parses_and_fits_its_schema(compiler: GrammarCompiler) -> None:
    matcher = compiler.compile(schema(SCHEMA))
    ended = [text for seed in range(60) if (text := walk(matcher, seed)) is not None]
    assert len(set(ended)) > 10
    for text in ended:
        value = json.loads(text)
        assert {"name", "size"} <= set(value) <= {"name", "size", "tags"}
        assert len(value["name"]) <= 5
        assert value["size"] in ("s", "m", "l")
        assert all(type(tag) is int for tag in value.get("tags", []))


def test_json_object_is_an_object_and_its_white_space_cannot_go_on(
    compiler: GrammarCompiler,
) -> None:
    matcher = compiler.compile(Grammar(GrammarKind.JSON_OBJECT))
    assert allowed(matcher, b"") == {ord("{")}
    assert ord(" ") in allowed(matcher, b'{"a":')
    assert ord(" ") not in allowed(matcher, b'{"a": ')
    assert allowed(matcher, b'{"a": 1}') == ENDS


def test_a_lark_grammar_nests(compiler: GrammarCompiler) -> None:
    matcher = compiler.compile(Grammar(GrammarKind.LARK, 'start: "(" start ")" | "x"'))
    assert allowed(matcher, b"((x") == {ord(")")}
    assert allowed(matcher, b"((x))") == ENDS


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (choice("a<|im_end|>"), "a<|im_end|>"),
        (schema({"const": "<|bos|>"}), '"<|bos|>"'),
        (Grammar(GrammarKind.JSON_SCHEMA, '{"const": "\\u003c|bos|>"}'), '"<|bos|>"'),
        (Grammar(GrammarKind.REGEX, r"<\|eos\|>x"), "<|eos|>x"),
        (Grammar(GrammarKind.LARK, 'start: "<|im_start|>" %json {"const": "<|eos|>"}'),
         '<|im_start|>"<|eos|>"'),
        (Grammar(GrammarKind.LARK, '%llguidance {"no_forcing": false}\nstart: "<|eos|>"'),
         "<|eos|>"),
    ],
)  # fmt: skip
def test_the_text_of_a_special_token_in_a_grammar_is_text(
    compiler: GrammarCompiler, grammar: Grammar, text: str
) -> None:
    matcher, data = compiler.compile(grammar), text.encode()
    for at, byte in enumerate(data):
        assert byte in allowed(matcher, data[:at])
    assert allowed(matcher, data) == ENDS


def test_a_stop_token_may_come_only_where_the_output_may_end(compiler: GrammarCompiler) -> None:
    matcher = compiler.compile(choice("ab", "abc"))
    stop = ENDS | {ord("b"), ord("z")}
    assert allowed(matcher, b"a", stop) == set()
    assert allowed(matcher, b"ab", stop) == stop | {ord("c")}


def test_an_output_that_is_no_continuation_of_the_last_is_followed_anew(
    compiler: GrammarCompiler,
) -> None:
    grammar = schema(SCHEMA)
    matcher, outputs = compiler.compile(grammar), [b'{"name": "a', b"", b'{"na', b'{"name": "xy"']
    for output in outputs:
        assert allowed(matcher, output) == allowed(compiler.compile(grammar), output)


def test_an_output_that_left_its_grammar_allows_nothing_and_says_why(
    compiler: GrammarCompiler,
) -> None:
    matcher = compiler.compile(choice("yes"))
    assert not matcher.error
    assert allowed(matcher, b"no") == set()
    assert "doesn't satisfy the grammar" in matcher.error


def test_a_recursion_without_end_allows_nothing_and_says_why(compiler: GrammarCompiler) -> None:
    matcher = compiler.compile(schema({"$ref": "#"}))
    assert allowed(matcher, b"") == set()
    assert matcher.error


def test_matchers_of_one_grammar_do_not_share_their_state(compiler: GrammarCompiler) -> None:
    first, second = compiler.compile(choice("ab")), compiler.compile(choice("ab"))
    assert allowed(first, b"a") == {ord("b")}
    assert allowed(second, b"") == {ord("a")}


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        (schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (schema({"type": "string", "format": "strange"}), "strange"),
        (schema({"type": "strnig"}), "strnig"),
        (schema({"oneOf": [{"type": "object"}, {"minProperties": 1}]}), "oneOf"),
        (schema({"oneOf": [{"type": "object"}, {"minProperties": 1}]}), "Use anyOf"),
        (schema({"uniqueItems": True, "x-guidance": {"lenient": True}}), "uniqueItems"),
        (schema({"$ref": "http://example.com/a"}), "example.com"),
        (schema(True), "object schema"),
        (Grammar(GrammarKind.JSON_SCHEMA, "{"), "EOF"),
        (Grammar(GrammarKind.JSON_SCHEMA, '{"items":' * 2000 + "{}" + "}" * 2000), "recursion"),
        (Grammar(GrammarKind.REGEX, "(a"), "unclosed group"),
        (Grammar(GrammarKind.REGEX, "(?=a)b"), "look-around"),
        (Grammar(GrammarKind.REGEX, "a" * (MAX_TEXT_BYTES + 1)), str(MAX_TEXT_BYTES)),
        (Grammar(GrammarKind.REGEX, "\ud83d"), "surrogates"),
        (choice(), "at least one string"),
        (Grammar(GrammarKind.CHOICE, '["a", 1]'), "at least one string"),
        (Grammar(GrammarKind.CHOICE, "[" * 30_000), "recursion"),
        (Grammar(GrammarKind.LARK, "start: foo"), "foo"),
        (Grammar(GrammarKind.LARK), "Empty"),
    ],
    ids=lambda value: f"{value.kind} {value.text[:40]}" if isinstance(value, Grammar) else None,
)
def test_what_cannot_be_had_is_refused_by_name(
    compiler: GrammarCompiler, grammar: Grammar, said: str
) -> None:
    for refuse in (check_grammar, compiler.compile):
        with pytest.raises(InvalidValue) as caught:
            refuse(grammar)
        assert caught.value.message.startswith(f"{grammar.kind}: ")
        assert said in caught.value.message
        assert len(caught.value.message) < 400
        assert "\n" not in caught.value.message


def intersection(patterns: int) -> Grammar:
    """A schema of so many patterns at one place that the library works exponentially long."""
    letters = "abcdefghijklmnopqrstuvwxyz"[:patterns]
    rules = [rf"(.*[{letter}].{{{10 + at}}}.*)" for at, letter in enumerate(letters)]
    return schema({"allOf": [{"type": "string", "pattern": rule} for rule in rules]})


def test_a_schema_that_would_compile_for_hours_is_refused_in_time() -> None:
    with pytest.raises(InvalidValue, match=r"not compiled in .* too many patterns"):
        check_grammar(intersection(26))


@pytest.mark.parametrize("spelled", ["pattern", "\\u0070attern"])
def test_a_schema_within_another_grammar_is_refused_in_time_too(spelled: str) -> None:
    text = intersection(26).text.replace("pattern", spelled)
    with pytest.raises(InvalidValue, match=r"not compiled in .* too many patterns"):
        check_grammar(Grammar(GrammarKind.LARK, f"start: %json {text}"))


def test_a_schema_of_many_patterns_is_tried_in_a_process_and_judged_alike() -> None:
    apart = schema({"properties": {f"p{at}": {"pattern": "^[a-z]+$"} for at in range(20)}})
    check_grammar(apart)
    with pytest.raises(InvalidValue, match="json_schema: Unable to determine"):
        check_grammar(intersection(9))


@pytest.mark.parametrize("grammar", [schema(SCHEMA), choice("a"), Grammar(GrammarKind.JSON_OBJECT)])
def test_what_can_be_had_passes_the_check(grammar: Grammar) -> None:
    check_grammar(grammar)


def test_a_model_without_an_end_of_sequence_has_no_grammars() -> None:

    with pytest.raises(ValueError, match="end-of-sequence"):
        GrammarCompiler.load(Path("unread"), replace(MODEL, eos_token_ids=()))


def test_checking_a_grammar_imports_no_torch() -> None:
    code = "import grammar.check, sys; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar(GrammarKind.JSON_SCHEMA, '{"$ref": "#"}'),
        Grammar(GrammarKind.JSON_SCHEMA, '{"type": "integer", "multipleOf": 1000000007}'),
        Grammar(GrammarKind.REGEX, r"[^\s\S]"),
        Grammar(GrammarKind.LARK, "start: start"),
        Grammar(GrammarKind.LARK, "start: A\nA: /a+/ & /b+/"),
    ],
    ids=lambda grammar: grammar.text[:20],
)
def test_a_grammar_that_no_output_can_follow_is_refused_before_it_is_queued(
    grammar: Grammar,
) -> None:
    with pytest.raises(InvalidValue, match="no output can follow it"):
        check_grammar(grammar)


def test_what_the_library_raises_ends_the_output_and_says_why(compiler: GrammarCompiler) -> None:
    matcher = compiler.compile(choice("yes"))
    assert allowed(matcher, b"") == {ord("y")}
    assert not matcher.allowed([-1], ENDS).any()  # no id: the library raises OverflowError
    assert matcher.error.startswith("OverflowError")
