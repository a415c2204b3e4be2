"""Writes `docs/api.md` from the fields' tables: `python -m docs.build.api_page > docs/api.md`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.settings import HttpSettings
from server.answers.request_size import MAX_IDS_BESIDE
from server.contract.grammars import NOT_WITH_A_GRAMMAR
from server.contract.messages import ROLES
from server.contract.schemas import MAX_INTEGER, MAX_TEXT
from server.contract.table import StreamOptions
from server.contract.validation import Validator
from server.http.errors import INTERNAL, METHOD_NOT_ALLOWED, NOT_FOUND, TABLE
from server.http.json import encode
from server.http.routes import ROUTES
from server.limits.body_weight import MAX_CONTAINERS, MAX_KEYS, MAX_VALUES
from server.schema.fields import Field, Support, Table
from server.schema.kinds import MAX_IDS, Schema, TokenId
from server.text.prompts import MAX_SPELLINGS
from server.text.spellings import MAX_BYTES

_HEAD = """# The HTTP API

Made from the tables that requests are read by (`server/contract/table.py:CompletionFields` and its
neighbours) by `python -m docs.build.api_page`; a test keeps the two equal. The same tables make
`/openapi.json`. Limits are the defaults of `core/settings.py:HttpSettings`; each is a flag of
`floorline serve`.

An absent field and `null` mean the default. A whole number may be written 1.0. Unknown fields are
ignored. Strings are never read as numbers or booleans. A request is checked as a whole before any
of it runs: nothing is sent of a stream that is going to be refused.

## Routes

| route | what it does |
|---|---|
{routes}
A model's id may hold slashes. `/health` and `/ready` answer 200 or 503. docs/metrics.md lists the
metrics.

Each choice is a request of its own: `/debug/requests/{id}` takes an answer's id where it has one
choice, and else the id with the choice's `index` behind: `{id}-0`, `{id}-1`, ….

With `--api-key` all but `/health` and `/ready` want one header `Authorization: Bearer KEY`, and
`--scrape-key` has `/metrics` for itself. Every GET route answers HEAD. A body with a
`content-encoding` gets 415. Pages of other origins may call only with `--cors-origins`.

`--api-key NAME=KEY`, repeated, tells up to 64 tenants apart; a bare key is that of the tenant
`default`. Each has a fair share of the engine when several have a backlog, the limits of the queue
for itself, an account in `/metrics`, and prefixes and timelines (`/debug/requests/{id}`) that no
other can find. `priority` orders a tenant's own requests; `--priority-across-tenants` lets it go
before shares. `/debug/steps` shows every key what all steps ran, in counts; the ids of others'
requests are `hidden`. The variable `FLOORLINE_API_KEY` takes keys between spaces, the settings file
a list, and `--api-key-file` one on each line.

"""

_TAIL = """## Answers

* `index` is the prompt's place × n + the choice's. Usage counts a prompt once, whatever `n`, and
  every sampled token: the end-of-sequence token and text that a stop string cut off, too.
* `finish_reason` is `stop`, `length` or `tool_calls`. `stop_reason` is the stop string or the
  caller's stop token id that ended the text, else null. A stop string that is whole before
  `min_tokens` is text; one that begins there and is completed later ends the text.
* `bad_words` are banned as tokens: in the tokenizer's own spelling, and in the others that tokens
  allow, those of the fewest tokens first, up to {spellings:,} over all words of a request and for
  words of at most {word_bytes} bytes. A word is found in the letters as given, where its first one
  begins a token, alone or behind a space, and its last one ends a token: not within another token.
* `n`: choice 0 has the request's seed, choice i a seed derived from it and i. Without a seed each
  prompt draws one.
* Logprobs are log-softmax of the model's raw logits, before temperature, penalties and masks, no
  lower than -9999. Special tokens show by name there, bytes that are no character as U+FFFD.
  `text_offset` counts characters from the start of `text`, an echoed prompt's included.
* `prompt_logprobs` are in each choice: a list of maps from token id to value, the first null.
* Bills: `cost` beside `usage` (docs/cost-model.md); `--no-response-cost` leaves it out.
* Streams: a chat's last delta is empty and has the finish reason. Only what may become a stop
  string is held back. An error on the way is an `error` event, then `[DONE]`.

## Tools

