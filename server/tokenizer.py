"""A checkpoint's tokenizer and chat template, read from the folder that the engine prepared.

Special tokens that a caller writes into a chat message stay plain text; in a raw prompt, which is
the caller's own markup, they are what they say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from core.errors import ModelError, TemplateFailed
from core.model import ModelConfig
from server.chat_template import ChatTemplate
from server.conversation import Conversation
from server.messages import Message
from server.token_bytes import token_bytes
from server.tools import explain_tools, write_calls

_PRIVATE: Final = 0xF0000  # Supplementary Private Use Area-A: marks that no text should hold
_END: Final = chr(0x100000)  # Area-B: ends the message that is to be continued
_TOKEN_NAMES: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


@dataclass(frozen=True, slots=True)
class Script:
    """Variables for a chat template; `marked` says that special tokens in them became marks."""

    variables: Mapping[str, Any]
    marked: bool


class ModelTokenizer:
    """Text in, ids out; `token_bytes` leads back. `shown_bytes` does too, with special tokens.

    Cost: encoding takes about a microsecond per character and gives up the GIL.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        template: ChatTemplate | None,
        hidden: Iterable[int],
    ) -> None:
        self._tokenizer, self.template = tokenizer, template
        self._literal = Tokenizer.from_str(tokenizer.to_str())
        self._literal.encode_special_tokens = True
        self._specials = {
            token.content: index
            for index, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        self.token_bytes = token_bytes(tokenizer, vocab_size, hidden)
        self.shown_bytes = token_bytes(tokenizer, vocab_size, show_special=True)
        self._around = _tokens_around(tokenizer)
        self._marks = {text: chr(_PRIVATE + at) for at, text in enumerate(self._specials)}
        self._any_special = _any_of(self._specials)
        self._any_mark = _any_of(self._marks.values())

    @classmethod
    def load(
        cls, folder: Path, model: ModelConfig, template_timeout_s: float = 2.0
    ) -> ModelTokenizer:
        """Read `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`.

        Raises:
            ModelError: a file is missing or broken; only the tokenizer itself must be there.
        """
        try:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises nothing narrower
            raise ModelError(f"tokenizer.json in {folder} cannot be read: {error}") from None
        config = _read_json(folder / "tokenizer_config.json")
        path = folder / "chat_template.jinja"
        source = path.read_text(encoding="utf-8") if path.exists() else config.get("chat_template")
        tokens = {name: text for name in _TOKEN_NAMES if (text := _text(config.get(name)))}
        template = None
        if isinstance(source, str):
            template = ChatTemplate(source, tokens, template_timeout_s)
        return cls(tokenizer, model.vocab_size, template, model.eos_token_ids)

    def encode(self, text: str, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Encode a raw prompt, by default with the tokens that the tokenizer adds by itself."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def token_text(self, id: int) -> str:
        """Show one token, also one that the tokenizer alone knows, beyond the model's ids."""
        if id < len(self.shown_bytes):
            return self.shown_bytes[id].decode("utf-8", "replace")
        return self._tokenizer.id_to_token(id) or ""

    @property
    def added_before(self) -> int:
        """Count the tokens that `encode` puts before a text."""
        return len(self._around[0])

    def encode_word(self, text: str) -> tuple[int, ...]:
        """Encode a piece of running text; special tokens in it are text."""
        return tuple(self._literal.encode(text, add_special_tokens=False).ids)

    # ── chat ──────────────────────────────────────────────────────────────────────────────────

    def encode_chat(self, talk: Conversation) -> tuple[int, ...]:
        """Render by the model's own template, and encode.

        Raises:
            TemplateFailed: there is no template, or it refused the messages.
        """
        script = self.script(talk)
        assert self.template is not None  # `script` has looked
        return self.encode_script(self.template.render(script.variables), script.marked, talk)

    def script(self, talk: Conversation) -> Script:
        """Make a template's variables; special tokens that the caller wrote become marks.

        Raises:
            TemplateFailed: there is no template.
        """
        if talk.template is None and self.template is None:
            raise TemplateFailed("the model has no chat template", "messages")
        messages: Sequence[Message] = talk.messages
        if talk.continue_final:
            last = messages[-1]
            messages = [*messages[:-1], {**last, "content": f"{last['content']}{_END}"}]
        knows_tools = talk.template is not None or "tools" in _names(self.template)
        if not knows_tools:
            tools = talk.use.tools if talk.use else ()
            messages = explain_tools(messages, tools) if tools else write_calls(messages)
        variables = {
            **talk.variables,
            "messages": messages,
            "tools": list(talk.use.tools) if talk.use and knows_tools else None,
            "add_generation_prompt": talk.add_generation_prompt,
        }
        marked = self._any_special is not None and _anywhere(self._any_special, variables)
        return Script(self._mark(variables) if marked else variables, marked)

    def encode_script(self, rendered: str, marked: bool, talk: Conversation) -> tuple[int, ...]:
        """Encode what a template made of `script`; it alone decides on special tokens.

        Raises:
            TemplateFailed: the template left out the message to be continued.
        """
        if talk.continue_final:
            rendered, found, _ = rendered.rpartition(_END)
            if not found:
                message = "the chat template left out the final message"
                raise TemplateFailed(message, "continue_final_message")
        if marked:
            ids = self._encode_marked(rendered)
        else:
            ids = tuple(self._tokenizer.encode(rendered, add_special_tokens=False).ids)
        before, after = self._around
        return (*before, *ids, *after) if talk.add_special_tokens else ids

    # ── special tokens in messages: rendered as marks, so that they differ from the template's ────

    def _mark(self, value: Any) -> Any:
        assert self._any_special is not None
        if isinstance(value, str):
            return self._any_special.sub(lambda found: self._marks[found[0]], value)
        if isinstance(value, Mapping):
            return {key: self._mark(item) for key, item in value.items()}
        return [self._mark(item) for item in value] if isinstance(value, list | tuple) else value

    def _encode_marked(self, rendered: str) -> tuple[int, ...]:
        assert self._any_special is not None
        ids: list[int] = []
        for piece in re.split(f"({self._any_special.pattern})", rendered):
            if piece in self._specials:
                ids.append(self._specials[piece])
            elif piece:
                text = self._unmark(piece)
                ids += self._literal.encode(text, add_special_tokens=False).ids
        return tuple(ids)

    def _unmark(self, text: str) -> str:
        assert self._any_mark is not None
        names = list(self._specials)
        return self._any_mark.sub(lambda found: names[ord(found[0]) - _PRIVATE], text)


def _names(template: ChatTemplate | None) -> set[str]:
    return template.names if template is not None else set()


def _tokens_around(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Find which tokens the tokenizer puts before and after a text by itself."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    whole = tokenizer.encode("a", add_special_tokens=True).ids
    at = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
    return whole[:at], whole[at + len(bare) :]


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Match any of the texts, the longest first; None where there are none."""
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _anywhere(pattern: re.Pattern[str], value: Any) -> bool:
    if isinstance(value, str):
        return pattern.search(value) is not None
    if isinstance(value, Mapping):
        return any(_anywhere(pattern, item) for item in value.values())
    return isinstance(value, list | tuple) and any(_anywhere(pattern, item) for item in value)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from None
    return value if isinstance(value, dict) else {}


def _text(token: Any) -> str | None:
    """Read a token as older configs write it: a text, or an object with `content`."""
    return token.get("content") if isinstance(token, dict) else token
