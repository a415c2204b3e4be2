"""Tool calls in text, however the text is cut."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.text.tool_parser import ToolCallParser

Read = tuple[str, list[tuple[str, str]]]


def read(pieces: list[str]) -> Read:
    """Put a text's content and calls together from what its pieces give."""
    parser, content, calls = ToolCallParser("call_"), "", list[tuple[str, str]]()
    for parsed in (*map(parser.push, pieces), parser.close()):
        content += parsed.content
        for delta in parsed.calls:
            assert delta.id == f"call_{delta.index}"
            if delta.name is not None:
                assert delta.index == len(calls)
                calls.append((delta.name, ""))
            name, arguments = calls[delta.index]
            calls[delta.index] = (name, arguments + delta.arguments)
    return content, calls


def call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


F = '{"name": "f", "arguments": {"a": 1}}'


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (call(F), "", [("f", '{"a": 1}')]),
        (f"So:\n\n{call(F)}\n{call(F)}\n", "So:", [("f", '{"a": 1}')] * 2),
        (f"{call(F)} done", " done", [("f", '{"a": 1}')]),
        (f"<tool_call>{F}<tool_call>{F}", "", [("f", '{"a": 1}')] * 2),
        (call('{"arguments": {"a": 1}, "name": "f"}'), "", [("f", '{"a": 1}')]),
        (call('{"name": "f", "parameters": {}}'), "", [("f", "{}")]),
        (call('{"name": "f"}'), "", [("f", "{}")]),
        (call('{"name": "f", "arguments": "{\\"a\\": 1}"}'), "", [("f", '{"a": 1}')]),
        (call('{"name": "f", "arguments": {"t": "</tool_call> \\" } ["}}'), "",
         [("f", '{"t": "</tool_call> \\" } ["}')]),
        (call('{"name": "f", "arguments": {"a": [{"b": {}}]}, "x": 1}'), "",
         [("f", '{"a": [{"b": {}}]}')]),
        ('<tool_call>{"name": "f", "arguments": {"a": "un', "", [("f", '{"a": "un')]),
    ],
)  # fmt: skip
def test_calls_are_found(text: str, content: str, calls: list[tuple[str, str]]) -> None:
    assert read([text]) == (content, calls)


@pytest.mark.parametrize(
    "text",
    [
        "plain", " spaced \n", "a <tool_cal", "</tool_call>", call("no json"), call('{"name": 5}'),
        call('{"name": "f", "arguments": 5}'), call('{"name": ""}'), "<tool_call>",
        '<tool_call>{"na', call('{"name": "f", "arguments": "no"}'), "<<tool_call",
    ],
)  # fmt: skip
def test_what_is_no_call_stays_text(text: str) -> None:
    assert read([text]) == (text, [])


fragments = st.sampled_from(
    [call(F), F, "<tool_call>", "</tool_call>", "\n", " ", "a", "<", "{", "}", '"', "\\", "ü", ","]
)


@given(st.lists(fragments, max_size=8), st.data())
def test_how_a_text_is_cut_changes_nothing(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    edges = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert read(pieces) == read([text]) == read(list(text))


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=9) | st.integers(), max_size=4))
def test_any_arguments_come_through(arguments: dict[str, str | int]) -> None:
    written = json.dumps(arguments, ensure_ascii=False)
    text = call(json.dumps({"name": "f"})[:-1] + f', "arguments": {written}}}')
    assert read(list(text)) == ("", [("f", written)])


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (call(F[:-1]) + " and more", " and more", [("f", '{"a": 1}')]),
        (f"<tool_call>{F[:-1]}</tool_call>\n{call(F)}", "", [("f", '{"a": 1}')] * 2),
        (call('{"name": "f", "arguments": {"a": 1') + "x", "x", [("f", '{"a": 1')]),
        ('<tool_call>{"name": "f", "arguments": {"a": 1 oops}}</tool_call> x', "oops}} x",
         [("f", '{"a": 1')]),
        (f"<tool_call>{F}\n</tool_c", "", [("f", '{"a": 1}')]),
        (f"<tool_call>{F}<", "", [("f", '{"a": 1}')]),
        (f"<tool_call>{F[:-1]}\n</too", "", [("f", '{"a": 1}')]),
        (f"<tool_call>\n<tool_call>{F}</tool_call>", "<tool_call>", [("f", '{"a": 1}')]),
        ("So:\n\n<tool_call>no", "So:\n\n<tool_call>no", []),
        ('<tool_call>{"name": "f", "parameters": {"b": 2}, "arguments": {"a": 1}}', "",
         [("f", '{"b": 2}')]),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}, "arguments": {"b": 2}}', "",
         [("f", '{"a": 1}')]),
        ('<tool_call>{"name": "f", "arguments": {"name": "g", "arguments": {}}}', "",
         [("f", '{"name": "g", "arguments": {}}')]),
    ],
)  # fmt: skip
def test_a_broken_call_swallows_nothing_and_no_tag_is_shown(
    text: str, content: str, calls: list[tuple[str, str]]
) -> None:
    assert read([text]) == (content, calls)


broken = st.sampled_from(
    ["<tool_call>", "</tool_call>", '{"name": "f"', ', "arguments": ', '{"a": 1', "}", "}\n", " ",
     '"', "\\", "[", ",", "1e", "tru", "<", "</tool", "ü", '{"arguments": {}', ', "name": "g"',
     "text"]
)  # fmt: skip


@settings(max_examples=300)
@given(st.lists(broken, max_size=12))
def test_broken_calls_are_read_alike_at_every_cut(parts: list[str]) -> None:
    text = "".join(parts)
    whole = read([text])
    assert read(list(text)) == whole
    for at in range(len(text)):
        assert read([text[:at], text[at:]]) == whole


def test_an_answer_by_a_schema_is_text_unless_it_begins_with_a_call() -> None:
    text = json.dumps({"x": call(F)})
    parser = ToolCallParser("call_", calls_first=True)
    assert (parser.push(text).content, parser.close().content, parser.calls) == (text, "", 0)
    parser = ToolCallParser("call_", calls_first=True)
    parser.push(call(F))
    assert parser.calls == 1