A call is `<tool_call>`, a JSON object with `name` and `arguments`, `</tool_call>` (Hermes' format).
A template that reads `tools` is given them; for one that does not, tools and earlier calls are
written into the messages in Hermes' words. `tool_choice` `auto` finds calls in the answer and does
not check their arguments, nor how many there are; `required` and a named function are enforced by a
grammar made of the tools' schemas, and only there `parallel_tool_calls` false means one call.
Enforced arguments are those that a schema names: an object that lists `properties` takes no others,
unless it says `additionalProperties`. `--open-tool-arguments` lets others come, but not where a
function says `strict`.

A call begins where its name and the brace of its arguments have come. What cannot be JSON from
there on ends it: it keeps what it said, and the rest is text. What breaks off sooner is text as a
whole. A call that `max_tokens` cuts stays cut. The tag that closes a call is never text.

## Structured output

llguidance masks each token. What it cannot follow is a 400 that names the keyword. The grammar
alone decides where the answer ends, so these cannot be combined with it: {conflicts}.
An answer that ends by `stop` is whole; one that ends by `length` may be cut.

In a schema, of an answer or of a tool that must be called, a text without `maxLength`, `pattern`,
`format`, `enum` or `const` ends after {text:,} characters, and an integer without `minimum` or
`maximum` lies within ±{integer:,}. `--max-schema-string` sets another length;
0 leaves both without end. A `maxLength` above {longest:,} counts as that: the library cannot follow
more. Numbers with a fraction, lists, and all that `json_object` allows have no such end:
`max_tokens` may cut them.

With `tools`, an answer by `response_format` is calls or the JSON that it asks for, and
`tool_choice` `required` or a name asks for calls alone. Of `structured_outputs`, `json` and
`json_object` go with tools. The schema may also stand in `response_format` itself, as `schema`.

## Templates

The text of messages is never read as control tokens: `<|im_end|>` in a content is text. In a raw
prompt it is the token. A template that looks for such a token in a message, as
`'</think>' in content` does, finds it. Every template runs beside the server, with limits on time,
memory and output: the model's own in a process that is kept, one from a request in a new one. It
renders as in `transformers`: the same filters, tags and functions. A model's template of the name
`tool_use` is taken where tools are given. Parts of text are joined by line breaks. A role is one of
OpenAI's:
{roles}. A `developer` is a `system` for a template that does not name that role.

What the server said is taken back: an assistant's `content` may be null or absent, arguments that
`max_tokens` cut off stay text, and `reasoning_content` (or `reasoning`, or `thinking`) reaches the
template under the names that templates read.

## Limits of text

What is over one of these is a 400 that names the field and the limit, before anything is encoded.

* A prompt, and what a template writes: as many bytes of UTF-8 as the context can hold, which is the
  context limit times the bytes of the longest token, and at most `--max-text`. With
  `truncate_prompt_tokens`, and in `/tokenize`, only `--max-text` holds: {max_text}. The
  same is true of a tokenizer that may drop text, or read any length of it as one token.
* A body: {keys:,} keys, {containers:,} objects and lists, {values:,} values. What stands in
  strings does not count.
* A prompt of token ids: {ids:,} of them, over all prompts of a request.
* Lists of ids beside the prompt (`allowed_token_ids`, `bad_words` in tokens, `logit_bias`,
  `stop_token_ids`): {beside:,} together, times the generations.

Long bodies are read, and long texts encoded, in two threads beside the event loop: such a request
waits for those before it, and other requests do not. Log-probabilities are written on the event
loop: a million of them hold it up for seconds; `--max-request-logprobs` bounds them.

## Errors

`{{"error": {{"message", "type", "param", "code"}}}}`, all four always there. What fails once a
stream has begun is an event of it, before `[DONE]`. Overloaded is a request that finds the queue
full, or waits longer than `--queue-timeout` to be admitted, which is looked at after each step.

| status | type | code |
|---|---|---|
{errors}
## Where this differs from OpenAI

* `model` may be left out. A wrong one is a 404.
* An empty or null prompt is refused; there is no default prompt.
* `max_tokens` 0 generates nothing (with `echo` and `logprobs` it scores the prompt). Given and too
  large for the context it is refused; left out, a completion gets at most 16, a chat the room left.
* `top_p` 0 is refused. `temperature` 0 with `n` above 1 gives n equal choices.
* `logprobs` of completions go to 20. `best_of` must equal `n`. `suffix` is refused.
* A named `tool_choice` ends with `finish_reason` `tool_calls`.
* With `tools`, `response_format` leaves no room for other words beside a call.
* A JSON schema is always followed strictly, whatever `strict` says.
* Fields that change no text here, such as `user`, `store` or `service_tier`, are ignored.
"""


def page() -> str:
    """Give the whole page as text."""
    tables = Validator(HttpSettings()).tables
    completion, chat = tables["completion"], tables["chat"]
    shared = [name for name in completion if _alike(completion[name], chat.get(name))]
    sections = {
        "Fields of both inference routes": {name: completion[name] for name in shared},
        "Fields of /v1/completions": _without(completion, shared),
        "Fields of /v1/chat/completions": _without(chat, shared),
        "Fields of /tokenize, for a text": tables["tokenize_text"],
        "Fields of /tokenize, for a conversation": tables["tokenize_chat"],
        "Fields of /detokenize": tables["detokenize"],
    }
    fields = "".join(_section(title, table) for title, table in sections.items())
    conflicts = ", ".join(f"`{name}`" for name in NOT_WITH_A_GRAMMAR)
    roles = ", ".join(f"`{role}`" for role in ROLES.values)
    tail = _TAIL.format(
        conflicts=conflicts,
        roles=roles,
        errors=_errors(),
        spellings=MAX_SPELLINGS,
        word_bytes=MAX_BYTES - 1,
        max_text=HttpSettings().max_text,
        text=HttpSettings().max_schema_string,
        integer=MAX_INTEGER,
        longest=MAX_TEXT,
        keys=MAX_KEYS,
        containers=MAX_CONTAINERS,
        values=MAX_VALUES,
        ids=MAX_IDS,
        beside=MAX_IDS_BESIDE,
    )
    return _HEAD.replace("{routes}", _routes()) + fields + tail


def _routes() -> str:
    return "".join(
        f"| `{endpoint.method} {endpoint.route}` | {endpoint.summary} |\n" for endpoint, _ in ROUTES
    )


def _alike(one: Field[Any], other: Field[Any] | None) -> bool:
    return other is not None and replace(one, note="") == replace(other, note="")


def _without(table: Table, names: Sequence[str]) -> Table:
    return {name: field for name, field in table.items() if name not in names}


def _section(title: str, table: Table) -> str:
    rows = "".join(_row(field) for field in table.values())
    return f"## {title}\n\n| field | takes | default | |\n|---|---|---|---|\n{rows}\n"


def _row(field: Field[Any]) -> str:
    note = field.note
    if field.support is Support.REFUSED:
        neutral = ", ".join(f"`{_json(value)}`" for value in field.neutral)
        passes = f" (null and {neutral} pass)" if neutral else ""
        return f"| `{field.name}` | refused{passes} | | {note} |\n"
    if field.support is Support.IGNORED:
        return f"| `{field.name}` | ignored | | {note} |\n"
    default = "required" if field.required else _default(field.default)
    return f"| `{field.name}` | {_words(field.kind.schema())} | {default} | {note} |\n"


def _default(value: Any) -> str:
    plain = value in (None, (), "") or isinstance(value, StreamOptions)
    return "" if plain else f"`{_json(value)}`"


def _json(value: Any) -> str:
    return encode(value).decode()


def _words(schema: Schema) -> str:
    """Say a JSON schema in a few words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_words(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array":
        items = "token id" if schema["items"] == TokenId().schema() else _words(schema["items"])
        return f"list ({items}){_bounds(schema, 'Items', ' items')}"
    if kind == "string":
        pattern = f" matching `{schema['pattern']}`" if "pattern" in schema else ""
        return f"string{_bounds(schema, 'Length', ' characters')}{pattern}"
    if kind in ("integer", "number"):
        above = schema.get("exclusiveMinimum")
        return (
            f"{kind}{f' above {above}' if above is not None else ''}{_bounds(schema, 'imum', '')}"
        )
    return str(kind)


def _bounds(schema: Schema, suffix: str, unit: str) -> str:
    low, high = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if low is None and high is None:
        return ""
    if unit and low == 1:
        return ", not empty" if high is None else f", 1 to {high:,}{unit}"
    if low is None or high is None:
        return f", at least {low:,}{unit}" if high is None else f", at most {high:,}{unit}"
    return f", {low:,} to {high:,}{unit}"


def _errors() -> str:
    every = (*TABLE.values(), INTERNAL, NOT_FOUND, METHOD_NOT_ALLOWED)
    rows = {(row.status, row.type, row.code or "") for row in every}
    return "".join(f"| {status} | {type} | {code} |\n" for status, type, code in sorted(rows))


if __name__ == "__main__":
    print(page(), end="")
