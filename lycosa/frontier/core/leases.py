"""Who holds what: turns a store of queued records into leases that are polite, fenced and bounded in time.

Every in-process frontier (memory, embedded) lends through this one mechanism and adds only where the records are kept.
It asks the store for the next record of a host and hands out a `Lease`; a lease comes back once, with its own token,
or is found `overdue`. A host whose address must be known lends a look-up first (`RecordKind.RESOLVE`), one whose robots.txt
must be known that (`RecordKind.ROBOTS`), and nothing else until it is settled. Leases live in memory: the store belongs to
one process, and when that dies all of them are void.

Pure: `now` (unix seconds) is an argument, the store is a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from lycosa.frontier.core.claims import ClaimQueue
from lycosa.frontier.core.model import RECORD_VERSION, HostFacts, Lease, RecordKind, UrlRecord
from lycosa.frontier.core.scheduler import AddressGroup, Claim, Host, HostScheduler, SavedTurn
from lycosa.frontier.core.states import Policy

Place = TypeVar("Place")
Place_co = TypeVar("Place_co", covariant=True)
new = tuple.__new__


class LeasedRecord(Generic[Place]):
    """A lease, and where the store keeps its record; None for a robots.txt or an address, which are kept nowhere.

    `group` is the one it was started in. `try_start` is None when it took none. `over` says that its transfer is.
    """

    __slots__ = ("group", "host", "lease", "over", "place", "turn")

    def __init__(
        self, lease: Lease, place: Place | None, host: Host, group: AddressGroup | None, turn: SavedTurn | None
    ) -> None:
        self.lease = lease
        self.place = place
        self.host = host
        self.group = group
        self.turn = turn
        self.over = False


class RecordQueue(Protocol[Place_co]):
    """What leases are made of."""

    def take(self, host: str) -> tuple[Place_co, UrlRecord, float | None] | None:
        """Remove and return the next queued record of the host, and the rank of what comes after it.

        A rank is the start of a segment (`segments.starts_at`); None says that the host has no more.
        """
        ...

    def peek(self, host: str) -> UrlRecord | None:
        """Return the next queued record of the host, which stays."""
        ...


class LeaseManager(Generic[Place]):
    """The leases of one process over one store."""

    def __init__(self, policy: Policy, store: RecordQueue[Place], first_token: int) -> None:
        self.workbench = HostScheduler(policy)
        self._policy = policy
        self._claims = ClaimQueue(self.workbench)
        self._lease_s = policy.lease_s
        self._store = store
        self._token = first_token
        # Ordered by expiry: every lease lasts equally long, and a renewed one goes to the end.
        self._held: dict[int, LeasedRecord[Place]] = {}
        self.paced: set[str] = set()
        """Hosts that owe a pause: what is to be remembered of them changed. Whoever remembers it clears the set."""
        self._asks = policy.robots or policy.limits_addresses

    def __len__(self) -> int:
        return len(self._held)

    def leases(self) -> list[Lease]:
        """Return what is lent."""
        return [held.lease for held in self._held.values()]

    def lend(self, limit: int, now: float) -> list[Lease]:
        """Lend at most `limit` records, one host after the other in the order of their turns."""
        self._see(now)
        now = self.workbench.now
        leases: list[Lease] = []
        next_host, take, asks = self.workbench.next, self._store.take, self._asks
        while len(leases) < limit:
            host = next_host()
            if host is None:
                break
            lease = self._lend_question(host, now) if asks else None
            if lease is None:
                found = take(host.key)
                if found is None:
                    self.workbench.empty(host)
                    continue
                lease = self._hold(host, found[1], found[0], found[2], now)
            leases.append(lease)
        self.workbench.wanted = len(leases) < limit
        return leases

    def give_back(self, lease: Lease, *, contacted: bool) -> LeasedRecord[Place] | None:
        """End the lease and free its place on the host; None when the token is not held (any more).

        A host that was not contacted has not used its turn.
        """
        held = self._held.pop(lease.token, None)
        if held is None:
            return None
        host = held.host
        if held.place is None:
            host.preparing = False
        if held.over:
            return held
        if not contacted and held.turn is not None:
            self.workbench.give_back(host, held.group, held.turn)
        self.workbench.ended(host, held.group)
        return held

    def claim(self, host_key: str, wake: Callable[[], None], holder: Lease | None, now: float) -> Claim:
        """Join the line of the host; `wake` is called when `try_start` has something new to say.

        `holder` is the lease of the caller, whose own transfer is over: its place is free from now on.
        """
        self._see(now)
        held = self._held.get(holder.token) if holder is not None else None
        if held is not None and held.place is not None and not held.over:
            held.over = True
            self.workbench.ended(held.host, held.group)
        return self._claims.claim(self.workbench.host(host_key), wake)

    def try_start(self, claim: Claim, now: float) -> float:
        """Return 0 when the transfer starts now, the time (unix seconds) to ask again, or infinity: when woken."""
        self._see(now)
        at = self._claims.try_start(claim)
        if claim.granted and (claim.host.delay_s or claim.group is not None):
            self.paced.add(claim.host.key)
        return at

    def release_claim(self, claim: Claim, now: float) -> None:
        """The claim is over: its transfer has ended, or is not wanted any more."""
        self._see(now)
        self._claims.release(claim)

    def needs_address(self, host: Host, now: float) -> bool:
        """Whether the address of the host must be looked up before it may be contacted."""
        return self._policy.limits_addresses and host.address_until <= now

    def renew(self, lease: Lease, now: float) -> Lease | None:
        """Extend the lease by its full time; None when it is no longer held."""
        self._see(now)
        held = self._held.pop(lease.token, None)
        if held is None:
            return None
        held.lease = held.lease._replace(expires_at=self.workbench.now + self._lease_s)
        self._held[lease.token] = held
        return held.lease

    def overdue(self, now: float) -> list[Lease]:
        """Return the leases whose time is up, oldest first; they are still held."""
        self._see(now)
        late: list[Lease] = []
        for held in self._held.values():
            if held.lease.expires_at > now:
                break
            late.append(held.lease)
        return late

    def robots_failed(self, host_key: str, retry_at: float) -> None:
        """The robots.txt could not be had: ask the host again, not before `retry_at`."""
        host = self.workbench.host(host_key)
        host.robots_attempts += 1
        self.workbench.block(host, retry_at)

    def learned(self, host_key: str, facts: HostFacts, now: float) -> None:
        """What a host's robots.txt asks for holds from now on."""
        host = self.workbench.host(host_key)
        host.robots_at = facts.robots_at
        host.robots_attempts = 0
        self.workbench.set_delay(host, facts.crawl_delay_s, now)

    def learned_address(self, host_key: str, address: str, until: float, now: float) -> None:
        """The host has this IP address until then, "" when it has none."""
        host = self.workbench.host(host_key)
        host.address_attempts = 0
        self.workbench.set_address(host, address, until, now)

    def address_failed(self, host_key: str, retry_at: float) -> None:
        """The address could not be had: look it up again, not before `retry_at`."""
        host = self.workbench.host(host_key)
        host.address_attempts += 1
        self.workbench.block(host, retry_at)

    def _lend_question(self, host: Host, now: float) -> Lease | None:
        bench = self.workbench
        if self.needs_address(host, now):
            record = prerequisite(host.key, RecordKind.RESOLVE, host.address_attempts)
            bench.asks_address(host)
            return self._keep(host, record, None, None, None, now)
        if self._policy.robots and now - host.robots_at >= self._policy.robots_ttl_s:
            page = self._store.peek(host.key)
            guarded = page is None or page.guarded  # as the page is for whose sake the host is asked
            record = prerequisite(host.key, RecordKind.ROBOTS, host.robots_attempts, guarded=guarded)
            return self._hold(host, record, None, 0.0, now)
        return None

    def _hold(self, host: Host, record: UrlRecord, place: Place | None, rank: float | None, now: float) -> Lease:
        bench, group = self.workbench, host.group
        if place is not None and group is None and not host.delay_s:
            bench.lent(host, rank)
            return self._keep(host, record, place, None, None, now)
        at, group_at = host.ready_at, group.ready_at if group is not None else 0.0
        if place is None:
            bench.asks_robots(host)
        else:
            bench.lent(host, rank)
        turn: SavedTurn | None = None
        if host.delay_s or group is not None:
            turn = SavedTurn(at, host.ready_at, group_at, group.ready_at if group is not None else 0.0)
            self.paced.add(host.key)
        return self._keep(host, record, place, group, turn, now)

    def _keep(
        self,
        host: Host,
        record: UrlRecord,
        place: Place | None,
        group: AddressGroup | None,
        turn: SavedTurn | None,
        now: float,
    ) -> Lease:
        self._token = token = self._token + 1
        # In half the time that its own `__new__` would take.
        lease = new(Lease, (token, record, now + self._lease_s, host.address))
        self._held[token] = LeasedRecord(lease, place, host, group, turn)
        return lease

    def _see(self, now: float) -> None:
        """When the clock was set back, no lease ends later than one that is made now, and no turn is returned."""
        before = self.workbench.now
        self.workbench.see(now)
        if self.workbench.now >= before:
            return
        latest = now + self._lease_s
        for held in self._held.values():
            held.lease = held.lease._replace(expires_at=min(held.lease.expires_at, latest))
            held.turn = None


def prerequisite(host: str, kind: RecordKind, attempts: int, *, guarded: bool = False) -> UrlRecord:
    """Return the record of a robots.txt or an address, which must be known before the host is contacted."""
    path = "/robots.txt" if kind is RecordKind.ROBOTS else "/"
    return UrlRecord(RECORD_VERSION, 0, host + path, host, kind=kind, attempts=attempts, guarded=guarded)
