"""Those who hold blocks, by precedence. It knows neither blocks nor budgets."""

from __future__ import annotations

from collections.abc import Iterator

from core.request import Request, RequestId


class Running:
    """In order of their class, lower priorities first, and of their admission within it.

    Cost: O(1) to add, find and remove; there are few classes.
    """

    def __init__(self) -> None:
        self._classes: dict[int, dict[RequestId, Request]] = {}  # by priority
        self._requests: dict[RequestId, Request] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        for priority in sorted(self._classes):
            yield from self._classes[priority].values()

    def get(self, id: RequestId) -> Request | None:
        return self._requests.get(id)

    def add(self, request: Request) -> None:
        self._requests[request.id] = request
        self._classes.setdefault(request.priority, {})[request.id] = request

    def remove(self, request: Request) -> None:
        del self._requests[request.id]
        peers = self._classes[request.priority]
        del peers[request.id]
        if not peers:
            del self._classes[request.priority]

    def behind(self, request: Request) -> Iterator[Request]:
        """Give those whom `request` precedes, the last first."""
        for priority in sorted(self._classes, reverse=True):
            for other in reversed(self._classes[priority].values()):
                if other is request:
                    return
                yield other
