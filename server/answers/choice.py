"""One generation of an answer, from its tokens to the deltas of its text and of its tool calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from core.errors import ServiceError
from core.request import FinishReason
from core.wire import Submit, TokenLogprobs
from server.text.detokenizer import Detokenizer
from server.text.tool_parser import CallDelta, Parsed, ToolCallParser


@dataclass(frozen=True, slots=True)
class Scored:
    """A token of the returned text; `offset` is how many characters of it come before.

    `logprobs` is None for a prompt's first token, which nothing foretells.
    """

    token: int
    offset: int
    logprobs: TokenLogprobs | None


@dataclass(frozen=True, slots=True)
class Delta:
    """New text of one choice, with the tokens that were read since its last delta.

    `finish_reason` is set on the choice's last delta, whose text is empty.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None = None
    calls: tuple[CallDelta, ...] = ()
    scored: tuple[Scored, ...] = ()
    stop_reason: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicePlan:
    """How a choice's tokens are read. What ends a text is in it only with `keep_stop`."""

    detokenizer: Detokenizer
    echo: str | None = None  # the prompt's text, which opens the choice's own; None is without
    echo_offsets: Sequence[int] = ()  # of the prompt's tokens in `echo`, where they are scored
    caller_stops: frozenset[int] = frozenset()  # the stop token ids that the caller named
    keep_stop: bool = False
    interval: int = 1  # tokens of a delta at least, but for the first and the last
    scores: bool = False  # logprobs were asked for
    parser: ToolCallParser | None = None


@dataclass(slots=True)
class Call:
    """A whole tool call; `arguments` is JSON text, unless the answer was cut short."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class _Taken:
    """What earlier deltas held."""

    pieces: int = 0
    tokens: int = 0
    scored: int = 0
    any: bool = False


class Choice:
    """One generation, and what it has said so far: the listener of its request.

    A slow reader holds nobody up: what it has not taken is buffered here, and bounded by the
    request's own length. `on_news` is called after each token and at the end.

    Invariant: `content` and `calls` are the join of its deltas, whenever they were taken.
    """

    def __init__(
        self, index: int, submit: Submit, plan: ChoicePlan, on_news: Callable[[], None]
    ) -> None:
        self.index, self.submit = index, submit
        self.token_ids: list[int] = []
        self.scored: list[Scored] = []
        self.content, self.calls = "", list[Call]()
        self.cached_tokens = 0  # of the prompt, when it was first admitted
        self.prompt_logprobs: dict[int, TokenLogprobs] = {}  # by position, where asked for
        self.stop_reason: str | int | None = None
        self.closed = False  # its last delta was taken
        self._plan, self._on_news = plan, on_news
        self._end: FinishReason | ServiceError | None = None
        self._ends = frozenset(submit.stop_token_ids)
        self._pieces = [plan.echo] if plan.echo else []
        self._taken = _Taken()

    @property
    def finish_reason(self) -> str | None:
        """None while it runs; in OpenAI's words afterwards."""
        if not isinstance(self._end, FinishReason):
            return None
        reason = FinishReason.STOP if self._plan.detokenizer.stop is not None else self._end
        return "tool_calls" if self.calls and reason is FinishReason.STOP else reason

    # ── from the engine's client ──

    def started(self, cached_tokens: int) -> None:
        self.cached_tokens = cached_tokens

    def prompt_scored(self, scored: TokenLogprobs) -> None:
        self.prompt_logprobs[scored.position] = scored

    def token(self, token: int, logprobs: TokenLogprobs | None = None) -> int | None:
        """Take a token; those past a stop string, or past max_tokens, are not the caller's.

        Returns: how many are the caller's, where this one completes a stop string.
        """
        self._on_news()
        detokenizer = self._plan.detokenizer
        if detokenizer.stop is not None or len(self.token_ids) >= self.submit.max_tokens:
            return None
        self.token_ids.append(token)
        if self._plan.scores:
            offset = len(self._plan.echo or "") + detokenizer.characters
            self.scored.append(Scored(token, offset, logprobs))
        if token in self._plan.caller_stops:
            self.stop_reason = token
        if token in self._ends and not self._plan.keep_stop:
            return None
        self._pieces.append(detokenizer.push(token))
        if detokenizer.stop is None:
            return None
        self.stop_reason = detokenizer.stop
        return len(self.token_ids)

    def ended(self, reason: FinishReason) -> None:
        self._end = reason
        self._on_news()

    def failed(self, error: ServiceError) -> None:
        self._end = error
        self._on_news()

    # ── for who writes the answer ──

    def take(self) -> Iterator[Delta]:
        """Return what came since the last call: text, then the end.

        Raises:
            ServiceError: the generation failed, or its engine did.
        """
        if self.closed:
            return
        if isinstance(self._end, ServiceError):
            raise self._end
        if self._end is not None:
            self.closed = True
            self._pieces.append(self._plan.detokenizer.close())
            if self.stop_reason is None:  # the flush may complete a stop string
                self.stop_reason = self._plan.detokenizer.stop
        elif self._too_early():
            return
        parsed = self._parse("".join(self._pieces[self._taken.pieces :]))
        self._taken.pieces = len(self._pieces)
        self._add(parsed)
        if parsed.content or parsed.calls:
            yield self._delta(parsed, None)
        if self.closed:
            yield self._delta(Parsed(), self.finish_reason)

    def _too_early(self) -> bool:
        """Hold a delta back: too few tokens for it, or an echoed prompt not scored yet."""
        if not self.token_ids:
            return True
        return self._taken.any and len(self.token_ids) - self._taken.tokens < self._plan.interval

    def _parse(self, text: str) -> Parsed:
        parser = self._plan.parser
        if parser is None:
            return Parsed(text)
        parsed = parser.push(text)
        if self.closed:
            rest = parser.close()
            parsed = Parsed(parsed.content + rest.content, parsed.calls + rest.calls)
        return parsed

    def _add(self, parsed: Parsed) -> None:
        self.content += parsed.content
        for call in parsed.calls:
            if call.name is not None:
                self.calls.append(Call(call.id, call.name))
            self.calls[call.index].arguments += call.arguments

    def _delta(self, parsed: Parsed, finish_reason: str | None) -> Delta:
        taken = self._taken
        if not taken.any:
            self.scored[:0] = self._scored_prompt()
        delta = Delta(
            self.index,
            parsed.content,
            tuple(self.token_ids[taken.tokens :]),
            finish_reason,
            tuple(parsed.calls),
            tuple(self.scored[taken.scored :]),
            self.stop_reason if finish_reason else None,
        )
        taken.any = True
        taken.tokens, taken.scored = len(self.token_ids), len(self.scored)
        return delta

    def _scored_prompt(self) -> list[Scored]:
        """Score an echoed prompt, which the engine has done before it sampled a token."""
        return [
            Scored(self.submit.prompt_ids[at], offset, self.prompt_logprobs.get(at))
            for at, offset in enumerate(self._plan.echo_offsets)
        ]
