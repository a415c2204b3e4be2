"""/tokenize and /detokenize: what a prompt costs in tokens, without running it."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from server.body_reader import BodyReader
from server.edge import json_response
from server.prompts import PromptEncoder, check_vocabulary
from server.service import Service
from server.validation import Validator


class TokenRoutes:
    """Both over one service; the counts are those that inference would use."""

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
        texts = [tokenizer.token_text(id) for id in ids] if call.with_texts else None
        limit = served.ready.max_model_len
        body = {"count": len(ids), "max_model_len": limit, "tokens": ids, "token_strs": texts}
        return json_response(body)

    async def detokenize(self, request: Request) -> Response:
        name, ids = await self._bodies.parse(request, self._validator.detokenize)
        shown = self._service.check_model(name).tokenizer.shown_bytes
        check_vocabulary(ids, len(shown), "tokens")
        text = b"".join(shown[id] for id in ids).decode("utf-8", "replace")
        return json_response({"prompt": text})
