"""Who is next: the order of admission. It knows neither blocks nor budgets."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterable

from core.request import Request, RequestId
from scheduler.shares import Shares


class WaitingQueue:
    """A line for each class and tenant; the first class of the least served tenant is next.

    Where priority orders `across` tenants, the first class goes before shares. Ageing comes before
    both: the head of a line, once `ageing_tokens` were served since it got there, goes before all
    whose lines were last served later. So no class and no tenant starves.

    Invariant: within a line first come, first served, preempted or not.
    Cost: O(1) to add and to remove, whatever the length; O(lines) to choose.
    """

    def __init__(self, shares: Shares, ageing_tokens: int, across: bool = False) -> None:
        self._shares, self._ageing_tokens, self._across = shares, ageing_tokens, across
        self._lines: dict[tuple[int, str], _Line] = {}
        self._requests: dict[RequestId, Request] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def get(self, id: RequestId) -> Request | None:
        return self._requests.get(id)

    def has(self, tenant: str) -> bool:
        """Whether a request of `tenant` waits, in any class."""
        return any(other == tenant for _, other in self._lines)

    @property
    def head(self) -> Request:
        """The one to admit next, of a queue that is not empty."""
        return min(self._contenders(), key=self._rank).head

    def _contenders(self) -> Iterable[_Line]:
        """Give each tenant's first class and the lines that aged; all where classes go first."""
        if self._across:
            return self._lines.values()
        first: dict[str, int] = {}
        for priority, tenant in self._lines:
            first[tenant] = min(priority, first.get(tenant, priority))
        return [
            line
            for (priority, tenant), line in self._lines.items()
            if priority == first[tenant] or self._aged(line)
        ]

    def _aged(self, line: _Line) -> bool:
        return self._shares.total - line.since_total >= self._ageing_tokens

    def _rank(self, line: _Line) -> tuple[int, int, int, int]:
        head = line.head
        if self._aged(line):
            return 0, line.since_total, 0, head.arrival
        priority = head.priority if self._across else 0
        return 1, priority, self._shares.served(head.tenant), head.arrival

    def push(self, request: Request) -> None:
        """Add one that never ran: it is the last of its line."""
        self._line(request).fresh[request.id] = request

    def push_back(self, request: Request) -> None:
        """Take one back that was preempted: it came before all in its line that never ran."""
        line = self._line(request)
        insort(line.resumed, request, key=lambda other: other.arrival)

    def _line(self, request: Request) -> _Line:
        self._requests[request.id] = request
        key = request.priority, request.tenant
        if key not in self._lines:
            self._lines[key] = _Line(self._shares.total)
        return self._lines[key]

    def remove(self, request: Request) -> None:
        del self._requests[request.id]
        key = request.priority, request.tenant
        line = self._lines[key]
        if line.head is request:
            line.since_total = self._shares.total
        line.remove(request)
        if not line:
            del self._lines[key]


class _Line:
    """The requests of one class and tenant. Units: `since_total` is a count of `Shares.total`."""

    def __init__(self, since_total: int) -> None:
        self.since_total = since_total  # when its head got there
        self.resumed: list[Request] = []  # by arrival; few
        self.fresh: OrderedDict[RequestId, Request] = OrderedDict()

    def __len__(self) -> int:
        return len(self.resumed) + len(self.fresh)

    @property
    def head(self) -> Request:
        return self.resumed[0] if self.resumed else next(iter(self.fresh.values()))

    def remove(self, request: Request) -> None:
        if self.fresh.pop(request.id, None) is None:
            self.resumed.remove(request)
