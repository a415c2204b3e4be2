"""The requests there are, and those that may still be asked about. It counts nothing itself."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from core.request import RequestId
from core.wire import Ended
from telemetry.bill.entry import Entry
from telemetry.spent.life import Life, Waiters

SHARED_TENANT: Final = "_shared"  # pays idle and waste
OTHER: Final = "other"  # stands for all names beyond a closed or bounded set
MAX_TENANTS: Final = 64  # then `other`

_RECENT_REQUESTS: Final = 512


class Ledger:
    """Keeps an entry until the engine let go of the request and its response is done.

    Invariant: what is kept beyond that is bounded, as are the tenants' names.
    """

    def __init__(self) -> None:
        self._entries: dict[RequestId, Entry] = {}
        self._recent: OrderedDict[RequestId, Entry] = OrderedDict()
        self._tenants: set[str] = set()
        self._live_of: Counter[str] = Counter()  # tenant
        self.waiters = Waiters()
        self.live = 0

    def open(
        self,
        id: RequestId,
        prompt_tokens: int,
        tenant: str,
        received_ns: int,
        submitted_ns: int,
        shares_prompt: bool = False,
        has_grammar: bool = False,
    ) -> None:
        assert id not in self._entries, f"{id} was received twice"
        life = Life(self.waiters, received_ns, submitted_ns, has_grammar)
        if not has_grammar:
            self.waiters.join(id, life)
        tenant = self._known(tenant)
        life.met.behind, life.met.behind_own = self.live, self._live_of[tenant]
        self.live += 1
        self._live_of[tenant] += 1
        self._entries[id] = Entry(
            id=id,
            tenant=tenant,
            prompt_tokens=prompt_tokens,
            received_ns=received_ns,
            shares_prompt=shares_prompt,
            since_ns=received_ns,
            life=life,
        )

    def compiled(self, id: RequestId, at_ns: int) -> None:
        """Take that a request's grammar was compiled, if it has not ended since."""
        entry = self._entries.get(id)
        if entry is not None and entry.ended_ns is None:
            entry.life.compiled(at_ns)
            self.waiters.join(id, entry.life)

    def __getitem__(self, id: RequestId) -> Entry:
        return self._entries[id]

    def check(self, ids: Iterable[RequestId]) -> None:
        """Look ids up before anything is written.

        Raises:
            KeyError: one of them is not known.
        """
        for id in ids:
            if id not in self._entries:
                raise KeyError(id)

    def find(self, id: RequestId) -> Entry | None:
        """Look also among the last requests whose responses are done."""
        return self._entries.get(id) or self._recent.get(id)

    def unreleased(self) -> Iterator[Entry]:
        return (entry for entry in self._entries.values() if not entry.released)

    def release(self, ended: Sequence[Ended], at_ns: int) -> list[Entry]:
        """Take the engine's terminal events; where the caller's end came first, it holds.

        Returns: the entries, each of which has ended.
        """
        entries = [self._entries[event.id] for event in ended]
        for entry, event in zip(entries, ended, strict=True):
            assert not entry.released, f"{entry.id} ended twice"
            entry.end(event.reason, at_ns)
            entry.released = True
            self.live -= 1
            self._live_of[entry.tenant] -= 1
            self._drop_if_done(entry)
        return entries

    def forget(self, ids: Sequence[RequestId]) -> None:
        for id in ids:
            entry = self._entries[id]
            entry.forgotten = True
            self._drop_if_done(entry)

    def _drop_if_done(self, entry: Entry) -> None:
        if entry.released and entry.forgotten:
            self._recent[entry.id] = self._entries.pop(entry.id)
            if len(self._recent) > _RECENT_REQUESTS:
                self._recent.popitem(last=False)

    def _known(self, tenant: str) -> str:
        """Map a tenant to a label value: beyond the limit it is `other`."""
        if tenant in self._tenants:
            return tenant
        if tenant in (SHARED_TENANT, OTHER) or len(self._tenants) >= MAX_TENANTS:
            return OTHER
        self._tenants.add(tenant)
        return tenant
