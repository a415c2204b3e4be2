"""What the routes stand on: the served model, its engine and its books; it opens answers.

Built once and handed to the app: nothing here is global.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from core.errors import EngineStarting, ModelNotFound, ServiceError
from core.settings import Settings
from core.wire import Ready
from server.answers.answer import Answer
from server.answers.served import Served
from server.contract.validation import GenerationCall
from server.engines.client import RETRY_AFTER_S
from server.engines.supervisor import Launcher, Supervisor, launch_process
from server.limits.off_loop import OffLoop
from server.templates.pool import Templates
from server.text.prompts import Prompts
from server.text.tokenizer import ModelTokenizer
from telemetry.telemetry import Telemetry


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
            raise ModelNotFound(
                f"the model {shown!r} does not exist; this server has {served.name!r}", "model"
            )
        return served

    async def shut(self) -> None:
        """End what it started beside the engine."""
        await self.templates.close()
        self.off_loop.close()

    def check_room(self, tenant: str) -> None:
        """Refuse a request for which there is no room, whatever it says.

        Raises:
            Overloaded: all that the tenant may have in the queue is there.
        """
        if self._served is None or not self.supervisor.ready:
            return
        try:
            self.supervisor.client().backlog.make_way(self.settings.http, tenant, [1])
        except ServiceError:
            self._served.telemetry.on_refused(1)
            raise

    def open(self, call: GenerationCall, prompts: Prompts, tenant: str, received_ns: int) -> Answer:
        """Submit n generations per prompt.

        Raises:
            InvalidValue: the call's fields together allow no token.
            ServiceError: too many are live, or there is no engine to take them; none is submitted.
        """
        served = self.served()
        answer = Answer(call, prompts, tenant, served, lambda: self._seeds.getrandbits(63))
        lengths = [len(prompt.ids) for prompt in prompts.list for _ in range(call.n)]
        try:
            client = self.supervisor.client()
            client.backlog.make_way(self.settings.http, tenant, lengths)
        except ServiceError:
            served.telemetry.on_refused(len(lengths))
            raise
        answer.submit(client, received_ns)
        return answer

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
                tells_cost=self.settings.telemetry.response_cost,
            )
        self._served.telemetry.on_ready(ready)
        self._on_ready(self._served)
        return self._served.telemetry
