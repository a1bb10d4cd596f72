"""The leases of one worker. Some are granted ahead, and wait here until the worker asks for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from lycosa.frontier.core.model import Lease, RecordKind
from lycosa.frontier.redis.lanes import leased_record
from lycosa.frontier.redis.worker.calls import NO_LEASES, ExchangeRequest, LeaseDemand
from lycosa.frontier.redis.worker.lease_pacing import LeasePacing
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session

OnHost = Callable[[str, float, bool], None]


class LeaseBuffer:
    """Requests up to `ahead` more leases than the worker wants: that saves round trips. A lease lasts `lease_s`
    seconds.

    `on_host(host, address_until, has_delay)` is called for each lease with what the lease tells about its host.
    """

    def __init__(self, session: Session, pacing: LeasePacing, *, ahead: int, lease_s: float, on_host: OnHost) -> None:
        self._session = session
        self._pacing = pacing
        self._ahead = ahead
        self._lease_s = lease_s
        self._on_host = on_host
        self._waiting: deque[Lease] = deque()
        self._missing: int | None = None
        """How many leases the last `take` lacked; None once they are requested."""
        self.held: dict[int, Lease] = {}
        """All leases by token, in order of expiry."""
        self.needs_cookies = False
        """Whether leases arrived after the last update of the cookies."""
        self.crawl_finished = False
        """Whether the whole crawl was finished at the last check."""
        session.calls.next_demand, session.calls.on_leases = self._next_demand, self._add

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self) -> list[Lease]:
        return list(self._waiting)

    def take(self, limit: int) -> list[Lease]:
        leases = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
        self._pacing.record_leases(len(leases))
        self._missing = limit - len(leases) if limit else None
        return leases

    def remove(self, leases: Sequence[Lease]) -> None:
        removed = {lease.token for lease in leases}
        self._waiting = deque(lease for lease in self._waiting if lease.token not in removed)

    async def fetch(self, limit: int) -> None:
        """Ask all partitions for an equal share of the leases, then ask those that granted their whole share for more.

        If fewer than `ahead` leases are wanted, first ask one partition with ready hosts: the one asked least recently.
        If no lease is waiting or held afterwards, check whether the crawl has finished.
        """
        session = self._session
        limit += min(self._ahead, self._pacing.record_call(session.now))
        ready = [each for each in session.partitions if each.due == 0.0] if limit < self._ahead else []
        asked = sorted(ready, key=lambda each: each.exchanged_at)[:1] or session.partitions
        others = [each for each in session.partitions if each not in asked]
        while asked and limit > 0:
            share = LeaseDemand(limit, self._ahead).share(len(asked))
            granted = await session.exchange([ExchangeRequest(each, share) for each in asked])
            limit -= sum(granted.values())
            asked, others = others or [each for each in asked if granted[each] >= share.limit], []
        await session.announce_expired()
        await session.deliver(idle=not self._waiting)
        if not self._waiting and not self.held:
            self.crawl_finished = await session.is_finished()

    def _next_demand(self) -> LeaseDemand:
        """Return the leases that the worker will want next; none until the next `take`."""
        if self._missing is None:
            return NO_LEASES
        may_buffer = self._pacing.leases_ahead
        soon = self._missing + min(self._ahead, self._pacing.record_call(self._session.now)) if may_buffer else 0
        self._missing = None
        return LeaseDemand(max(0, soon - len(self._waiting)), max(0, self._ahead - len(self._waiting)))

    def _add(self, partition: Partition, leases: Sequence[list[Any]]) -> None:
        for number, kind, host, data, address, attempts, has_delay, address_until in leases:
            token = int(number) * len(self._session.partitions) + partition.number
            if token in self.held or int(number) in partition.ending:
                continue  # this lease was received before: the exchange was sent twice
            record = leased_record(RecordKind(int(kind)), host.decode(), data, int(attempts))
            lease = Lease(token, record, self._session.now + self._lease_s, address.decode())
            self.held[token] = lease
            self._waiting.append(lease)
            self.needs_cookies = True
            self._on_host(record.host, float(address_until), bool(has_delay))
