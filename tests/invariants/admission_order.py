"""Who is admitted, and who may not be before them: the order of admission, kept by other means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from core.request import Request, RequestId
from core.settings import Batching
from core.step import StepPlan
from tests.invariants.fake_model import Sizes

Line = tuple[int, str]


def line_of(request: Request) -> Line:
    return request.priority, request.tenant


class AdmissionOrder:
    """Counts what each tenant was served, and since when each line has had its head."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._served: Counter[str] = Counter()  # tokens run, by tenant
        self._heads: dict[Line, tuple[RequestId, int]] = {}  # and all that was served by then
        self._batch_is_full = False
        self._backlog_began: Counter[str] | None = None  # what was served when both had one
        self._classes: set[int] = set()
        self._longest = 1  # tokens that one request may run from its admission to its end

    def check(
        self,
        plan: StepPlan,
        running: Sequence[Request],
        queued: Sequence[Request],
        requests: Mapping[RequestId, Request],
    ) -> None:
        admitted = [requests[id] for id in plan.admitted]
        left = [request for request in queued if request not in admitted]
        self._note_heads(queued)
        self._check_lines(admitted, left)
        self._check_batching(plan, admitted, running, left)
        for piece in plan.slices:
            self._served[piece.request.tenant] += piece.length
        if self._sizes.keeps_kv:
            tokens = [request.worst_case_tokens for request in (*running, *queued)]
            self._longest = max(self._longest, *tokens, 1)
            self._check_ageing(left)
            self._check_shares(left, [*running, *queued])

    def _note_heads(self, queued: Sequence[Request]) -> None:
        heads: dict[Line, RequestId] = {}
        for request in queued:  # in order of arrival
            heads.setdefault(line_of(request), request.id)
        served = self._served.total()
        self._heads = {
            line: self._heads[line] if self._heads.get(line, ("", 0))[0] == id else (id, served)
            for line, id in heads.items()
        }

    def _somebody_aged(self) -> bool:
        return self._served.total() + self._sizes.budget >= self._sizes.ageing_tokens

    def _check_lines(self, admitted: list[Request], left: list[Request]) -> None:
        """S20: first come, first served in each line; S9: a higher class before a lower one."""
        for line in {line_of(request) for request in admitted}:
            came = [request.arrival for request in admitted if line_of(request) == line]
            stayed = [request.arrival for request in left if line_of(request) == line]
            assert came == sorted(came)
            assert not stayed or came[-1] < min(stayed), "overtaken"
        if not self._somebody_aged() and admitted and left:
            lowest = max(request.priority for request in admitted)
            assert lowest <= min(request.priority for request in left), "a lower class went first"

    def _check_batching(
        self,
        plan: StepPlan,
        admitted: list[Request],
        running: Sequence[Request],
        left: list[Request],
    ) -> None:
        if self._sizes.batching is Batching.NONE:
            assert len(running) + len(admitted) - len(plan.preempted) <= 1
        if self._sizes.batching is Batching.STATIC:
            assert not (admitted and running and self._batch_is_full), "joined a full batch"
            all_run = len(plan.slices) == len(running) + len(admitted)
            slots = len(running) + len(admitted) == self._sizes.seqs
            stays_full = self._batch_is_full and bool(running)
            self._batch_is_full = stays_full or (all_run and (slots or not left))

    def _check_ageing(self, left: list[Request]) -> None:
        """S7: a head waits for `ageing_tokens`, for those who aged before it and for who runs."""
        before_it = (len(self._heads) + self._sizes.seqs) * 2 * self._longest + self._sizes.budget
        for request in left:
            id, since = self._heads[line_of(request)]
            if id == request.id:
                waited = self._served.total() - since
                assert waited <= self._sizes.ageing_tokens + before_it, "starved"

    def _check_shares(self, left: list[Request], live: list[Request]) -> None:
        """S8: while two tenants of one class have a backlog, what they are served stays close.

        With one slot twice a request's cost or a step's budget. With several, all of a batch's:
        where `a` fills 8 slots when `b` begins to wait, `a` is served 8 requests before anybody
        ends for `b`. Only to preempt those who run would change that (VTC's bound has the batch
        in it too).
        """
        both = {request.tenant for request in left} == {"a", "b"}
        self._classes |= {request.priority for request in live}
        one_class = len(self._classes) == 1  # ever: to go first by class leaves a debt
        if not both or not one_class or self._somebody_aged():
            self._backlog_began = None
            return
        if self._backlog_began is None:
            self._backlog_began = Counter(self._served)
        gains = [self._served[tenant] - self._backlog_began[tenant] for tenant in ("a", "b")]
        slots = 1 if self._sizes.batching is Batching.NONE else self._sizes.seqs
        assert abs(gains[0] - gains[1]) <= 2 * max(slots * self._longest, self._sizes.budget)
