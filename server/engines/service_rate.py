"""How fast requests are got through, measured, and how long a backlog takes at that rate."""

from __future__ import annotations

import math
from typing import Final

MEMORY_S: Final = 30.0  # of work: what is older counts for less than 1/e


class ServiceRate:
    """Requests that ended, and the tokens of their prompts, for each second of work."""

    def __init__(self) -> None:
        self._busy_s = self._requests = self._prompt_tokens = 0.0

    def observe(self, busy_s: float, prompts: list[int]) -> None:
        """Count a span of work in which requests with `prompts` (tokens of each) ended."""
        kept = math.exp(-busy_s / MEMORY_S)
        self._busy_s = self._busy_s * kept + busy_s
        self._requests = self._requests * kept + len(prompts)
        self._prompt_tokens = self._prompt_tokens * kept + sum(prompts)

    def seconds_for(self, requests: int, prompt_tokens: int) -> float | None:
        """Predict how long that many take; None before anything ended."""
        if not (self._requests and self._prompt_tokens):
            return None
        shares = requests / self._requests, prompt_tokens / self._prompt_tokens
        return max(shares) * self._busy_s
