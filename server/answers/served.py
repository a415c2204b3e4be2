"""The model behind the API, as routes and answers see it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from core.wire import Ready
from server.limits.text_bound import ContextLimit
from server.text.tokenizer import ModelTokenizer
from telemetry.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Served:
    """What does not change from the first time that an engine is ready."""

    name: str
    created: int
    ready: Ready
    tokenizer: ModelTokenizer
    telemetry: Telemetry
    tells_cost: bool = True  # answers carry their bill

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
