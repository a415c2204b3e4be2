"""What waits for the engine, and who is refused because of it. It sends nothing."""

from __future__ import annotations

from collections import Counter
from typing import Final

from core.errors import Overloaded
from core.request import RequestId
from core.settings import HttpSettings
from server.engines.service_rate import ServiceRate

UNKNOWN_S: Final = 2.0  # when to come back, while no request has ended yet
LONGEST_S: Final = 600.0  # clients give up on longer ones


class Backlog:
    """Requests that were sent to one engine; those that it has not admitted yet wait.

    Cost: O(1) for each event; O(tenants) to ask for room.
    """

    def __init__(self) -> None:
        self._live: dict[RequestId, tuple[str, int]] = {}  # tenant, prompt tokens
        self._since_s: dict[RequestId, float] = {}  # of those that wait, oldest first
        self._requests: Counter[str] = Counter()  # live, by tenant
        self._waiting: Counter[str] = Counter()  # requests that wait, by tenant
        self._waiting_tokens: Counter[str] = Counter()  # by tenant
        self._ended: list[int] = []  # prompts, since the last step
        self._rate = ServiceRate()

    def __len__(self) -> int:
        return len(self._since_s)

    def joined(self, id: RequestId, tenant: str, prompt_tokens: int, now_s: float) -> None:
        self._live[id], self._since_s[id] = (tenant, prompt_tokens), now_s
        self._requests[tenant] += 1
        self._waiting[tenant] += 1
        self._waiting_tokens[tenant] += prompt_tokens

    def admitted(self, id: RequestId) -> bool:
        """Count that a request waits no longer; return whether it did until now."""
        if self._since_s.pop(id, None) is None:
            return False
        tenant, prompt_tokens = self._live[id]
        self._waiting[tenant] -= 1
        self._waiting_tokens[tenant] -= prompt_tokens
        return True

    def left(self, id: RequestId) -> None:
        """Count an end, of whatever kind; an unknown one is ignored."""
        if id in self._live:
            self.admitted(id)
            tenant, prompt_tokens = self._live.pop(id)
            self._requests[tenant] -= 1
            self._ended.append(prompt_tokens)

    def stepped(self, busy_s: float) -> None:
        ended, self._ended = self._ended, []
        self._rate.observe(busy_s, ended)

    def overdue(self, now_s: float, limit_s: float) -> list[RequestId]:
        """Give those who have waited longer than `limit_s`."""
        overdue = []
        for id, since_s in self._since_s.items():
            if now_s - since_s <= limit_s:
                break
            overdue.append(id)
        return overdue

    def make_way(self, limits: HttpSettings, tenant: str, prompts: list[int]) -> None:
        """Let requests with `prompts` (tokens of each) join, or say when to come back.

        That is when there is room, and when those of the tenant that wait now have been served: who
        came back at the first free place would find it taken by another that was refused.

        Each tenant has the limits for itself, so that the flood of one refuses nobody else. Tenants
        with requests that wait are served alike: each at its share of the measured rate.

        Raises:
            Overloaded: too many of the tenant's are live, or too many of its tokens wait.
        """
        live, waiting = self._requests[tenant], self._waiting_tokens[tenant]
        sharing = sum(1 for tokens in self._waiting_tokens.values() if tokens) or 1
        over = live + len(prompts) - limits.max_queue
        if over > 0:
            asked = f"{live} requests are live and {len(prompts)} more are asked for"
            message = f"{asked}; the limit is {limits.max_queue}"
            ahead = max(over, self._waiting[tenant])
            raise Overloaded(message, self._retry_after_s(ahead * sharing, waiting * sharing))
        over = waiting + sum(prompts) - limits.max_queue_tokens
        if over > 0 and waiting:
            message = f"{waiting} prompt tokens wait; the limit is {limits.max_queue_tokens}"
            ahead = self._waiting[tenant] * sharing
            raise Overloaded(message, self._retry_after_s(ahead, max(over, waiting) * sharing))

    def clears_after_s(self) -> float:
        """Predict when all who wait now will have ended."""
        return self._retry_after_s(len(self), self._waiting_tokens.total())

    def _retry_after_s(self, requests: int, prompt_tokens: int) -> float:
        seconds = self._rate.seconds_for(requests, prompt_tokens)
        return UNKNOWN_S if seconds is None else min(max(seconds, 1.0), LONGEST_S)
