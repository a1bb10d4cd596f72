"""A model of the turns of hosts in one partition, written from the contract: hosts, addresses, questions, claims.

A host is contacted no sooner than its delay allows, and has a limited number of transfers; so have all hosts of one
address together. Questions (for an address, for robots.txt) come before the pages of their host, one at a time.
Claims come before leases, first come, first served. A turn is kept for the first claim of a queue for a limited
time, and after some claims in a row the next turn may be that of a lease.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

PROMISE_S, QUEUE_HEAD_S = 0.5, 1.0
"""How long a turn is kept for a claim that was given its time, and for a new first claim of a queue."""

WANTED_MAX_S, YIELD_MAX_S = 1.0, 1.0
"""How long leases count as wanted after a worker got too few, and how long claims yield to a lease."""

CLAIMS_IN_ROW_MAX = 2
"""The limit of the script is reduced to the same number."""

PAGE, ROBOTS, RESOLVE = 0, 1, 2


@dataclass(eq=False)
class Transfer:
    """A contact with a host. `before` and `after` are the host's next turn before and after it was granted.

    `ended` says that its slot is free, also if the lease goes on because its callback waits for claims.
    """

    host: str
    kind: int = field(default=PAGE, kw_only=True)
    worker: str = field(default="", kw_only=True)
    token: int = field(default=0, kw_only=True)
    before: float = field(default=0.0, kw_only=True)
    after: float = field(default=0.0, kw_only=True)
    address: str = field(default="", kw_only=True)
    group_before: float = field(default=0.0, kw_only=True)
    group_after: float = field(default=0.0, kw_only=True)
    ended: bool = field(default=False, kw_only=True)


@dataclass(eq=False)
class Claim(Transfer):
    """A claim that waits in the queue of its host, or was granted. A smaller `place` came first."""

    number: int = 0
    place: int = 0
    granted: bool = False


@dataclass
class TurnTaker:
    """A host or an address. `next_at` is its next turn, promised to claims until `promised_until`.

    Until `kept_until` the turn is kept for one claim.
    """

    next_at: float = 0.0
    in_flight: int = 0
    claims_in_row: int = 0
    promised_until: float = 0.0
    kept_until: float = 0.0

    @property
    def may_yield(self) -> bool:
        """Whether the next turn may be that of a lease although claims wait."""
        return self.claims_in_row >= CLAIMS_IN_ROW_MAX


@dataclass
class Host(TurnTaker):
    """`paused` is the end of its block, `pending_question` the question in progress.

    `unconfirmed` is a transfer whose start was not reported yet.
    """

    paused: float = 0.0
    started: float = 0.0
    throttle: float = 0.0
    unconfirmed: Transfer | None = None
    pending_question: Transfer | None = None
    robots_at: float = 0.0
    crawl_delay: float = 0.0
    address: str = ""
    known_until: float = 0.0
    yields_until: float = 0.0
    tries: dict[int, int] = field(default_factory=lambda: {PAGE: 0, ROBOTS: 0, RESOLVE: 0})
    queue: list[Claim] = field(default_factory=list)


class Limits(NamedTuple):
    """The limits of the crawl."""

    places: int
    delay: float
    punctual: bool = False
    robots_ttl: float = inf
    places_per_ip: int = 0
    delay_per_ip: float = 0.0

    @property
    def resolves(self) -> bool:
        """Whether addresses of hosts matter."""
        return self.places_per_ip > 0 or self.delay_per_ip > 0


class HostSchedule:
    """The hosts of a partition. `latest_now` is the latest time of a call: time never goes back."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.hosts: dict[str, Host] = {}
        self.groups: dict[str, TurnTaker] = {}
        self.facts: dict[str, bytes] = {}
        self.claims: dict[tuple[str, int], Claim] = {}
        self.leased: dict[int, Any] = {}
        self.answers: Iterator[Sequence[Any]] = iter(())
        self.latest_now = self.wanted_since = 0.0
        self.claimed = 0

    def host(self, name: str) -> Host:
        """Return the state of a host."""
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = Host()
        return found

    def group(self, host: Host) -> TurnTaker | None:
        """Return the address of the host, or None if there are no limits per address."""
        if not self.limits.resolves or not host.address:
            return None
        return self.groups.setdefault(host.address, TurnTaker())

    def delay(self, host: Host) -> float:
        """Return the delay between two starts."""
        return max(host.throttle, host.crawl_delay, self.limits.delay)

    def is_full(self, group: TurnTaker) -> bool:
        """Whether the address has no free slot."""
        return 0 < self.limits.places_per_ip <= group.in_flight

    def question(self, host: Host, now: float) -> int:
        """Return the kind of question that comes before the next page, or PAGE for none."""
        if self.limits.resolves and host.known_until <= now:
            return RESOLVE
        return ROBOTS if now - host.robots_at >= self.limits.robots_ttl else PAGE

    # ------------------------------------------------------------------------------------------------------ transfers

    def start_transfer(self, transfer: Transfer, now: float) -> None:
        """Check that the transfer may start now, and start it."""
        host = self.host(transfer.host)
        group = self.group(host)
        assert host.in_flight < self.limits.places, f"{transfer}: too many at once"
        assert host.unconfirmed is None, f"{transfer}: the start of {host.unconfirmed} is not reported"
        assert host.next_at <= self.latest_now, f"{transfer} at {now}: too soon, {host}"
        if group:
            assert group.next_at <= self.latest_now, f"{transfer} at {now}: too soon for its address, {group}"
            assert not self.is_full(group), f"{transfer}: too many at once at its address"
            transfer.group_before = group.next_at
            group.in_flight += 1
            group.next_at = transfer.group_after = max(group.next_at, now + self.limits.delay_per_ip)
        transfer.before, transfer.address = host.next_at, host.address if group else ""
        host.in_flight, host.started = host.in_flight + 1, now
        if self.delay(host) > 0:
            host.next_at = now + self.delay(host)
            host.unconfirmed = transfer if self.limits.punctual else None
        transfer.after = host.next_at

    def finish_transfer(self, transfer: Transfer, contacted: bool) -> None:
        """Free the slot. A transfer that did not contact the host returns its turn."""
        if transfer.ended:
            return
        host = self.host(transfer.host)
        transfer.ended = True
        host.in_flight -= 1
        host.unconfirmed = None if host.unconfirmed is transfer else host.unconfirmed
        if not contacted and host.next_at == transfer.after:
            host.next_at = max(transfer.before, host.paused)
        if transfer.address:
            group = self.groups[transfer.address]
            group.in_flight -= 1
            if not contacted and group.next_at == transfer.group_after:
                group.next_at = transfer.group_before

    def lose_transfer(self, transfer: Transfer, now: float) -> None:
        """The worker is dead. The host may have been contacted just now."""
        host = self.host(transfer.host)
        if host.unconfirmed is transfer:
            host.next_at = max(host.next_at, now + self.delay(host))
        self.finish_transfer(transfer, contacted=True)

    def block_until(self, host: Host, until: float) -> None:
        """Contact the host no sooner than this."""
        host.paused, host.next_at = max(host.paused, until), max(host.next_at, until)

    def on_block(self, worker: str, now: float, name: str, until: float) -> None:
        self.block_until(self.host(name), until)

    def on_started(self, worker: str, now: float, name: str, started_at: str) -> None:
        """A transfer has started: the delay counts from there."""
        host = self.host(name)
        if self.delay(host) > 0:
            host.unconfirmed, host.started = None, max(host.started, min(float(started_at), now))
            host.next_at = max(host.next_at, host.started + self.delay(host))

    def on_throttle(self, worker: str, now: float, name: str, delay: float) -> None:
        host = self.host(name)
        host.throttle = delay
        host.next_at = max(host.paused, host.started + self.delay(host) if host.started else 0.0)

    def on_transferred(self, worker: str, now: float, token: int, contacted: int) -> None:
        """The transfer of a page has ended, its callback has not."""
        transfer = self.leased.get(token)
        if transfer and transfer.worker == worker and transfer.kind == PAGE and self.is_leased(transfer):
            self.finish_transfer(transfer, contacted=bool(contacted))

    def is_leased(self, transfer: Any) -> bool:
        """Whether the transfer belongs to a current lease."""
        return self.host(transfer.host).pending_question is transfer if transfer.kind else transfer.state == "leased"

    # ------------------------------------------------------------------------------------------------------ questions

    def lease_question(self, worker: str, name: str, kind: int, now: float) -> Transfer:
        """Lease a question."""
        host = self.host(name)
        assert kind == self.question(host, now), f"{name} is asked for {kind} at {now}: {host}"
        assert host.pending_question is None, f"{name} is asked twice"
        question = Transfer(name, kind=kind, worker=worker)
        if kind == ROBOTS:
            self.start_transfer(question, now)
        else:
            assert host.in_flight < self.limits.places, f"{name}: too many at once"
            question.before, host.in_flight = host.next_at, host.in_flight + 1
        host.pending_question = question
        return question

    def questions(self, worker: str) -> list[Transfer]:
        """Return the questions that a worker has leased."""
        return [
            host.pending_question
            for host in self.hosts.values()
            if host.pending_question and host.pending_question.worker == worker
        ]

    def on_answered(self, worker: str, now: float, question: Transfer, contacted: bool) -> None:
        """The answer itself was sent before."""
        self.host(question.host).pending_question = None
        self.finish_transfer(question, contacted)

    def on_unanswered(self, worker: str, now: float, question: Transfer, contacted: bool, retry_at: float) -> None:
        """The question is asked again later."""
        host = self.host(question.host)
        host.tries[question.kind] += 1
        self.block_until(host, retry_at)
        self.on_answered(worker, now, question, contacted)

    def on_host_facts(
        self, worker: str, now: float, name: str, fetched: float, since: float, delay: str, facts: bytes
    ) -> None:
        """The robots.txt of a host, and when it was fetched."""
        host = self.host(name)
        self.facts[name] = facts
        host.robots_at, host.crawl_delay, host.tries[ROBOTS] = fetched, float(delay), 0
        self.block_until(host, since + self.delay(host))

    def on_address(self, worker: str, now: float, name: str, address: str, until: float) -> None:
        """The address of a host. Its last start counts for the new address, too."""
        host = self.host(name)
        host.known_until, host.tries[RESOLVE] = until, 0
        if host.address == address:
            return
        host.address = address
        group = self.group(host)
        if group:
            if host.queue:
                self.queue_moved(host, now)
            if host.started and self.limits.delay_per_ip > 0:
                group.next_at = max(group.next_at, host.started + self.limits.delay_per_ip)

    # --------------------------------------------------------------------------------------------------------- claims

    def on_claim(self, worker: str, now: float, number: int, name: str) -> None:
        """Append a claim to the queue, unless it is there already."""
        if (worker, number) not in self.claims:
            self.join(worker, now, number, name)

    def join(self, worker: str, now: float, number: int, name: str) -> Claim:
        """Append a claim to the queue."""
        self.claimed += 1
        claim = Claim(name, worker=worker, number=number, place=self.claimed)
        self.claims[worker, number] = claim
        host = self.host(name)
        host.queue.append(claim)
        if len(host.queue) == 1:
            self.queue_moved(host, now)
        return claim

    def leave(self, claim: Claim, now: float) -> None:
        """Remove a claim from the queue."""
        host = self.host(claim.host)
        first = host.queue[0] is claim
        host.queue.remove(claim)
        if first:
            self.queue_moved(host, now)

    def queue_moved(self, host: Host, now: float) -> None:
        """Another claim is the first of the queue."""
        host.kept_until = host.promised_until = max(host.next_at, now) + QUEUE_HEAD_S if host.queue else 0.0

    def on_release_claim(self, worker: str, now: float, number: int) -> None:
        """The claim is withdrawn, or its transfer has ended."""
        claim = self.claims.pop((worker, number), None)
        if claim and claim.granted:
            self.finish_transfer(claim, contacted=True)
        elif claim:
            self.leave(claim, now)

    def on_try_start(self, worker: str, now: float, number: int, name: str) -> None:
        """The claim asks for its turn. `answers` has the responses of the partition."""
        answered_number, time_text, address, *_ = next(self.answers)
        retry_at, host = float(time_text), self.host(name)
        assert (int(answered_number), address.decode()) == (number, host.address)
        claim = self.claims.get((worker, number)) or self.join(worker, now, number, name)
        if claim.granted:
            assert retry_at == 0, f"{claim} has started, but must ask again"
            return
        if host.queue[0] is not claim and host.kept_until < now:
            self.overtake(claim, now)
        if retry_at == 0:
            self.grant(claim, now)
        else:
            self.refuse(claim, retry_at, now)

    def overtake(self, claim: Claim, now: float) -> None:
        """Remove the claims of a worker that did not use its turn, up to this claim."""
        host = self.host(claim.host)
        late = host.queue[0].worker
        while host.queue[0] is not claim and host.queue[0].worker == late:
            removed = host.queue.pop(0)
            del self.claims[removed.worker, removed.number]
        self.queue_moved(host, now)

    def grant(self, claim: Claim, now: float) -> None:
        """The claim starts. Check that it was its turn."""
        host = self.host(claim.host)
        group = self.group(host)
        assert host.queue[0] is claim, f"{claim} overtakes {host.queue[0]}"
        yields = self.yields(host, now)
        assert not yields, f"{claim} starts although it is the turn of a lease: {host}"
        earlier = [first for first in self.rivals(host, now) if first.place < claim.place]
        assert not earlier, f"{claim} overtakes {earlier} at its address"
        self.start_transfer(claim, now)
        claim.granted, host.claims_in_row, host.yields_until = True, host.claims_in_row + 1, 0.0
        self.leave(claim, now)
        if group:
            group.claims_in_row, group.promised_until = group.claims_in_row + 1, 0.0
            group.kept_until = max(group.next_at, now) + QUEUE_HEAD_S if any(self.waiting_hosts(host.address)) else 0.0

    def refuse(self, claim: Claim, retry_at: float, now: float) -> None:
        """The claim has to ask again. Check that this is necessary, and not too late."""
        host = self.host(claim.host)
        group = self.group(host)
        assert retry_at > now, f"{claim} has to ask again at {retry_at}, which is not after {now}"
        if host.queue[0] is not claim:
            assert retry_at <= now + QUEUE_HEAD_S, (
                f"{claim} waits behind others, but has to ask again only at {retry_at}: now {now}"
            )
            return
        assert retry_at <= max(host.next_at, group.next_at if group else 0.0, now + QUEUE_HEAD_S), (
            f"{claim}: {retry_at} is too late, {host}"
        )
        free = self.may_start(host, now) and (not group or (group.next_at <= now and not self.is_full(group)))
        others = group and (group.may_yield or any(self.rivals(host, now, late=True)))
        yields = free and self.yields(host, now)
        assert not free or yields or others, f"{claim} is withheld at {now}: {host}, {group}"
        host.kept_until = host.promised_until = retry_at + PROMISE_S
        if group and self.may_start(host, now):
            group.kept_until = max(group.kept_until, retry_at + PROMISE_S)
            group.promised_until = (
                group.promised_until if host.may_yield else max(group.promised_until, retry_at + PROMISE_S)
            )

    def yields(self, host: Host, now: float) -> bool:
        """Whether a claim has to yield to a lease that is wanted and available, within the time limit."""
        is_wanted = self.wanted_since > 0 and now - self.wanted_since <= WANTED_MAX_S
        if not host.may_yield or not is_wanted or host.pending_question or not self.has_work(host):
            return False
        host.yields_until = host.yields_until or now + YIELD_MAX_S
        if host.yields_until <= now:
            host.claims_in_row, host.yields_until = 0, 0.0
            return False
        return True

    def has_work(self, host: Host) -> bool:
        """Whether the host has queued records."""
        raise NotImplementedError

    def may_start(self, host: Host, now: float) -> bool:
        """Whether the host may be contacted, apart from its address."""
        return host.next_at <= now and host.in_flight < self.limits.places and host.unconfirmed is None

    def waiting_hosts(self, address: str) -> Iterator[Host]:
        """Yield the hosts of an address with waiting claims."""
        return (host for host in self.hosts.values() if host.queue and host.address == address)

    def rivals(self, host: Host, now: float, *, late: bool = False) -> list[Claim]:
        """Return the first claims of the address's other hosts that could start: those that must precede later ones.

        With `late` also those that may precede them: their promise has ended, or their host may yield to a lease.
        """
        if not self.group(host):
            return []
        others = (
            other for other in self.waiting_hosts(host.address) if other is not host and self.may_start(other, now)
        )
        return [other.queue[0] for other in others if late or (other.promised_until >= now and not other.may_yield)]

    def expire_claims(self, worker: str, now: float) -> None:
        """All claims of a worker end."""
        for claim in [each for each in self.claims.values() if each.worker == worker]:
            if claim.granted:
                self.lose_transfer(claim, now)
                del self.claims[worker, claim.number]
            else:
                self.on_release_claim(worker, now, claim.number)

    # --------------------------------------------------------------------------------------------------------- leases

    def want_leases(self, now: float) -> None:
        """A worker got fewer leases than it wanted. This is recorded at most every quarter of WANTED_MAX_S."""
        if now - self.wanted_since > WANTED_MAX_S / 4 or self.wanted_since > now:
            self.wanted_since = now

    def is_promised(self, host: Host) -> bool:
        """Whether the next turn is kept for a claim."""
        group = self.group(host)
        by_host = host.promised_until > self.latest_now and not host.may_yield
        return by_host or bool(group and group.promised_until > self.latest_now and not group.may_yield)

    def lease_at(self, host: Host) -> float:
        """Return the latest time at which a lease has its turn."""
        group = self.group(host)
        times = [host.next_at, host.kept_until] + ([group.next_at, group.kept_until] if group else [])
        return max(times)

    def may_be_leased(self, host: Host) -> bool:
        """Whether the host may be leased, apart from its time."""
        group = self.group(host)
        busy = host.in_flight >= self.limits.places or host.unconfirmed is not None or host.pending_question is not None
        return not busy and not (group and self.is_full(group))
