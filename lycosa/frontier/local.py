"""The frontier of one process: the port `Frontier` over a `FrontierStore`, which only keeps the records.

The stores are in `memory.py` and `lsm/frontier.py`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Generic, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from lycosa.frontier.core.brakes import brakes_of
from lycosa.frontier.core.leases import LeaseManager, RecordQueue
from lycosa.frontier.core.model import (
    FrontierStats,
    HostFacts,
    HostView,
    Lease,
    RecordKind,
    RequeueResult,
    Row,
    RowSlice,
    SegmentView,
    Selection,
    UrlRecord,
)
from lycosa.frontier.core.scheduler import CLOCK_SLACK_S, Claim, Host
from lycosa.frontier.core.states import Event, Policy, expire, fail, give_up
from lycosa.http.core.model import Validators

log = logging.getLogger(__name__)

Key = TypeVar("Key")
EXPIRED = "lease expired"
NOT_READY = math.inf
"""The rank of a record that cannot be leased yet."""

BLOCK_MAX_S = 3600.0
"""Maximum remaining seconds of a host's block when a state is opened: the largest Retry-After that is honoured."""

HOSTS_KEPT_MAX = 20_000
"""Idle hosts stay in memory while there are at most this many hosts: most of them get work again soon."""

DELAY_MAX_S = 86_400.0
"""Maximum delay in seconds that `set_delay` sets; longer ones are reduced. The required delay may be longer."""

ADDRESS_MAX_S = 3600.0
"""Maximum remaining validity of an address, in seconds, when a state is opened."""


class SavedHost(NamedTuple):
    """The stored data of a host. Times are unix seconds; `started_at` is its last contact."""

    started_at: float = 0.0
    blocked_until: float = 0.0
    facts: HostFacts | None = None
    address: str = ""
    address_until: float = 0.0


class HostWork(NamedTuple):
    """The number of newly queued records of a host. `rank` is the start of their segment (`segments.starts_at`)."""

    host: str
    rank: float
    records: int


