"""Who is next: the order of admission. It knows neither blocks nor budgets."""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum

from core.request import Request, RequestId


class Obstacle(Enum):
    """Why the head of the queue was not admitted; all behind it wait for the same."""

    KV = "kv"  # it found no blocks
    SLOTS = "slots"  # as many requests run as may
    BUDGET = "budget"  # the step's tokens were spent, or no step was planned since it came


class WaitingQueue:
    """First come, first served; a preempted request came before everybody who waits.

    Cost: O(1) each, whatever the length: an abort in a long queue finds its request by id.
    """

    def __init__(self) -> None:
        self._requests: OrderedDict[RequestId, Request] = OrderedDict()

    def __len__(self) -> int:
        return len(self._requests)

    def get(self, id: RequestId) -> Request | None:
        return self._requests.get(id)

    @property
    def head(self) -> Request:
        """The one to admit next, of a queue that is not empty."""
        return next(iter(self._requests.values()))

    def push(self, request: Request) -> None:
        self._requests[request.id] = request

    def push_front(self, request: Request) -> None:
        self._requests[request.id] = request
        self._requests.move_to_end(request.id, last=False)

    def remove(self, request: Request) -> None:
        del self._requests[request.id]
