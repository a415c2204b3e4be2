"""The two inference routes: read, validate, encode, submit, and answer whole or as a stream."""

from __future__ import annotations

import time
from functools import partial

from fastapi import Request
from fastapi.responses import Response

from core.errors import ServiceError
from core.settings import parse_bytes
from server.bodies import CHAT, COMPLETION, Head, Shape, answer
from server.edge import error_response, json_response, read_body
from server.generation import Generation
from server.prompts import encode_chat, encode_prompts, room_for
from server.service import Prompted, Service
from server.streaming import ChunkWriter, EventStream, while_connected
from server.validation import GenerationCall, chat_call, completion_call


class Inference:
    """Both routes over one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._max_body_bytes = parse_bytes(service.settings.http.max_body, "--max-body")

    async def completions(self, request: Request) -> Response:
        received_ns = time.monotonic_ns()
        call = completion_call(await self._body(request))
        served = self._service.check_model(call.model)
        limit = served.ready.max_model_len
        prompts = [
            Prompted(ids, room_for(len(ids), call.max_tokens, limit, "prompt", call.clamp))
            for ids in await encode_prompts(call, served.tokenizer)
        ]
        return await self._respond(request, COMPLETION, call, prompts, received_ns)

    async def chat(self, request: Request) -> Response:
        received_ns = time.monotonic_ns()
        call = chat_call(await self._body(request))
        served = self._service.check_model(call.model)
        ids = await encode_chat(call, served.tokenizer)
        limit = served.ready.max_model_len
        room = room_for(len(ids), call.max_tokens, limit, "messages", clamp=False)
        return await self._respond(request, CHAT, call, [Prompted(ids, room)], received_ns)

    async def _body(self, request: Request) -> bytes:
        return await read_body(request.scope, request.receive, self._max_body_bytes)

    async def _respond(
        self,
        request: Request,
        shape: Shape,
        call: GenerationCall,
        prompts: list[Prompted],
        received_ns: int,
    ) -> Response:
        head, generation = self._service.open(shape, call, prompts, received_ns)
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
        body = answer(shape, head, generation, cost, call.return_token_ids)
        return json_response(body, headers={"server-timing": self._timing(generation)})

    def _timing(self, generation: Generation) -> str:
        timings = self._service.served().telemetry.timings(generation.ids)
        parts = [("queue", timings.queue), ("prefill", timings.prefill), ("decode", timings.decode)]
        if timings.floor is not None:
            parts.append(("floor", timings.floor))
        return ", ".join(f"{name};dur={ms:.3f}" for name, ms in parts)
