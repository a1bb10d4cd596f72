"""Whose turn it is in one partition, as its contract tells it, for `model`: hosts, addresses, questions, claims.

A host is contacted no sooner than its pause allows, and no more often at a time than it has places; so are all hosts of
one address. Questions (for an address, for robots.txt) come before the pages of their host, one at a time. Claims come
before leases and first come, first served: a turn is kept for the first of a line for as long as it was promised, and
after so many claims in a row the next turn may be that of a lease.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

COMES_S, BEHIND_S = 0.5, 1.0
"""For so long a turn is kept for who was told of it, and for who became the first of a line."""

WANTED_S, YIELD_S = 1.0, 1.0
"""For so long leases are wanted after somebody got too few, and the turn of a lease is kept for it."""

CLAIMS_ROW = 2
"""What the script has is made as small."""

PAGE, ROBOTS, RESOLVE = 0, 1, 2


@dataclass(eq=False)
class Transfer:
    """What a host is contacted for. `before` and `after` are the turn of its host before it was lent, and with it.

    `over` says that its place is free although the lease goes on: its callback waits for claims.
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
    over: bool = field(default=False, kw_only=True)


@dataclass(eq=False)
class Claim(Transfer):
    """It waits in the line of its host, or has its turn. `place` is smaller for who came first."""

    number: int = 0
    place: int = 0
    granted: bool = False


@dataclass
class Unit:
    """What takes turns: `at` is the next one. `promised` to a claim until then, perhaps kept for one until `kept`."""

    at: float = 0.0
    flying: int = 0
    row: int = 0
    promised: float = 0.0
    kept: float = 0.0

    @property
    def may_yield(self) -> bool:
        """Whether the next turn may be that of a lease, whoever claims."""
        return self.row >= CLAIMS_ROW


@dataclass
class Host(Unit):
    """`paused` until when it is blocked, `asked` the question that is out.

    `by` is what was lent, or claimed, and of which nobody has said yet when the host heard of it.
    """

    paused: float = 0.0
    started: float = 0.0
    throttle: float = 0.0
    by: Transfer | None = None
    asked: Transfer | None = None
    robots_at: float = 0.0
    crawl_delay: float = 0.0
    address: str = ""
    known_until: float = 0.0
    yields_until: float = 0.0
    tries: dict[int, int] = field(default_factory=lambda: {PAGE: 0, ROBOTS: 0, RESOLVE: 0})
    line: list[Claim] = field(default_factory=list)


class Limits(NamedTuple):
    """How hosts are treated."""

    places: int
    delay: float
    punctual: bool = False
    robots_ttl: float = inf
    places_per_ip: int = 0
    delay_per_ip: float = 0.0

    @property
    def resolves(self) -> bool:
        """Whether it matters where hosts are."""
        return self.places_per_ip > 0 or self.delay_per_ip > 0


