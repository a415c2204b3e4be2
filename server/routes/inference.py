"""The two inference routes: read, validate, encode, submit, and answer whole or as a stream."""

from __future__ import annotations

import time

from fastapi import Request
from fastapi.responses import Response
from msgspec import UnsetType

from core.errors import ServiceError
from server.answers.answer import Answer
from server.answers.request_size import check_size
from server.answers.served import Served
from server.contract.grammars import refuse_without_end
from server.contract.validation import GenerationCall, Validator
from server.engines.grammar_checker import GrammarChecker
from server.http.body_reader import BodyReader
from server.http.json import error_response, json_response
from server.http.sse import EventStream, events, while_connected
from server.limits.off_loop import OffLoop
from server.service import Service
from server.text.prompts import PromptEncoder, Prompts, check_token_fields
from telemetry.bill.cost import CostObject


class Inference:
    """Both routes over one service."""

    def __init__(
        self, service: Service, bodies: BodyReader, validator: Validator, encoder: PromptEncoder
    ) -> None:
        self._service, self._bodies = service, bodies
        self._validator, self._encoder = validator, encoder
        self._grammars = GrammarChecker()
        self._full = service.check_room  # refuses before time is spent on what a body says

    async def completions(self, request: Request) -> Response:
        received_ns = time.monotonic_ns()
        call = await self._bodies.parse(request, self._validator.completion, self._full)
        served = await self._check(call, request.state.tenant)
        prompts = await self._encoder.completion(call, served.tokenizer, served.context_limit)
        return await self._respond(request, call, prompts, received_ns)

    async def chat(self, request: Request) -> Response:
        received_ns = time.monotonic_ns()
        call = await self._bodies.parse(request, self._validator.chat, self._full)
        served = await self._check(call, request.state.tenant)
        prompts = await self._encoder.chat(call, served.tokenizer, served.context_limit)
        return await self._respond(request, call, prompts, received_ns)

    async def _check(self, call: GenerationCall, tenant: str) -> Served:
        """Check what the model and the grammar library have a say in."""
        served = self._service.check_model(call.model)
        check_token_fields(call, len(served.tokenizer.token_bytes))
        if call.grammar is not None:
            refuse_without_end(served.ready.model.eos_token_ids, call.grammar_param)
            await self._grammars.check(call.grammar, call.grammar_param, tenant)
        return served

    async def _respond(
        self, request: Request, call: GenerationCall, prompts: Prompts, received_ns: int
    ) -> Response:
        check_size(call, prompts, self._service.settings.http)
        answer = self._service.open(call, prompts, request.state.tenant, received_ns)
        if call.stream:
            return EventStream(events(answer.stream()), answer.close)
        try:
            response = await while_connected(
                request.receive, _whole(answer, self._service.off_loop)
            )
        finally:
            answer.close()
        return response or Response(status_code=499)  # the client is gone: nobody reads it


async def _whole(answer: Answer, off_loop: OffLoop) -> Response:
    try:
        body = await answer.whole(off_loop)
    except ServiceError as error:
        return error_response(error)
    headers = _timing(answer.bill() if isinstance(body.cost, UnsetType) else body.cost)
    if answer.is_long:
        return await off_loop.run(json_response, body, 200, headers)
    return json_response(body, headers=headers)


def _timing(bill: CostObject | None) -> dict[str, str]:
    """Write the header of what took how long, and of a slow answer why: its code, no sentence.

    No answer is kept back for want of it.
    """
    if bill is None:
        return {}
    phases = ("queue", "prefill", "decode", "floor")
    timings = ((phase, getattr(bill, f"{phase}_ms")) for phase in phases)
    parts = [f"{phase};dur={ms:.3f}" for phase, ms in timings if ms is not None]
    if bill.why is not None:
        parts.append(f'why;desc="{bill.why.code}"')
    return {"server-timing": ", ".join(parts)}
