"""Those who hold blocks, by precedence. It knows neither blocks nor budgets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from core.request import Request, RequestId


class Running:
    """In order of admission; a tenant's own requests take its places in order of their class.

    So a lower priority number goes before the others of its tenant, and never before another's
    request because of it, unless it orders `across` all tenants: then all are as one tenant.

    Cost: O(1) to add, find and remove; to order, O(n log n) after each change.
    """

    def __init__(self, across: bool) -> None:
        self._across = across
        self._requests: dict[RequestId, Request] = {}  # by admission
        self._order: list[Request] | None = None  # None: it has changed since

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._in_order())

    def get(self, id: RequestId) -> Request | None:
        return self._requests.get(id)

    def add(self, request: Request) -> None:
        self._requests[request.id] = request
        self._order = None

    def remove(self, request: Request) -> None:
        del self._requests[request.id]
        self._order = None

    def behind(self, request: Request) -> Iterator[Request]:
        """Give those whom `request` precedes, the last first."""
        for other in reversed(self._in_order()):
            if other is request:
                return
            yield other

    def _in_order(self) -> list[Request]:
        if self._order is None:
            owners = [self._owner(request) for request in self._requests.values()]
            own: defaultdict[str, list[Request]] = defaultdict(list)
            for owner, request in zip(owners, self._requests.values(), strict=True):
                own[owner].append(request)
            turns = {
                owner: iter(sorted(requests, key=lambda other: other.priority))
                for owner, requests in own.items()
            }
            self._order = [next(turns[owner]) for owner in owners]
        return self._order

    def _owner(self, request: Request) -> str:
        return "" if self._across else request.tenant
