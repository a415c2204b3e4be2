"""Chat templates render as in transformers, byte for byte."""

from __future__ import annotations

import re
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from server.contract.messages import MessageList, suited
from server.templates.chat_template import ChatTemplate

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOL = {
    "type": "function",
    "function": {
        "name": "wéather",
        "description": 'Says "it" <b>&</b>',
        "parameters": {"type": "object", "properties": {"b": {}, "a": {"type": "integer"}}},
    },
}
CALL = {
    "id": "1", "type": "function", "function": {"name": "f", "arguments": {"ü": [1, 2.5, None]}},
}  # fmt: skip
TALK = [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "Hi, Größe?\n"},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning": "\nhm\n"},
    {"role": "tool", "tool_call_id": "1", "content": "5"},
    {"role": "assistant", "content": "<think>\nwell\n</think>\n\nFive."},
    {"role": "user", "content": "Thanks"},
]

CHATML = (
    "{%- for message in messages %}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' }}\n"
    "    {%- if message.role == 'assistant' %}\n"
    "        {%- generation %}{{ message.content }}<|im_end|>{%- endgeneration %}\n"
    "    {%- else %}\n"
    "        {{- message.content + '<|im_end|>' }}\n"
    "    {%- endif %}\n"
    "    {{ '\\n' }}\n"
    "{%- endfor %}\n"
)
THINKING = (
    "{%- set ns = namespace(last=messages|length - 1, tools=[]) %}\n"
    "{%- for message in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}"
    "{%- if message.role == 'user' %}{%- set ns.last = index %}{%- break %}{%- endif %}"
    "{%- endfor %}\n"
    "{%- for message in messages %}\n"
    "    {%- if message.content is string %}{%- set content = message.content %}\n"
    "    {%- else %}{%- set content = '' %}{%- endif %}\n"
    "    {%- if message.role == 'assistant' %}\n"
    "        {%- set thought = '' %}\n"
    "        {%- if message.reasoning_content is string %}\n"
    "            {%- set thought = message.reasoning_content %}\n"
    "        {%- elif '</think>' in content %}\n"
    "            {%- set thought = content.split('</think>')[0].rstrip('\\n')"
    ".split('<think>')[-1].lstrip('\\n') %}\n"
    "            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n"
    "        {%- endif %}\n"
    "        {{- '<think>' + thought.strip('\\n') + '</think>' + content }}\n"
    "        {%- for call in message.tool_calls or [] %}\n"
    "            {%- if call.function %}{%- set call = call.function %}{%- endif %}\n"
    "            {{- call.name }}{{ call.arguments | tojson }}\n"
    "        {%- endfor %}\n"
    "    {%- else %}{%- continue %}{%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ '<|assistant|>' }}{%- endif %}"
)
SOURCES = [
    "{{ bos_token }}" + CHATML,
    THINKING,
    *(
        "{{ tools | tojson" + options + " }}{{ messages[2].tool_calls | tojson" + options + " }}"
        for options in (
            "", "(indent=2)", "(indent=4, ensure_ascii=true)", "(true)", "(false, 1)",
            "(separators=(',', ':'))", "(sort_keys=true)", "(ensure_ascii=False, indent='\t')",
        )
    ),
    "{{ {'b': 1, 'a': '<&>'} | tojson }}{{ '\u2028é' | tojson }}{{ 1e400 | tojson }}",
    "{% generation %}{% set x = 5 %}a{{ x }}{% endgeneration %}{{ x is defined }}",
    "{% for m in messages %}{% generation %}{{ loop.index }}{{ m.role }}{% endgeneration %}"
    "{% endfor %}",
    "  {% if true %}  \n  a  {% endif %}\n\n  b\n",
    "{{ documents is defined }}{{ documents is none }}{{ tools is none }}{{ extra }}",
    "{{ pad_token }}",
    "{{ strftime_now('%Y') | length }}{{ range(3) | list }}{{ dict(a=1) }}{{ cycler('x').next() }}",
    "{% macro m(x) %}[{{ x | trim }}]{% endmacro %}{{ m(messages[0].content) }}",
    "{{ messages | map(attribute='role') | join(',') }}{{ messages | selectattr('role', 'eq', "
    "'user') | list | length }}{{ messages[1].content[:3] | upper }}{{ 7 // 2 }}{{ 2 ** 5 }}",
    "{{ '%s-%03d' % ('a', 7) }}{{ 'ab' * 3 }}{{ 'x'.join(['a', 'b']) }}{{ messages[0] | items | "
    "list }}",
    "{% set a, b = 1, 2 %}{{ a ~ b }}{# gone #}{% raw %}{{ x }}{% endraw %}{{- '\n' -}} x",
    "{% filter upper %}{{ messages[1].content }}{% endfilter %}{% do_nothing %}",
    "{{ raise_exception('never so') }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].content.__class__ }}",
    "{{ undefined.thing }}",
    "{% call(x) nothing() %}{% endcall %}",
]  # fmt: skip


def theirs(source: str, messages: Any, tools: Any) -> str:
    """Render as transformers does; what it refuses is "refused"."""
    plain = [{key: one for key, one in m.items() if one is not None} for m in messages]
    try:
        texts, _ = render_jinja_template(
            [plain], tools=tools, chat_template=source, add_generation_prompt=True, extra="é",
            **TOKENS,
        )  # fmt: skip
    except Exception:
        return "refused"
    return str(texts[0])


def ours(source: str, messages: Any, tools: Any) -> str:
    read = suited(MessageList().read(messages, "messages"), source)
    variables = {
        "messages": read, "tools": tools, "add_generation_prompt": True, "extra": "é",
        "documents": None,
    }  # fmt: skip
    try:
        return ChatTemplate(source, TOKENS, 2.0).render(variables, 2**20).decode()
    except Exception:
        return "refused"


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_a_template_renders_as_in_transformers(source: str, tools: Any) -> None:
    assert ours(source, TALK, tools) == theirs(source, TALK, tools)


def test_most_of_these_templates_render() -> None:
    refused = [source for source in SOURCES if theirs(source, TALK, [TOOL]) == "refused"]
    assert len(refused) == 5


def test_a_special_token_in_a_message_is_found_by_a_template_that_looks_for_it() -> None:
    """The twin: what the same template makes of the same text, where no token is special."""
    marks = {"<think>": "\U000f0000", "</think>": "\U000f0001"}
    pattern = re.compile("|".join(marks))
    plain = [{**m, "content": m.get("content") or "", "reasoning": None} for m in TALK]
    marked = [
        {**m, "content": pattern.sub(lambda found: marks[found[0]], m["content"])} for m in plain
    ]
    variables: dict[str, Any] = {"messages": marked, "add_generation_prompt": True}
    text = ChatTemplate(THINKING, TOKENS, 2.0, marks).render(variables, 2**20).decode()
    assert text == theirs(THINKING, plain, None)
    assert "<think>well</think>Five." in text
