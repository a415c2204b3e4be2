"""The two inference routes: read, validate, encode, submit, and answer whole or as a stream."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from core.errors import ServiceError
from server.answers.bodies import Head, Shape, answer
from server.answers.choice import Choice
from server.answers.generation import Generation
from server.answers.logprobs import LogprobWriter
from server.answers.request_size import check_size
from server.contract.grammars import GrammarChecker
from server.contract.validation import GenerationCall, Validator
from server.engines.observer import unharmed
from server.http.body_reader import BodyReader
from server.http.middleware import error_response, json_response
from server.http.sse import ChunkWriter, EventStream, while_connected
from server.service import Served, Service
from server.text.prompts import PromptEncoder, Prompts, check_token_fields


class Inference:
    """Both routes over one service."""

    def __init__(
        self, service: Service, bodies: BodyReader, validator: Validator, encoder: PromptEncoder
    ) -> None:
        self._service, self._bodies = service, bodies
        self._validator, self._encoder = validator, encoder
        self._grammars = GrammarChecker()

    async def completions(self, request: Request) -> Response:
        received_ns = time.monotonic_ns()
        call = await self._bodies.parse(request, self._validator.completion)
        served = await self._check(call)
        prompts = await self._encoder.completion(call, served.tokenizer, served.context_limit)
        return await self._respond(request, call, prompts, received_ns)

    async def chat(self, request: Request) -> Response:
        received_ns = time.monotonic_ns()
        call = await self._bodies.parse(request, self._validator.chat)
        served = await self._check(call)
        prompts = await self._encoder.chat(call, served.tokenizer, served.context_limit)
        return await self._respond(request, call, prompts, received_ns)

    async def _check(self, call: GenerationCall) -> Served:
        """Check what the model and the grammar library have a say in."""
        served = self._service.check_model(call.model)
        check_token_fields(call, len(served.tokenizer.token_bytes))
        if call.grammar is not None:
            await self._grammars.check(call.grammar, call.grammar_param)
        return served

    async def _respond(
        self, request: Request, call: GenerationCall, prompts: Prompts, received_ns: int
    ) -> Response:
        check_size(call, prompts.list, self._service.settings.http)
        head, shape, generation = self._service.open(
            call, prompts, request.state.tenant, received_ns
        )
        if call.stream:
            cost = partial(self._service.cost, generation)
            writer = ChunkWriter(shape, head, generation, call, cost)
            return EventStream(writer.events(), partial(self._service.close, generation))
        try:
            work = self._whole(shape, head, generation, call)
            response = await while_connected(request.receive, work)
        finally:
            self._service.close(generation)
        return response or Response(status_code=499)  # the client is gone: nobody reads it

    async def _whole(
        self, shape: Shape, head: Head, generation: Generation, call: GenerationCall
    ) -> Response:
        try:
            await generation.finish()
        except ServiceError as error:
            return error_response(error)
        cost = self._service.cost(generation)
        body = answer(shape, head, generation, cost, partial(self._extras, call))
        return json_response(body, headers=self._timing(generation))

    def _extras(self, call: GenerationCall, choice: Choice) -> dict[str, Any]:
        """Write what a choice has beyond OpenAI's fields, where it was asked for."""
        extras: dict[str, Any] = {}
        prompt_ids = choice.submit.prompt_ids
        if call.return_token_ids:
            extras |= {"prompt_token_ids": prompt_ids, "token_ids": choice.token_ids}
        if call.prompt_logprobs is not None and choice.stream is not None:
            shown = self._service.served().tokenizer.shown_bytes
            writer = LogprobWriter(shown, call.prompt_logprobs, call.tokens_as_ids)
            known = choice.stream.prompt_logprobs
            extras["prompt_logprobs"] = writer.prompt(known, len(prompt_ids))
        return extras

    def _timing(self, generation: Generation) -> dict[str, str]:
        """Write the header of what took how long; no answer is kept back for want of it."""
        with unharmed("an answer's timing"):
            timings = asdict(self._service.served().telemetry.timings(generation.ids))
            parts = [f"{name};dur={ms:.3f}" for name, ms in timings.items() if ms is not None]
            return {"server-timing": ", ".join(parts)}
        return {}
