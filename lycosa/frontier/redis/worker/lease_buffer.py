"""The leases of one worker, and those of them that were lent ahead and wait here until somebody asks for them.

Whatever is sent asks for more, too, if it is known that more will be wanted: that saves a round trip.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from lycosa.frontier.core.model import Lease, RecordKind
from lycosa.frontier.redis.lanes import lent_record
from lycosa.frontier.redis.worker.lease_pacing import Pace
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session
from lycosa.frontier.redis.worker.wire import NOTHING, Asked, Wanted

Heard = Callable[[str, float, bool], None]


class Stock:
    """So many leases of `lease_s` (seconds) are asked for `ahead` of what was wanted.

    `heard(host, known_until, paced)` is told what came with each of them.
    """

    def __init__(self, session: Session, pace: Pace, *, ahead: int, lease_s: float, heard: Heard) -> None:
        self._session = session
        self._pace = pace
        self._ahead = ahead
        self._lease_s = lease_s
        self._heard = heard
        self._waiting: deque[Lease] = deque()
        self._short: int | None = None
        """How many more were asked for than were there, None when nobody has asked since the last trip for them."""
        self.held: dict[int, Lease] = {}
        """All leases by token, in the order of their ends."""
        self.fresh = False
        """Whether something was lent of which the cookies were not asked for."""
        self.finished = False
        """Whether the whole crawl had come to its end when it was last looked at."""
        session.wire.wanted, session.wire.lent = self._wanted, self._lent

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self) -> list[Lease]:
        """Return what nobody has asked for yet."""
        return list(self._waiting)

    def take(self, limit: int) -> list[Lease]:
        """Hand out what waits."""
        leases = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
        self._pace.handed(len(leases))
        self._short = limit - len(leases) if limit else None
        return leases

    def remove(self, leases: Sequence[Lease]) -> None:
        """Let these wait no more."""
        gone = {lease.token for lease in leases}
        self._waiting = deque(lease for lease in self._waiting if lease.token not in gone)

    async def fetch(self, wanted: int) -> None:
        """Ask all partitions for their share, then those that gave it for more; see whether all is done.

        For a few, ask the one first that has something and was not asked for longest: the next time it is another.
        """
        session = self._session
        wanted += min(self._ahead, self._pace.asks(session.now))
        ready = [each for each in session.partitions if each.due == 0.0] if wanted < self._ahead else []
        asked = sorted(ready, key=lambda each: each.exchanged_at)[:1] or session.partitions
        others = [each for each in session.partitions if each not in asked]
        while asked and wanted > 0:
            share = Wanted(wanted, self._ahead).share(len(asked))
            lent = await session.exchange([Asked(each, share) for each in asked])
            wanted -= sum(lent.values())
            asked, others = others or [each for each in asked if lent[each] >= share.limit], []
        await session.tell_of_the_gone()
        await session.forward(hungry=not self._waiting)
        if not self._waiting and not self.held:
            self.finished = await session.is_over()

    def _wanted(self) -> Wanted:
        """Say what will be wanted next: once, until somebody asks again."""
        if self._short is None:
            return NOTHING
        soon = self._short + min(self._ahead, self._pace.asks(self._session.now)) if self._pace.keeps else 0
        self._short = None
        return Wanted(max(0, soon - len(self._waiting)), max(0, self._ahead - len(self._waiting)))

    def _lent(self, partition: Partition, lent: Sequence[list[Any]]) -> None:
        for token, kind, host, data, address, attempts, paced, known_until in lent:
            number = int(token) * len(self._session.partitions) + partition.number
            if number in self.held or int(token) in partition.ending:
                continue  # the answer to an exchange that was sent twice
            record = lent_record(RecordKind(int(kind)), host.decode(), data, int(attempts))
            lease = Lease(number, record, self._session.now + self._lease_s, address.decode())
            self.held[number] = lease
            self._waiting.append(lease)
            self.fresh = True
            self._heard(record.host, float(known_until), bool(paced))
