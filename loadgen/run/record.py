"""What one request looked like from here: first as stamped bytes, later as a parsed record.

Bytes are stamped when they arrive and parsed after the run, so that parsing delays no stamp.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from loadgen.load.plan import Planned

CANCELLED, INTERRUPTED, OK = "cancelled", "interrupted", "ok"
CALLED = ("name", "arguments", "input")  # of a tool's call


@dataclass(slots=True)
class Exchange:
    """Bytes with the times at which they arrived."""

    planned: Planned
    intended_s: float
    woke_s: float
    sent_s: float = 0.0
    end_s: float = 0.0
    status: int | None = None
    failure: str = ""
    detail: str = ""
    body: bytearray = field(default_factory=bytearray)
    arrivals: list[tuple[float, int]] = field(default_factory=list)  # (time, bytes until then)

    def events(self) -> Iterator[tuple[float, bytes]]:
        """Yield each data line of the stream with the moment at which its last byte was here."""
        ends = [end for _, end in self.arrivals]
        start = 0
        while (newline := self.body.find(b"\n", start)) >= 0:
            line = self.body[start:newline]
            start = newline + 1
            if line.startswith(b"data:"):
                yield self.arrivals[bisect_left(ends, start)][0], bytes(line[5:].strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One request, parsed.

    `outcome` is ok, cancelled (as planned), interrupted (by the user), or a class of failure:
    timeout, connect, http_STATUS, stream_error, broken_stream, no_content, early_stop.
    """

    i: int
    intended_s: float
    woke_s: float
    sent_s: float
    end_s: float
    outcome: str
    detail: str
    asked_prompt_tokens: int  # of the whole prompt, a session's history included
    asked_output_tokens: int
    content: list[tuple[float, int | None]]  # (arrival, tokens; None where the server counts none)
    counted_tokens: int | None  # by the client: token ids of the chunks, else the running usage
    usage: dict[str, Any] | None
    cost: dict[str, Any] | None
    finish_reason: str | None

    @property
    def failed(self) -> bool:
        return self.outcome not in (OK, CANCELLED, INTERRUPTED)

    def used(self, name: str) -> int | None:
        """Give a number of the server's `usage`."""
        return (self.usage or {}).get(name)

    def charged(self, name: str) -> Any:
        """Give a number of the server's `cost`."""
        return (self.cost or {}).get(name)

    @property
    def output_tokens(self) -> int | None:
        return self.used("completion_tokens")

    @property
    def cached_tokens(self) -> int | None:
        details: Any = self.used("prompt_tokens_details") or {}
        cached = details.get("cached_tokens")
        return cached if isinstance(cached, int) else None


@dataclass(slots=True)
class Reading:
    """The state of reading one stream."""

    content: list[tuple[float, int | None]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # what a conversation carries on
    token_ids: list[int] = field(default_factory=list)
    running_tokens: int | None = None  # the last running usage
    content_tokens: int | None = 0  # the total at the last content chunk; None: it had none
    usage: dict[str, Any] | None = None
    cost: dict[str, Any] | None = None
    finish_reason: str | None = None
    error: str | None = None
    done: bool = False

    @staticmethod
    def of(exchange: Exchange, only_first: bool = False) -> Reading:
        """Parse the body, or up to its first content; a frame that is not JSON is an error."""
        reading = Reading()
        try:
            for t_s, data in exchange.events():
                reading.take(t_s, data)
                if only_first and reading.content:
                    break
        except (ValueError, AttributeError, TypeError) as error:
            reading.error = f"unreadable frame: {error}"
        return reading

    def take(self, t_s: float, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        chunk = json.loads(data)
        if chunk.get("error"):
            self.error = json.dumps(chunk["error"])
            return
        choices, usage = chunk.get("choices") or (), chunk.get("usage")
        self.cost = chunk.get("cost") or self.cost
        self.usage = usage or self.usage
        for choice in choices:
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            self.token_ids += choice.get("token_ids") or ()
        if choices and usage:
            self.running_tokens = usage.get("completion_tokens")
        said = [_said(choice) for choice in choices]
        self.texts += [text for text, _ in said if text]
        if any(content for _, content in said):
            total, before = (self.running_tokens if usage else None), self.content_tokens
            known = total is not None and before is not None  # a difference takes two totals
            self.content.append((t_s, (total or 0) - (before or 0) if known else None))
            self.content_tokens = total

    @property
    def running_total(self) -> int | None:
        """Give the total that ran with the content; one that came at its end only repeats usage."""
        ran = all(tokens is not None for _, tokens in self.content)
        return self.running_tokens if ran else None

    def outcome(self, exchange: Exchange, ignore_eos: bool) -> tuple[str, str]:
        """Name how the exchange ended, with the detail that is known."""
        used, wanted = (self.usage or {}).get("completion_tokens"), exchange.planned.output_tokens
        if exchange.failure:
            return exchange.failure, exchange.detail
        if exchange.status != 200:
            return f"http_{exchange.status}", exchange.body[:300].decode("utf-8", "replace")
        if self.error:
            return "stream_error", self.error
        if not self.done:
            return "broken_stream", ""
        if not self.content:
            return "no_content", ""
        if ignore_eos and used is not None and used < wanted:
            return "early_stop", f"{used} of {wanted} tokens"
        return OK, ""


def _said(choice: dict[str, Any]) -> tuple[str, bool]:
    """Give a choice's text, and whether it has any content: a role and bare usage are none."""
    delta = choice.get("delta") or {}
    text = choice.get("text") or delta.get("content") or ""
    calls = [*(delta.get("tool_calls") or ()), {"function": delta.get("function_call")}]
    called = [call.get(kind) or {} for call in calls for kind in ("function", "custom")]
    beside = any(delta.get(name) for name in ("reasoning_content", "reasoning", "refusal"))
    return text, bool(text) or beside or any(call.get(part) for call in called for part in CALLED)


def read_record(exchange: Exchange, prompt_tokens: int, ignore_eos: bool) -> Record:
    """Parse an exchange and name its outcome."""
    reading = Reading.of(exchange) if exchange.status == 200 else Reading()
    outcome, detail = reading.outcome(exchange, ignore_eos)
    same = {name: getattr(exchange, name) for name in ("intended_s", "woke_s", "sent_s", "end_s")}
    told = {name: getattr(reading, name) for name in ("content", "usage", "cost", "finish_reason")}
    return Record(
        i=exchange.planned.i,
        outcome=outcome,
        detail=detail,
        asked_prompt_tokens=prompt_tokens,
        asked_output_tokens=exchange.planned.output_tokens,
        counted_tokens=len(reading.token_ids) or reading.running_total,
        **same,
        **told,
    )