class FrontierStore(RecordQueue[Key], Protocol[Key]):
    """Stores records by state. A key identifies a queued record, also while it is leased."""

    run_at: float
    """When the run began (unix seconds); infinity if none has begun.

    Segments that were the latest of their period at that time are not archived.
    """

    def add(self, record: UrlRecord) -> float | None:
        """Store a new record. Return its rank, `NOT_READY` if it cannot be leased yet, None if it is refused."""

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return the fingerprints known in memory; others may be on disk."""

    def stored(self, segment: str, prefix: bytes) -> list[bytes]:
        """Return the fingerprints on disk that start with `prefix`, as 8 bytes each."""

    def put_back(self, key: Key, record: UrlRecord) -> float:
        """LEASED -> QUEUED. Return the rank; `NOT_READY` if the segment has not started or was dropped."""

    def mark_done(
        self, key: Key, record: UrlRecord, reason: str, now: float, validators: Validators | None
    ) -> None: ...

    def mark_retry(self, key: Key, record: UrlRecord) -> None:
        """LEASED -> RETRY, until `record.not_before`."""

    def mark_dead(self, key: Key, record: UrlRecord, reason: str, now: float) -> None: ...

    def promote_due(self, now: float) -> Sequence[HostWork]:
        """Start due segments, and queue a bounded number of due records."""

    def next_due(self) -> float | None:
        """When `promote_due` next has something to do; None for never."""

    def load_host(self, host: str) -> SavedHost:
        """Return the stored data, or `SavedHost()` if there is none."""

    def save_host(self, host: str, saved: SavedHost) -> None:
        """Store the data of the host. With `facts` None, the stored facts are kept."""

    def commit(self, positions: Mapping[str, int]) -> None: ...

    def positions(self) -> dict[str, int]: ...

    def stats(self) -> FrontierStats:
        """Leased records are not counted; `leased` and `hosts` are 0."""

    def dead(self, limit: int) -> list[tuple[UrlRecord, str]]: ...

    def close(self) -> None: ...

    def segments(self) -> list[SegmentView]:
        """Return the segments in serving order, then the dropped ones. Leased records count as queued."""

    def hosts(self, after: str, limit: int) -> list[HostView]: ...

    def rows(self, selection: Selection, cursor: str, limit: int) -> RowSlice:
        """Leased records are listed as queued."""

    def find(self, fingerprint: int, host: str = "") -> list[Row]: ...

    def requeue(
        self, selection: Selection, into: str | None, cursor: str, limit: int
    ) -> tuple[RequeueResult, Sequence[HostWork]]:
        """DEAD and DONE -> QUEUED; with `into`, queue copies in that segment instead."""

    def requeue_ended(self, fingerprint: int) -> Sequence[HostWork]:
        """DEAD and DONE -> QUEUED for this fingerprint, in each open segment. Return what was queued."""

    def archive(self, segment: str) -> bool: ...

    def drop(self, segment: str) -> int: ...

    def verify(self, report: Callable[[str], None]) -> list[str]: ...

    def compact(self) -> tuple[int, int]: ...


class LocalFrontier(Generic[Key]):
    """Implements `frontier.ports.Frontier`. Raises `StateError` if the store fails."""

    def __init__(self, policy: Policy, store: FrontierStore[Key], first_token: int = 0, now: float = math.inf) -> None:
        self.store = store
        self._leases: LeaseManager[Key] = LeaseManager(policy, store, first_token)
        self.scheduler = self._leases.scheduler
        self._unsaved_hosts = self._leases.unsaved_hosts
        self._opened_at = now
        self._offered = self._added = 0
        self.known, self.stored = store.known, store.stored
        opened_at = 0.0 if math.isinf(now) else now
        self.scheduler.update_clock(opened_at)
        self.add_work(store.promote_due(opened_at))

    async def push(self, records: Sequence[UrlRecord]) -> int:
        add, hosts, add_work = self.store.add, self.scheduler.hosts, self.scheduler.add_work
        pushed = 0
        is_logging = log.isEnabledFor(logging.DEBUG)
        for record in records:
            rank = add(record)
            if rank is None:
                if is_logging:
                    _log_duplicate(record)
                continue
            pushed += 1
            if rank != NOT_READY:
                add_work(hosts.get(record.host) or self._host(record.host), rank)
        self._offered += len(records)
        self._added += pushed
        return pushed

    async def lease(self, limit: int, now: float) -> list[Lease]:
        self._check_clock(now)
        self._promote_due(now)
        return self._leases.lease(limit, now)

    async def ack(
        self,
        lease: Lease,
        reason: str,
        children: Sequence[UrlRecord],
        now: float,
        *,
        contacted: bool = True,
        validators: Validators | None = None,
    ) -> bool:
        leased = self._leases.end(lease, contacted=contacted)
        if leased is None:
            return False
        # Children first: if a child cannot be stored, the parent is not done, and the next run fetches it again.
        if children:
            await self.push(children)
        if leased.key is not None:
            self.store.mark_done(leased.key, leased.lease.record, reason, now, validators)
        return True

    async def nack(
        self, lease: Lease, reason: str, retry_at: float | None, now: float, *, contacted: bool = True
    ) -> bool:
        leased = self._leases.end(lease, contacted=contacted)
        if leased is None:
            return False
        record = leased.lease.record
        if leased.key is None:
            failed = self._leases.address_failed if record.kind == RecordKind.RESOLVE else self._leases.robots_failed
            failed(record.host, now if retry_at is None else retry_at)
        elif retry_at is None:
            self.store.mark_dead(leased.key, give_up(record), reason, now)
        else:
            self.store.mark_retry(leased.key, fail(record, retry_at))
        return True

    async def requeue(self, fingerprints: Sequence[int]) -> int:
        work = [each for fingerprint in fingerprints for each in self.store.requeue_ended(fingerprint)]
        self.add_work([each for each in work if each.rank != NOT_READY])
        return len(work)

    async def release(self, lease: Lease, now: float) -> bool:
        leased = self._leases.end(lease, contacted=True)
        if leased is None:
            return False
        if leased.key is not None:
            self._put_back(leased.key, leased.lease.record)
        return True

    async def renew(self, lease: Lease, now: float) -> Lease | None:
        self._check_clock(now)
        return self._leases.renew(lease, now)

    async def expire(self, now: float) -> int:
        self._check_clock(now)
        overdue = self._leases.overdue(now)
        for lease in overdue:
            leased = self._leases.end(lease, contacted=True)
            if leased is None:
                continue
            record = leased.lease.record
            if leased.key is not None:
                self._expire(leased.key, record, now)
            elif record.kind == RecordKind.RESOLVE:
                self._leases.address_failed(record.host, now)
            else:
                self._expire_robots(record, now)
        return len(overdue)

    async def block_host(self, host: str, until: float) -> None:
        self.scheduler.block(self._host(host), until)
        self._unsaved_hosts.add(host)

    def end_transfer(self, lease: Lease, now: float, *, contacted: bool = True) -> None:
        self._check_clock(now)
        self._leases.end_transfer(lease, now, contacted=contacted)

    async def claim(self, host: str, wake: Callable[[], None], now: float, holder: Lease | None = None) -> Claim:
        self._check_clock(now)
        self._host(host)
        return self._leases.claim(host, wake, holder, now)

    async def try_start(self, claim: Claim, now: float) -> float:
        self._check_clock(now)
        return self._leases.try_start(claim, now)

    async def release_claim(self, claim: Claim, now: float) -> None:
        self._check_clock(now)
        self._leases.release_claim(claim, now)

    def needs_address(self, host: str, now: float) -> bool:
        return self._leases.needs_address(self._host(host), now)

    async def set_delay(self, host: str, delay_s: float, now: float) -> None:
        self._check_clock(now)
        self.scheduler.update_clock(now)
        self.scheduler.throttle(self._host(host), min(max(0.0, delay_s), DELAY_MAX_S))

    async def host_facts(self, host: str) -> HostFacts | None:
        return self.store.load_host(host).facts

    async def set_host_facts(self, host: str, facts: HostFacts, now: float) -> None:
        self._host(host)
        self._leases.set_facts(host, facts, now)
        self._save(self.scheduler.hosts[host], facts)

    async def set_address(self, host: str, address: str, until: float, now: float) -> None:
        self._host(host)
        self._leases.set_address(host, address, until, now)
        self._unsaved_hosts.add(host)

    def next_ready(self, now: float) -> float | None:
        times = (self.scheduler.next_ready(), self.store.next_due())
        return min((at for at in times if at is not None), default=None)

    async def begin_run(self, now: float) -> None:
        self.store.run_at = now

    async def commit(self, positions: Mapping[str, int]) -> None:
        for key in self._unsaved_hosts:
            host = self.scheduler.hosts.get(key)
            if host is not None:
                self._save(host, None)
        self._unsaved_hosts.clear()
        self.store.commit(positions)
        if len(self.scheduler.hosts) > HOSTS_KEPT_MAX:
            self.scheduler.forget_idle(self.scheduler.now)

    async def positions(self) -> dict[str, int]:
        return self.store.positions()

    async def stats(self) -> FrontierStats:
        scheduler = self.scheduler
        brakes = brakes_of(scheduler.hosts.values(), scheduler.concurrency, scheduler.now)
        return self.store.stats()._replace(
            leased=len(self._leases),
            hosts=len(scheduler.hosts),
            offered=self._offered,
            added=self._added,
            brake=brakes.text,
            work_s=brakes.work_s,
            blocked_until=brakes.blocked_until,
        )

    async def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        return self.store.dead(limit)

    async def close(self) -> None:
        self.store.close()

    def delays(self, host_key: str) -> list[tuple[str, float]]:
        """The delays that apply to this host as (host key or IP address, seconds)."""
        host = self.scheduler.hosts.get(host_key)
        if host is None:
            return []
        own, by_ip = host.delay_s, self.scheduler.policy.delay_per_ip_s
        delays = [(host_key, own)] if own else []
        return [*delays, (host.group.address, by_ip)] if host.group is not None and by_ip else delays

    def leases(self) -> list[Lease]:
        return self._leases.leases()

    def add_work(self, work: Iterable[HostWork]) -> None:
        for host, rank, count in work:
            self.scheduler.add_work(self._host(host), rank, count)

    def drop(self, segment: str) -> int:
        dropped = self.store.drop(segment)
        for lease in self._leases.leases():
            if lease.record.segment == segment and lease.record.kind == RecordKind.PAGE:
                leased = self._leases.end(lease, contacted=True)
                if leased is not None and leased.key is not None:
                    self.store.put_back(leased.key, leased.lease.record)
        return dropped

    def _host(self, key: str) -> Host:
        host = self.scheduler.hosts.get(key)
        if host is not None:
            return host
        host = self.scheduler.activate(key)
        saved = self.store.load_host(key)
        # The clock may have been set back since these times were stored. Without these limits, the host would wait
        # until the clock has caught up.
        if saved.facts is not None:
            at = min(saved.facts.robots_at, self._opened_at)
            self._leases.set_facts(key, replace(saved.facts, robots_at=at), 0.0)
        if saved.address:
            until = min(saved.address_until, self._opened_at + ADDRESS_MAX_S)
            self._leases.set_address(key, saved.address, until, 0.0)
        started_at = min(saved.started_at, self._opened_at)
        self.scheduler.restore(host, started_at, min(saved.blocked_until, self._opened_at + BLOCK_MAX_S))
        return host

    def _save(self, host: Host, facts: HostFacts | None) -> None:
        saved = SavedHost(host.started_at, host.blocked_until, facts, host.address, host.address_until)
        self.store.save_host(host.key, saved)

    def _put_back(self, key: Key, record: UrlRecord) -> None:
        rank = self.store.put_back(key, record)
        if rank != NOT_READY:
            self.scheduler.add_work(self._host(record.host), rank)

    def _check_clock(self, now: float) -> None:
        """If the clock was set back to before the time of opening, use the new time as the time of opening.

        `_host` uses the time of opening to limit stored times.
        """
        if now < self._opened_at - CLOCK_SLACK_S:
            self._opened_at = now

    def _promote_due(self, now: float) -> None:
        due = self.store.next_due()
        if due is not None and due <= now:
            self.add_work(self.store.promote_due(now))

    def _expire_robots(self, record: UrlRecord, now: float) -> None:
        expired, event = expire(record)
        if event is Event.EXPIRE:
            self._leases.robots_failed(record.host, now + 2.0**expired.attempts)
            return
        # The host's pages must not wait for its robots.txt for ever. Status 0 means "unreachable".
        facts = HostFacts(EXPIRED.encode(), 0, now)
        self._leases.set_facts(record.host, facts, now)
        self._save(self._host(record.host), facts)

    def _expire(self, key: Key, record: UrlRecord, now: float) -> None:
        expired, event = expire(record)
        if event is Event.EXPIRE:
            self._put_back(key, expired)
        else:
            self.store.mark_dead(key, expired, EXPIRED, now)


def _log_duplicate(record: UrlRecord) -> None:
    """Log with the message and fields of `crawl.diagnostics.page_log`."""
    method, spider = ("GET", "") if record.extras is None else (record.extras.method, record.extras.spider)
    fields = {"url": record.url, "spider": spider, "reason": "duplicate"}
    log.debug("Filtered duplicate request: <%s %s>", method, record.url, extra=fields)
