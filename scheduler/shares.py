"""What each tenant was served: the counters that fair shares are made of. It queues nobody."""

from __future__ import annotations

from collections import Counter


class Shares:
    """Tokens run for each tenant, raised so that nobody saves up a right to starve the others.

    Source: the virtual token counter of Sheng et al., "Fairness in Serving Large Language Models",
        OSDI 2024, §4; here with tokens run through the model, so that a prefix found is free.
    """

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._live: Counter[str] = Counter()  # requests by tenant
        self.total = 0

    def join(self, tenant: str, waits_already: bool) -> None:
        """Count a request in; whoever begins to wait starts no lower than the others who are here.

        With nobody else here it starts no lower than anybody was: who comes back owes it nothing.
        """
        served = self._served.get(tenant, 0)
        if not waits_already:
            others = [self._served[other] for other in self._live if other != tenant]
            least = min(others) if others else max(self._served.values(), default=0)
            served = max(served, least)
        self._served[tenant] = served
        self._live[tenant] += 1

    def leave(self, tenant: str) -> None:
        """Count a request out; when the last has gone, what was served is forgotten."""
        self._live[tenant] -= 1
        if not self._live[tenant]:
            del self._live[tenant]
        if not self._live:
            self._served.clear()

    def charge(self, tenant: str, tokens: int) -> None:
        self._served[tenant] += tokens
        self.total += tokens

    def served(self, tenant: str) -> int:
        return self._served[tenant]
