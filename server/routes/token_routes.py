"""/tokenize, /detokenize and /tokenizer_info: what a prompt costs in tokens, without running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fastapi import Request
from fastapi.responses import Response
from msgspec import Struct

from server.answers.bodies import Ids, Whole
from server.contract.validation import Validator
from server.http.body_reader import BodyReader
from server.http.json import json_response
from server.service import Service
from server.text.prompts import PromptEncoder, check_vocabulary
from server.text.tokenizer import TOKEN_NAMES

_MANY_TOKENS: Final = 4096  # about a millisecond of writing


class Tokenized(Struct, forbid_unknown_fields=True):
    count: Whole
    max_model_len: Whole
    tokens: Ids
    token_strs: list[str] | None


class Detokenized(Struct, forbid_unknown_fields=True):
    prompt: str


class TokenizerInfo(Struct, forbid_unknown_fields=True):
    """What lm-eval asks for; `chat_template` is the model's plain one."""

    tokenizer_class: str
    model_max_length: Whole
    bos_token: str | None
    eos_token: str | None
    unk_token: str | None
    pad_token: str | None
    chat_template: str | None


class TokenRoutes:
    """All over one service; the counts are those that inference would use."""

    def __init__(
        self, service: Service, bodies: BodyReader, validator: Validator, encoder: PromptEncoder
    ) -> None:
        self._service, self._bodies = service, bodies
        self._validator, self._encoder = validator, encoder

    async def tokenize(self, request: Request) -> Response:
        call = await self._bodies.parse(request, self._validator.tokenize)
        served = self._service.check_model(call.model)
        tokenizer = served.tokenizer
        if isinstance(call.prompt, str):
            ids = await self._encoder.text(call.prompt, call.add_special_tokens, tokenizer)
        else:
            ids = await self._encoder.conversation(call.prompt, tokenizer)
        show = tokenizer.token_text if call.with_texts else None
        given = (ids, show, served.ready.max_model_len)
        return await self._answer(len(ids), _tokens, *given)

    async def detokenize(self, request: Request) -> Response:
        name, ids = await self._bodies.parse(request, self._validator.detokenize)
        shown = self._service.check_model(name).tokenizer.shown_bytes
        return await self._answer(len(ids), _text, ids, shown)

    async def info(self, _: Request) -> Response:
        served = self._service.served()
        tokenizer, template = served.tokenizer, served.tokenizer.template
        told = TokenizerInfo(
            tokenizer_class="PreTrainedTokenizerFast",
            model_max_length=served.ready.max_model_len,
            chat_template=template.source if template is not None else None,
            **{name: tokenizer.names.get(name) for name in TOKEN_NAMES},
        )
        return json_response(told)

    async def _answer(
        self, tokens: int, write: Callable[..., Response], *given: object
    ) -> Response:
        """Write an answer about so many tokens, off the event loop where they are many."""
        if tokens > _MANY_TOKENS:
            return await self._service.off_loop.run(write, *given)
        return write(*given)


def _tokens(ids: Sequence[int], show: Callable[[int], str] | None, limit: int) -> Response:
    texts = None if show is None else [show(id) for id in ids]
    return json_response(Tokenized(len(ids), limit, ids, texts))


def _text(ids: Sequence[int], shown: Sequence[bytes]) -> Response:
    check_vocabulary(ids, len(shown), "tokens")
    text = b"".join(shown[id] for id in ids).decode("utf-8", "replace")
    return json_response(Detokenized(text))
