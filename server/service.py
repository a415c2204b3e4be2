"""What the routes stand on: the served model, its engine and its books; it starts generations.

Built once and handed to the app: nothing here is global.
"""

from __future__ import annotations

import hashlib
import random
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import EngineStarting, ModelNotFound, ServiceError
from core.settings import Settings
from core.wire import Ready
from server.answers.bodies import Head, Shape
from server.answers.generation import Generation
from server.answers.submission import Submission
from server.contract.validation import GenerationCall
from server.engines.client import RETRY_AFTER_S
from server.engines.observer import unharmed
from server.engines.supervisor import Launcher, Supervisor, launch_process
from server.limits.off_loop import OffLoop
from server.templates.pool import Templates
from server.text.prompts import ContextLimit, Prompts
from server.text.tokenizer import ModelTokenizer
from telemetry.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Served:
    """The model behind the API, from the first time that its engine is ready."""

    name: str
    created: int
    ready: Ready
    tokenizer: ModelTokenizer
    telemetry: Telemetry

    @property
    def context_limit(self) -> ContextLimit:
        ready = self.ready
        held_tokens = ready.num_blocks * ready.block_size
        return ContextLimit(ready.max_model_len, of_store=ready.max_model_len == held_tokens)

    @property
    def fingerprint(self) -> str:
        """Name what decides on a seeded output: model, formats and backend."""
        ready = self.ready
        parts = (ready.model.name, ready.weights, ready.kv_dtype, ready.backend, ready.isa)
        return f"fp_{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:12]}"


class Service:
    """`on_ready` is told when requests can be taken, after every start of the engine."""

    def __init__(
        self,
        settings: Settings,
        on_ready: Callable[[Served], None],
        launch: Launcher = launch_process,
    ) -> None:
        self.settings = settings
        self.supervisor = Supervisor(
            settings.engine, self._engine_ready, launch, settings.http.queue_timeout
        )
        self._served: Served | None = None
        self._on_ready = on_ready
        self.off_loop = OffLoop()
        self.templates = Templates(settings.http.template_timeout, self.off_loop)
        self._seeds = random.Random(settings.engine.model.seed)

    @property
    def telemetry(self) -> Telemetry | None:
        return self._served.telemetry if self._served else None

    def served(self) -> Served:
        """Return the model.

        Raises:
            EngineStarting: it is being loaded.
        """
        if self._served is None:
            raise EngineStarting("the model is being loaded", RETRY_AFTER_S)
        return self._served

    def check_model(self, name: str | None) -> Served:
        """Return the model if `name` is its name, or None, which means it.

        Raises:
            ModelNotFound: it is another's.
        """
        served = self.served()
        if name is not None and name != served.name:
            shown = name if len(name) <= 200 else f"{name[:200]}…"
            raise ModelNotFound(f"the model {shown!r} does not exist", "model")
        return served

    async def shut(self) -> None:
        """End what it started beside the engine."""
        await self.templates.close()
        self.off_loop.close()

    def open(
        self, call: GenerationCall, prompts: Prompts, tenant: str, received_ns: int
    ) -> tuple[Head, Shape, Generation]:
        """Submit n generations per prompt.

        Raises:
            ServiceError: too many are live, or there is no engine to take them; none is submitted.
        """
        served = self.served()
        eos, draw = served.ready.model.eos_token_ids, lambda: self._seeds.getrandbits(63)
        submission = Submission(
            call, prompts.list, tenant, served.tokenizer, eos, draw, prompts.bad_words
        )
        shape = submission.shape()
        id = f"{shape.id_prefix}{uuid.uuid4().hex}"
        head = Head(id, int(time.time()), served.name, served.fingerprint)
        submits = list(submission.submits(id))
        try:
            client = self.supervisor.client()
            lengths = [len(submit.prompt_ids) for submit in submits]
            client.backlog.make_way(self.settings.http, tenant, lengths)
        except ServiceError:
            served.telemetry.on_refused(submission.count)
            raise
        for index, submit in enumerate(submits):
            served.telemetry.on_received(
                submit.id,
                len(submit.prompt_ids),
                tenant,
                received_ns=received_ns,
                shares_prompt=index % call.n > 0,
            )
        generation = Generation(client, submits, partial(submission.plan, id), call.n)
        return head, shape, generation

    def close(self, generation: Generation) -> None:
        """Give up what still runs, and let go of its books."""
        generation.close()
        with unharmed("a response's end"):
            self.served().telemetry.forget(generation.ids)

    def cost(self, generation: Generation) -> Mapping[str, Any] | None:
        """Sum up what the generation cost; None where bills are turned off, or fail."""
        if self.settings.telemetry.response_cost:
            with unharmed("a bill"):
                return self.served().telemetry.cost(generation.ids).as_dict()
        return None

    def _engine_ready(self, ready: Ready) -> Telemetry:
        if self._served is None:
            name = self.settings.engine.model.served_model_name or ready.model.name
            self._served = Served(
                name=name,
                created=int(time.time()),
                ready=ready,
                tokenizer=ModelTokenizer.load(
                    Path(ready.model_dir), ready.model, self.settings.http.template_timeout
                ),
                telemetry=Telemetry(name, self.settings.telemetry),
            )
        self._served.telemetry.on_ready(ready)
        self._on_ready(self._served)
        return self._served.telemetry
