"""Leases of queued records, each with a token and an expiry time. Times are unix seconds.

The in-process frontiers (memory, LMDB) add only the storage. `lease` takes the next record of the host that the
scheduler picks. A lease can be ended only once, by its token. Leases are in memory only: the store belongs to one
process, and the leases end with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from lycosa.frontier.core.claims import ClaimQueue
from lycosa.frontier.core.model import RECORD_VERSION, HostFacts, Lease, RecordKind, UrlRecord
from lycosa.frontier.core.scheduler import AddressGroup, Claim, Host, HostScheduler, SavedTurn
from lycosa.frontier.core.states import Policy

Key = TypeVar("Key")
Key_co = TypeVar("Key_co", covariant=True)
new_tuple = tuple.__new__


class LeasedRecord(Generic[Key]):
    """A lease. `key` is the record's key in the store; None for robots.txt and addresses, which are not stored.

    `group` is the address group at the start of the transfer. `turn` is for `undo_start`; None if the start set no
    delay, or if the clock has been set back since. `transfer_done`: the transfer has ended, but not the lease.
    """

    __slots__ = ("group", "host", "key", "lease", "transfer_done", "turn")

    def __init__(
        self, lease: Lease, key: Key | None, host: Host, group: AddressGroup | None, turn: SavedTurn | None
    ) -> None:
        self.lease = lease
        self.key = key
        self.host = host
        self.group = group
        self.turn = turn
        self.transfer_done = False


class RecordQueue(Protocol[Key_co]):
    """The queued records of a store, by host."""

    def take(self, host: str) -> tuple[Key_co, UrlRecord, float | None] | None:
        """Remove and return the next record of the host, and the rank of the following one, if any.

        A rank is the start time of a segment (`segments.starts_at`).
        """

    def peek(self, host: str) -> UrlRecord | None: ...


class LeaseManager(Generic[Key]):
    """The leases of one process on one store."""

    def __init__(self, policy: Policy, store: RecordQueue[Key], first_token: int) -> None:
        self.scheduler = HostScheduler(policy)
        self._policy = policy
        self._claims = ClaimQueue(self.scheduler)
        self._lease_s = policy.lease_s
        self._store = store
        self._token = first_token
        # In order of expiry: all leases have the same length, and a renewed one moves to the end.
        self._leased: dict[int, LeasedRecord[Key]] = {}
        self.unsaved_hosts: set[str] = set()
        """Hosts with a start, block or address that is not saved yet. The caller that saves them clears the set."""
        self._prepares_hosts = policy.robots or policy.limits_addresses

    def __len__(self) -> int:
        return len(self._leased)

    def leases(self) -> list[Lease]:
        return [leased.lease for leased in self._leased.values()]

    def lease(self, limit: int, now: float) -> list[Lease]:
        self._update_clock(now)
        now = self.scheduler.now
        leases: list[Lease] = []
        pick_next, take, prepares_hosts = self.scheduler.pick_next, self._store.take, self._prepares_hosts
        while len(leases) < limit:
            host = pick_next()
            if host is None:
                break
            lease = self._lease_prerequisite(host, now) if prepares_hosts else None
            if lease is None:
                found = take(host.key)
                if found is None:
                    self.scheduler.mark_empty(host)
                    continue
                lease = self._start(host, found[1], found[0], found[2], now)
            leases.append(lease)
        self.scheduler.wants_leases = len(leases) < limit
        return leases

    def end(self, lease: Lease, *, contacted: bool) -> LeasedRecord[Key] | None:
        """End the lease and free its slot. Return None if the token is invalid.

        If the host was not `contacted`, the next start need not wait for its delay.
        """
        leased = self._leased.pop(lease.token, None)
        if leased is None:
            return None
        if leased.key is None:
            leased.host.preparing = False
        if not leased.transfer_done:
            self._free_slot(leased, contacted=contacted)
        return leased

    def end_transfer(self, lease: Lease, now: float, *, contacted: bool = True) -> None:
        self._update_clock(now)
        leased = self._leased.get(lease.token)
        if leased is not None and leased.key is not None and not leased.transfer_done:
            leased.transfer_done = True
            self._free_slot(leased, contacted=contacted)

    def claim(self, host_key: str, wake: Callable[[], None], holder: Lease | None, now: float) -> Claim:
        self._update_clock(now)
        if holder is not None:
            self.end_transfer(holder, now)
        return self._claims.claim(self.scheduler.activate(host_key), wake)

    def try_start(self, claim: Claim, now: float) -> float:
        self._update_clock(now)
        at = self._claims.try_start(claim)
        if claim.granted and (claim.host.delay_s or claim.group is not None):
            self.unsaved_hosts.add(claim.host.key)
        return at

    def release_claim(self, claim: Claim, now: float) -> None:
        self._update_clock(now)
        self._claims.release(claim)

    def needs_address(self, host: Host, now: float) -> bool:
        return self._policy.limits_addresses and host.address_until <= now

    def renew(self, lease: Lease, now: float) -> Lease | None:
        self._update_clock(now)
        leased = self._leased.pop(lease.token, None)
        if leased is None:
            return None
        leased.lease = leased.lease._replace(expires_at=self.scheduler.now + self._lease_s)
        self._leased[lease.token] = leased
        return leased.lease

    def overdue(self, now: float) -> list[Lease]:
        """Return the expired leases, oldest first. They remain valid until `end`."""
        self._update_clock(now)
        expired: list[Lease] = []
        for leased in self._leased.values():
            if leased.lease.expires_at > now:
                break
            expired.append(leased.lease)
        return expired

    def robots_failed(self, host_key: str, retry_at: float) -> None:
        """Do not contact the host before `retry_at`."""
        host = self.scheduler.activate(host_key)
        host.robots_attempts += 1
        self.scheduler.block(host, retry_at)

    def set_facts(self, host_key: str, facts: HostFacts, now: float) -> None:
        host = self.scheduler.activate(host_key)
        host.robots_at = facts.robots_at
        host.robots_attempts = 0
        self.scheduler.set_delay(host, facts.crawl_delay_s, now)

    def set_address(self, host_key: str, address: str, until: float, now: float) -> None:
        host = self.scheduler.activate(host_key)
        host.address_attempts = 0
        self.scheduler.set_address(host, address, until, now)

    def address_failed(self, host_key: str, retry_at: float) -> None:
        """Do not repeat the look-up before `retry_at`."""
        host = self.scheduler.activate(host_key)
        host.address_attempts += 1
        self.scheduler.block(host, retry_at)

    def _free_slot(self, leased: LeasedRecord[Key], *, contacted: bool) -> None:
        if not contacted and leased.turn is not None:
            self.scheduler.undo_start(leased.host, leased.group, leased.turn)
        self.scheduler.finish(leased.host, leased.group)

    def _lease_prerequisite(self, host: Host, now: float) -> Lease | None:
        """Lease the address lookup or the robots.txt of the host, if its pages need one of them first."""
        scheduler = self.scheduler
        if self.needs_address(host, now):
            record = prerequisite(host.key, RecordKind.RESOLVE, host.address_attempts)
            scheduler.start_address_lookup(host)
            return self._grant(host, record, None, None, None, now)
        if self._policy.robots and now - host.robots_at >= self._policy.robots_ttl_s:
            # The fetch is guarded if the page is: robots.txt must not lead to a private address either.
            page = self._store.peek(host.key)
            guarded = page is None or page.guarded
            record = prerequisite(host.key, RecordKind.ROBOTS, host.robots_attempts, guarded=guarded)
            return self._start(host, record, None, 0.0, now)
        return None

    def _start(self, host: Host, record: UrlRecord, key: Key | None, next_rank: float | None, now: float) -> Lease:
        scheduler, group = self.scheduler, host.group
        if key is not None and group is None and not host.delay_s:
            scheduler.start(host, next_rank)
            return self._grant(host, record, key, None, None, now)
        ready_at, group_ready_at = host.ready_at, group.ready_at if group is not None else 0.0
        if key is None:
            scheduler.start_robots(host)
        else:
            scheduler.start(host, next_rank)
        turn: SavedTurn | None = None
        if host.delay_s or group is not None:
            turn = SavedTurn(ready_at, host.ready_at, group_ready_at, group.ready_at if group is not None else 0.0)
            self.unsaved_hosts.add(host.key)
        return self._grant(host, record, key, group, turn, now)

    def _grant(
        self,
        host: Host,
        record: UrlRecord,
        key: Key | None,
        group: AddressGroup | None,
        turn: SavedTurn | None,
        now: float,
    ) -> Lease:
        self._token = token = self._token + 1
        # `tuple.__new__` takes half the time of the class's own `__new__`.
        lease = new_tuple(Lease, (token, record, now + self._lease_s, host.address))
        self._leased[token] = LeasedRecord(lease, key, host, group, turn)
        return lease

    def _update_clock(self, now: float) -> None:
        before = self.scheduler.now
        self.scheduler.update_clock(now)
        if self.scheduler.now >= before:
            return
        # The clock was set back: no lease may expire later than one granted now, and saved turns are no longer valid.
        latest = now + self._lease_s
        for leased in self._leased.values():
            leased.lease = leased.lease._replace(expires_at=min(leased.lease.expires_at, latest))
            leased.turn = None


def prerequisite(host: str, kind: RecordKind, attempts: int, *, guarded: bool = False) -> UrlRecord:
    """Return the record of a robots.txt fetch or an address lookup."""
    path = "/robots.txt" if kind is RecordKind.ROBOTS else "/"
    return UrlRecord(RECORD_VERSION, 0, host + path, host, kind=kind, attempts=attempts, guarded=guarded)
