"""A checkpoint's tokenizer and chat template, read from the folder that the engine prepared.

Special tokens that a caller writes into a chat message stay plain text; in a raw prompt, which is
the caller's own markup, they are what they say.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tokenizers import Tokenizer

from core.errors import ModelError, TemplateFailed
from core.model import ModelConfig
from core.settings import HttpSettings
from server.contract.conversation import ChatPrompt
from server.contract.messages import suited
from server.contract.tools import explain_tools, write_calls
from server.limits.text_bound import TextLimit, longest_token_bytes
from server.templates.chat_template import NO_MARKS, ChatTemplate
from server.text.specials import Specials
from server.text.spellings import Spellings
from server.text.token_bytes import token_bytes

# the library would start a thread for every core, which are the engine's; it encodes one text at a
# time here, for which it needs none
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

TEMPLATE_FILE: Final = "chat_template.jinja"
TOOL_TEMPLATE_FILE: Final = "additional_chat_templates/tool_use.jinja"  # as transformers saves it
_END: Final = chr(0x100000)  # Area-B: ends the message that is to be continued
_TEMPLATE_TIMEOUT_S: Final = HttpSettings().template_timeout
TOKEN_NAMES: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


@dataclass(frozen=True, slots=True)
class Script:
    """What a conversation is rendered with; `template` None is the one that came with it.

    `marked` says that special tokens in the variables became marks. `marks` are those of the texts
    that the template names, and may look for.
    """

    variables: Mapping[str, Any]
    template: ChatTemplate | None
    marked: bool
    marks: Mapping[str, str]


class ModelTokenizer:
    """Text in, ids out; `token_bytes` leads back. `shown_bytes` does too, with special tokens.

    `longest_token_bytes` is how many bytes of a text one token may cover; None without a bound.

    Cost: encoding takes about a microsecond per character. `encode_batch_fast` gives up the
    interpreter lock while it does, also for one text; `encode` keeps it.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        template: ChatTemplate | None,
        hidden: Iterable[int],
        tool_template: ChatTemplate | None = None,
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._tokenizer, self.template = tokenizer, template
        self.names = names  # of tokens, such as `bos_token`, and their texts
        self._tool_template = tool_template  # of a model that has one of its own for tools
        self._literal = Tokenizer.from_str(tokenizer.to_str())
        self._literal.encode_special_tokens = True
        self._special_ids = {
            token.content: index
            for index, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        self._specials = Specials(self._special_ids)
        self.longest_token_bytes = longest_token_bytes(tokenizer)
        self.token_bytes = token_bytes(tokenizer, vocab_size, hidden)
        self.shown_bytes = token_bytes(tokenizer, vocab_size, show_special=True)
        self._around = _tokens_around(tokenizer)

    @classmethod
    def load(
        cls, folder: Path, model: ModelConfig, template_timeout_s: float = _TEMPLATE_TIMEOUT_S
    ) -> ModelTokenizer:
        """Read `tokenizer.json`, `tokenizer_config.json` and the chat templates.

        Raises:
            ModelError: a file is missing or broken; only the tokenizer itself must be there.
        """
        try:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises nothing narrower
            raise ModelError(f"tokenizer.json in {folder} cannot be read: {error}") from None
        tokenizer.no_truncation()  # a text is refused or encoded, never cut in silence
        tokenizer.no_padding()
        config = _read_json(folder / "tokenizer_config.json")
        tokens = {name: text for name in TOKEN_NAMES if (text := _text(config.get(name)))}
        plain, for_tools = (
            ChatTemplate(source, tokens, template_timeout_s) if source else None
            for source in _templates(folder, config)
        )
        return cls(tokenizer, model.vocab_size, plain, model.eos_token_ids, for_tools, tokens)

    def encode(self, text: str, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Encode a raw prompt, by default with the tokens that the tokenizer adds by itself."""
        return _ids(self._tokenizer, text, add_special_tokens)

    def token_text(self, id: int) -> str:
        """Show one token, also one that the tokenizer alone knows, beyond the model's ids."""
        if id < len(self.shown_bytes):
            return self.shown_bytes[id].decode("utf-8", "replace")
        return self._tokenizer.id_to_token(id) or ""

    @cached_property
    def spellings(self) -> Spellings:
        """Its tokens by their bytes; made when they are first asked for."""
        return Spellings(self.token_bytes)

    @property
    def added_before(self) -> int:
        """Count the tokens that `encode` puts before a text."""
        return len(self._around[0])

    def encode_word(self, text: str) -> tuple[int, ...]:
        """Encode a piece of running text; special tokens in it are text."""
        return _ids(self._literal, text)

    # ── chat ──────────────────────────────────────────────────────────────────────────────────

    def script(self, talk: ChatPrompt) -> Script:
        """Make a template's variables; special tokens that the caller wrote become marks.

        Raises:
            TemplateFailed: there is no template.
        """
        own = self._tool_template if talk.use and self._tool_template else self.template
        if talk.template is None and own is None:
            raise TemplateFailed("the model has no chat template", "messages")
        template = own if talk.template is None else None
        source = own.source if template and own else talk.template or ""
        messages = suited(talk.messages, source)
        if talk.continue_final:
            last = messages[-1]
            messages = [*messages[:-1], {**last, "content": f"{last['content']}{_END}"}]
        knows_tools = template is None or "tools" in template.names
        if not knows_tools:
            tools = talk.use.tools if talk.use else ()
            messages = explain_tools(messages, tools) if tools else write_calls(messages)
        variables = {
            "documents": None,  # a template may ask whether they are given
            **talk.variables,
            "messages": messages,
            "tools": list(talk.use.tools) if talk.use and knows_tools else None,
            "add_generation_prompt": talk.add_generation_prompt,
        }
        if not self._specials.anywhere(variables):
            return Script(variables, template, False, NO_MARKS)
        marks = self._specials.marks_in(source)
        return Script(self._specials.mark(variables), template, True, marks)

    def encode_script(
        self, rendered: str, marked: bool, talk: ChatPrompt, limit: TextLimit
    ) -> tuple[int, ...]:
        """Encode what a template made of `script`; it alone decides on special tokens.

        Raises:
            TemplateFailed: the template left out the message to be continued.
            ContextLengthExceeded, InvalidValue: the text is over `limit`.
        """
        if talk.continue_final:
            rendered, found, _ = rendered.rpartition(_END)
            if not found:
                message = "the chat template left out the final message"
                raise TemplateFailed(message, "continue_final_message")
        if marked:
            ids = self._encode_marked(rendered, limit, talk.param)
        else:
            limit.check(rendered, talk.param)
            ids = _ids(self._tokenizer, rendered)
        before, after = self._around
        return (*before, *ids, *after) if talk.add_special_tokens else ids

    def _encode_marked(self, rendered: str, limit: TextLimit, param: str) -> tuple[int, ...]:
        pieces = [
            (piece, None if piece in self._special_ids else self._specials.unmark(piece))
            for piece in self._specials.split(rendered)
        ]
        limit.check("".join(piece if text is None else text for piece, text in pieces), param)
        ids: list[int] = []
        for piece, text in pieces:
            if text is None:
                ids.append(self._special_ids[piece])
            elif text:
                ids += _ids(self._literal, text)
        return tuple(ids)


def _ids(tokenizer: Tokenizer, text: str, add_special_tokens: bool = False) -> tuple[int, ...]:
    batch = tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
    return tuple(batch[0].ids)


def _templates(folder: Path, config: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Read the sources of a model's template, and of the one that it has for tools, if any."""
    named = config.get("chat_template")
    if isinstance(named, list):  # several by name; the plain one is called default
        sources = {entry["name"]: entry["template"] for entry in named}
    else:
        sources = {"default": named} if isinstance(named, str) else {}
    for name, file in (("default", TEMPLATE_FILE), ("tool_use", TOOL_TEMPLATE_FILE)):
        if (path := folder / file).exists():
            sources[name] = path.read_text(encoding="utf-8")
    return sources.get("default"), sources.get("tool_use")


def _tokens_around(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Find which tokens the tokenizer puts before and after a text by itself."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    whole = tokenizer.encode("a", add_special_tokens=True).ids
    at = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
    return whole[:at], whole[at + len(bare) :]


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