class Turns:
    """The hosts of a partition. `latest` is the latest time that it was told: a turn that has come stays so."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.hosts: dict[str, Host] = {}
        self.groups: dict[str, Unit] = {}
        self.facts: dict[str, bytes] = {}
        self.claims: dict[tuple[str, int], Claim] = {}
        self.lent: dict[int, Any] = {}
        self.answers: Iterator[Sequence[Any]] = iter(())
        self.latest = self.wanted = 0.0
        self.claimed = 0

    def host(self, name: str) -> Host:
        """Return what is known of it."""
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = Host()
        return found

    def group(self, host: Host) -> Unit | None:
        """Return all hosts of its address, as one; None where addresses do not count."""
        if not self.limits.resolves or not host.address:
            return None
        return self.groups.setdefault(host.address, Unit())

    def delay(self, host: Host) -> float:
        """Return the pause between two starts."""
        return max(host.throttle, host.crawl_delay, self.limits.delay)

    def full(self, group: Unit) -> bool:
        """Whether no more transfers may go to this address."""
        return 0 < self.limits.places_per_ip <= group.flying

    def question(self, host: Host, now: float) -> int:
        """Return what has to be asked before its next page, PAGE for nothing."""
        if self.limits.resolves and host.known_until <= now:
            return RESOLVE
        return ROBOTS if now - host.robots_at >= self.limits.robots_ttl else PAGE

    # ------------------------------------------------------------------------------------------------------ transfers

    def starts(self, transfer: Transfer, now: float) -> None:
        """Check that it may start now, and let it."""
        host = self.host(transfer.host)
        group = self.group(host)
        assert host.flying < self.limits.places, f"{transfer}: too many at once"
        assert host.by is None, f"{transfer}: it is not known when {host.by} started"
        assert host.at <= self.latest, f"{transfer} at {now}: too soon, {host}"
        if group:
            assert group.at <= self.latest, f"{transfer} at {now}: too soon for its address, {group}"
            assert not self.full(group), f"{transfer}: too many at once at its address"
            transfer.group_before = group.at
            group.flying += 1
            group.at = transfer.group_after = max(group.at, now + self.limits.delay_per_ip)
        transfer.before, transfer.address = host.at, host.address if group else ""
        host.flying, host.started = host.flying + 1, now
        if self.delay(host) > 0:
            host.at = now + self.delay(host)
            host.by = transfer if self.limits.punctual else None
        transfer.after = host.at

    def ended(self, transfer: Transfer, contacted: bool) -> None:
        """It is over; one that did not contact the host gives its turn back."""
        if transfer.over:
            return
        host = self.host(transfer.host)
        transfer.over = True
        host.flying -= 1
        host.by = None if host.by is transfer else host.by
        if not contacted and host.at == transfer.after:
            host.at = max(transfer.before, host.paused)
        if transfer.address:
            group = self.groups[transfer.address]
            group.flying -= 1
            if not contacted and group.at == transfer.group_after:
                group.at = transfer.group_before

    def lost(self, transfer: Transfer, now: float) -> None:
        """Its worker is gone. The host may have heard of it just now."""
        host = self.host(transfer.host)
        if host.by is transfer:
            host.at = max(host.at, now + self.delay(host))
        self.ended(transfer, contacted=True)

    def rest(self, host: Host, until: float) -> None:
        """It is contacted no sooner."""
        host.paused, host.at = max(host.paused, until), max(host.at, until)

    def on_block(self, worker: str, now: float, name: str, until: float) -> None:
        """A host rests."""
        self.rest(self.host(name), until)

    def on_started(self, worker: str, now: float, name: str, at: str) -> None:
        """A host heard of a transfer: its next turn counts from there."""
        host = self.host(name)
        if self.delay(host) > 0:
            host.by, host.started = None, max(host.started, min(float(at), now))
            host.at = max(host.at, host.started + self.delay(host))

    def on_throttle(self, worker: str, now: float, name: str, delay: float) -> None:
        """A host is slow."""
        host = self.host(name)
        host.throttle = delay
        host.at = max(host.paused, host.started + self.delay(host) if host.started else 0.0)

    def on_transferred(self, worker: str, now: float, token: int) -> None:
        """The callback of a page waits for claims: its transfer is over."""
        transfer = self.lent.get(token)
        if transfer and transfer.worker == worker and transfer.kind == PAGE and self.is_out(transfer):
            self.ended(transfer, contacted=True)

    def is_out(self, transfer: Any) -> bool:
        """Whether it is lent, and was not given back."""
        return self.host(transfer.host).asked is transfer if transfer.kind else transfer.state == "leased"

    # ------------------------------------------------------------------------------------------------------ questions

    def ask(self, worker: str, name: str, kind: int, now: float) -> Transfer:
        """A question is lent."""
        host = self.host(name)
        assert kind == self.question(host, now), f"{name} is asked {kind} at {now}: {host}"
        assert host.asked is None, f"{name} is asked twice"
        question = Transfer(name, kind=kind, worker=worker)
        if kind == ROBOTS:
            self.starts(question, now)
        else:
            assert host.flying < self.limits.places, f"{name}: too many at once"
            question.before, host.flying = host.at, host.flying + 1
        host.asked = question
        return question

    def questions(self, worker: str) -> list[Transfer]:
        """Return what it was asked and has not answered."""
        return [host.asked for host in self.hosts.values() if host.asked and host.asked.worker == worker]

    def on_answered(self, worker: str, now: float, question: Transfer, contacted: bool) -> None:
        """What there is to know was told before."""
        self.host(question.host).asked = None
        self.ended(question, contacted)

    def on_unanswered(self, worker: str, now: float, question: Transfer, contacted: bool, again: float) -> None:
        """It is asked again, later."""
        host = self.host(question.host)
        host.tries[question.kind] += 1
        self.rest(host, again)
        self.on_answered(worker, now, question, contacted)

    def on_host_facts(
        self, worker: str, now: float, name: str, fetched: float, since: float, delay: str, facts: bytes
    ) -> None:
        """What a host asks for, and since when."""
        host = self.host(name)
        self.facts[name] = facts
        host.robots_at, host.crawl_delay, host.tries[ROBOTS] = fetched, float(delay), 0
        self.rest(host, since + self.delay(host))

    def on_address(self, worker: str, now: float, name: str, address: str, until: float) -> None:
        """Where a host is. What it was contacted for counts there too."""
        host = self.host(name)
        host.known_until, host.tries[RESOLVE] = until, 0
        if host.address == address:
            return
        host.address = address
        group = self.group(host)
        if group:
            if host.line:
                self.line_moved(host, now)
            if host.started and self.limits.delay_per_ip > 0:
                group.at = max(group.at, host.started + self.limits.delay_per_ip)

    # --------------------------------------------------------------------------------------------------------- claims

    def on_claim(self, worker: str, now: float, number: int, name: str) -> None:
        """Join the line."""
        if (worker, number) not in self.claims:
            self.join(worker, now, number, name)

    def join(self, worker: str, now: float, number: int, name: str) -> Claim:
        """At its end."""
        self.claimed += 1
        claim = Claim(name, worker=worker, number=number, place=self.claimed)
        self.claims[worker, number] = claim
        host = self.host(name)
        host.line.append(claim)
        if len(host.line) == 1:
            self.line_moved(host, now)
        return claim

    def leave(self, claim: Claim, now: float) -> None:
        """It waits no more."""
        host = self.host(claim.host)
        first = host.line[0] is claim
        host.line.remove(claim)
        if first:
            self.line_moved(host, now)

    def line_moved(self, host: Host, now: float) -> None:
        """The line has another first."""
        host.kept = host.promised = max(host.at, now) + BEHIND_S if host.line else 0.0

    def on_release_claim(self, worker: str, now: float, number: int) -> None:
        """It waits no more, or its transfer is over."""
        claim = self.claims.pop((worker, number), None)
        if claim and claim.granted:
            self.ended(claim, contacted=True)
        elif claim:
            self.leave(claim, now)

    def on_try_start(self, worker: str, now: float, number: int, name: str) -> None:
        """Is it its turn? `answers` has what it was told."""
        asked, said, address, *_ = next(self.answers)
        at, host = float(said), self.host(name)
        assert (int(asked), address.decode()) == (number, host.address)
        claim = self.claims.get((worker, number)) or self.join(worker, now, number, name)
        if claim.granted:
            assert at == 0, f"{claim} had its turn, and is to ask again"
            return
        if host.line[0] is not claim and host.kept < now:
            self.pass_by(claim, now)
        if at == 0:
            self.grant(claim, now)
        else:
            self.refuse(claim, at, now)

    def pass_by(self, claim: Claim, now: float) -> None:
        """Those of one worker, which did not come, lose their place to this one."""
        host = self.host(claim.host)
        late = host.line[0].worker
        while host.line[0] is not claim and host.line[0].worker == late:
            passed = host.line.pop(0)
            del self.claims[passed.worker, passed.number]
        self.line_moved(host, now)

    def grant(self, claim: Claim, now: float) -> None:
        """It has its turn: then it was its turn."""
        host = self.host(claim.host)
        group = self.group(host)
        assert host.line[0] is claim, f"{claim} passes {host.line[0]}"
        stands_back = self.stands_back(host, now)
        assert not stands_back, f"{claim} comes before the lease whose turn it is: {host}"
        before = [first for first in self.rivals(host, now) if first.place < claim.place]
        assert not before, f"{claim} passes {before} at its address"
        self.starts(claim, now)
        claim.granted, host.row, host.yields_until = True, host.row + 1, 0.0
        self.leave(claim, now)
        if group:
            group.row, group.promised = group.row + 1, 0.0
            group.kept = max(group.at, now) + BEHIND_S if any(self.lines_of(host.address)) else 0.0

    def refuse(self, claim: Claim, at: float, now: float) -> None:
        """It is told to ask again: not for nothing, and not too late."""
        host = self.host(claim.host)
        group = self.group(host)
        assert at > now, f"{claim} is to ask again at {at}, and it is {now}"
        if host.line[0] is not claim:
            assert at <= now + BEHIND_S, f"{claim} is behind others, and to ask again at {at}: it is {now}"
            return
        assert at <= max(host.at, group.at if group else 0.0, now + BEHIND_S), f"{claim}: {at} is late, {host}"
        free = self.may_start(host, now) and (not group or (group.at <= now and not self.full(group)))
        others = group and (group.may_yield or any(self.rivals(host, now, late=True)))
        stands_back = free and self.stands_back(host, now)
        assert not free or stands_back or others, f"{claim} is held back at {now}: {host}, {group}"
        host.kept = host.promised = at + COMES_S
        if group and self.may_start(host, now):
            group.kept = max(group.kept, at + COMES_S)
            group.promised = group.promised if host.may_yield else max(group.promised, at + COMES_S)

    def stands_back(self, host: Host, now: float) -> bool:
        """Whether it is the turn of a lease, which somebody wants and there is; not for longer than that takes."""
        is_wanted = self.wanted > 0 and now - self.wanted <= WANTED_S
        if not host.may_yield or not is_wanted or host.asked or not self.has_work(host):
            return False
        host.yields_until = host.yields_until or now + YIELD_S
        if host.yields_until <= now:
            host.row, host.yields_until = 0, 0.0
            return False
        return True

    def has_work(self, host: Host) -> bool:
        """Whether something is queued for it."""
        raise NotImplementedError

    def may_start(self, host: Host, now: float) -> bool:
        """Whether it may be contacted, as far as only it is asked."""
        return host.at <= now and host.flying < self.limits.places and host.by is None

    def lines_of(self, address: str) -> Iterator[Host]:
        """Yield the hosts of an address for which somebody waits."""
        return (host for host in self.hosts.values() if host.line and host.address == address)

    def rivals(self, host: Host, now: float, *, late: bool = False) -> list[Claim]:
        """Return the first claims of other hosts of its address that could start: those that come before any other.

        With `late` also those that can be taken to do so.
        """
        if not self.group(host):
            return []
        others = (other for other in self.lines_of(host.address) if other is not host and self.may_start(other, now))
        return [other.line[0] for other in others if late or (other.promised >= now and not other.may_yield)]

    def bury_claims(self, worker: str, now: float) -> None:
        """All of a worker are over."""
        for claim in [each for each in self.claims.values() if each.worker == worker]:
            if claim.granted:
                self.lost(claim, now)
                del self.claims[worker, claim.number]
            else:
                self.on_release_claim(worker, now, claim.number)

    # --------------------------------------------------------------------------------------------------------- leases

    def want(self, now: float) -> None:
        """Somebody got fewer leases than wanted: that is noted, not again and again."""
        if now - self.wanted > WANTED_S / 4 or self.wanted > now:
            self.wanted = now

    def is_promised(self, host: Host) -> bool:
        """Whether the next turn is for a claim."""
        group = self.group(host)
        of_host = host.promised > self.latest and not host.may_yield
        return of_host or bool(group and group.promised > self.latest and not group.may_yield)

    def lease_at(self, host: Host) -> float:
        """Return when a lease has its turn at the latest."""
        group = self.group(host)
        times = [host.at, host.kept] + ([group.at, group.kept] if group else [])
        return max(times)

    def may_be_lent(self, host: Host) -> bool:
        """Whether only time keeps it from being lent."""
        group = self.group(host)
        busy = host.flying >= self.limits.places or host.by is not None or host.asked is not None
        return not busy and not (group and self.full(group))
