"""Real models under grammars: what ends by itself parses, alone, batched and preempted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import Tokenizer

from core.request import FinishReason, Grammar, GrammarKind, Request, RequestId, SamplingParams
from grammar.compile import GrammarCompiler
from tests.model.oracle import Oracle
from tests.model.running import run

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "size": {"enum": ["small", "large"]},
        "found": {"type": "integer", "minimum": 0, "maximum": 2026},
    },
    "required": ["city", "size", "found"],
    "additionalProperties": False,
}
DATE, COLOURS = r"[0-9]{4}-[0-9]{2}-[0-9]{2}", ["red", "green", "dark blue", "dark"]
PRESETS = pytest.mark.parametrize(
    "preset", ["tinygpt", pytest.param("smollm2", marks=pytest.mark.slow)]
)


def fits_schema(text: str) -> bool:
    value: dict[str, Any] = json.loads(text)
    return (
        list(value) == ["city", "size", "found"]
        and len(value["city"]) <= 12
        and value["size"] in ("small", "large")
        and 0 <= value["found"] <= 2026
    )


KINDS: dict[str, tuple[Grammar, Callable[[str], Any]]] = {
    "schema": (Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA)), fits_schema),
    "regex": (Grammar(GrammarKind.REGEX, DATE), lambda text: re.fullmatch(DATE, text)),
    "choice": (Grammar(GrammarKind.CHOICE, json.dumps(COLOURS)), COLOURS.__contains__),
    "object": (
        Grammar(GrammarKind.JSON_OBJECT),
        lambda text: isinstance(json.loads(text, strict=False), dict),
    ),
}


class Writer:
    """Runs requests with grammars on one preset."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.compiler = GrammarCompiler.load(oracle.prepared.dir, oracle.prepared.config)
        self.tokenizer = Tokenizer.from_file(str(oracle.prepared.dir / "tokenizer.json"))

    def request(self, kind: str, seed: int, max_tokens: int = 120, **params: Any) -> Request:
        matcher = self.compiler.compile(KINDS[kind][0])
        return Request(
            id=RequestId(f"{kind} {seed}"),
            prompt_ids=self.oracle.prompts[seed % 5],
            max_tokens=max_tokens,
            sampling=SamplingParams(**({"seed": seed} | params)),
            matcher=matcher,
            stop_token_ids=matcher.end_token_ids,
        )

    def text(self, request: Request) -> str:
        ids = [token for token in request.output_ids if token not in request.stop_token_ids]
        return self.tokenizer.decode(ids, skip_special_tokens=False)


@PRESETS
@pytest.mark.parametrize("params", [{"temperature": 0}, {"temperature": 1.2}, {"top_p": 0.9}])
def test_every_output_that_ends_by_itself_is_what_was_asked(
    preset: str, params: dict[str, float], request: pytest.FixtureRequest
) -> None:
    writer = Writer(request.getfixturevalue(preset))
    requests = [writer.request(kind, seed, **params) for kind in KINDS for seed in range(6)]
    ends = run(writer.oracle.ours, requests).ends
    for each in requests:
        assert ends[each.id] in (FinishReason.STOP, FinishReason.LENGTH)
        if ends[each.id] is FinishReason.STOP:
            assert KINDS[each.id.split()[0]][1](writer.text(each)), writer.text(each)
        else:
            assert len(each.output_ids) == each.max_tokens
    stopped = {e.id.split()[0] for e in requests if ends[e.id] is FinishReason.STOP}
    assert stopped >= {"regex", "choice"}


def test_grammars_of_a_batch_do_not_mix_and_survive_preemption(tinygpt: Oracle) -> None:
    writer, model = Writer(tinygpt), tinygpt.ours

    def fresh() -> list[Request]:
        return [
            writer.request(kind, seed, 40, temperature=0) for seed in range(4) for kind in KINDS
        ]

    alone = fresh()
    for each in alone:
        run(model, [each])
    batched, squeezed = fresh(), fresh()
    assert run(model, batched).largest_batch > 10
    assert run(model, squeezed, num_blocks=14, budget=48).preemptions > 0
    assert [each.output_ids for each in batched] == [each.output_ids for each in alone]
    assert [each.output_ids for each in squeezed] == [each.output_ids for each in alone]


def test_an_output_cut_by_its_length_says_so(tinygpt: Oracle) -> None:
    short = Writer(tinygpt).request("regex", 1, max_tokens=9)
    outcome = run(tinygpt.ours, [short])
    assert outcome.ends == {short.id: FinishReason.LENGTH}
    assert re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]", Writer(tinygpt).text(short))


def test_what_is_allowed_and_biased_stays_inside_the_grammar(tinygpt: Oracle) -> None:
    digits = tuple(range(ord("0"), ord("5")))
    params = {"logit_bias": ((ord("x"), 100.0),), "allowed_token_ids": (*digits, ord("-"), 257)}
    dated = Writer(tinygpt).request("regex", 1, **params)
    outcome = run(tinygpt.ours, [dated])
    assert outcome.ends == {dated.id: FinishReason.STOP}
    assert re.fullmatch(DATE.replace("9", "4"), Writer(tinygpt).text(dated))


def test_a_grammar_that_a_mask_leaves_no_token_fails_its_request_alone(tinygpt: Oracle) -> None:
    writer = Writer(tinygpt)
    stuck = writer.request("regex", 1, allowed_token_ids=(ord("a"),))
    healthy = writer.request("choice", 2)
    outcome = run(tinygpt.ours, [stuck, healthy])
    assert outcome.ends == {stuck.id: FinishReason.FAILED, healthy.id: FinishReason.STOP}
