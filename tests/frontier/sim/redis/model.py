"""A model of a shared crawl, written from its contract, for `test_redis_history`. It imports nothing from the
package.

A partition executes one call at a time. The history passes the effects of each call (`Effect`), and the model checks
the leases. Every push of a URL has a number of its own, so that the order of equal records can be checked. Whether
acks are committed is decided in one place for all partitions (`Crawl.decided`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from tests.frontier.sim.redis.host_schedule import PAGE, WANTED_MAX_S, Host, HostSchedule, Limits, Transfer

SILENT_S, OUTAGE_S = 2.0, 1.0

Key = tuple[str, int]
"""Segment and page, which identify a record."""


class Effect(NamedTuple):
    """The effect of a verb of an exchange."""

    verb: str
    arguments: tuple[Any, ...] = ()


@dataclass(eq=False)
class Record(Transfer):
    """One push of a URL. `key` is None if it is never a duplicate; `rank` is the start of its segment.

    `order` is its position within its priority, `commit` the number of the commit that it is prepared for.
    """

    number: int
    key: Key | None
    segment: str
    rank: float
    priority: int
    due: float = 0.0
    state: str = "new"
    order: int = 0
    commit: int | None = None
    links: tuple[Record, ...] = ()

    @property
    def lane(self) -> tuple[float, int, str]:
        """Its sort key, apart from the order of arrival."""
        return self.rank, -self.priority, self.segment

    @property
    def place(self) -> tuple[tuple[float, int, str], int]:
        """Its sort key."""
        return self.lane, self.order


class LeaseGrant(NamedTuple):
    """A lease as a worker receives it: of a page with this `record`, or of a question (None)."""

    token: int
    kind: int
    host: str
    record: Record | None
    address: str
    tries: int
    paced: bool
    known_until: float


@dataclass
class Crawl:
    """What all partitions share. `decided` is the last commit of each worker, `records` are all records ever
    created.
    """

    partitions: int
    limits: Limits
    decided: dict[str, int] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parts = [Part(self, number) for number in range(self.partitions)]

    @property
    def is_over(self) -> bool:
        """Whether no work is left anywhere."""
        return all(part.is_over for part in self.parts)


class Part(HostSchedule):
    """One partition. `live` are the records that are neither done nor dead, `ended` counts the others."""

    def __init__(self, crawl: Crawl, number: int) -> None:
        super().__init__(crawl.limits)
        self.crawl, self.number = crawl, number
        self.known: set[Key] = set()
        self.live: dict[int, Record] = {}
        self.ended: Counter[tuple[str, str]] = Counter()
        self.last_call: dict[str, float] = {}
        self.seen: float | None = None
        self.refused: set[str] = set()
        self.serials: dict[str, int] = {}
        self.expired: set[str] = set()
        self.waiting_links: list[tuple[Record, int, Record]] = []
        self.outboxes: dict[int, list[Record]] = {}
        self.delivered: Counter[int] = Counter()
        self.received: Counter[int] = Counter()
        self.arrived = 0
        self.starved: dict[str, float] = {}
        self.last = self.first = 0

    # ---------------------------------------------------------------------------------------------------------- workers

    def open(self, now: float, slot: str, worker: str, joined: str) -> bool:
        """Join with a known name, or with the new name `joined`, which expires the previous worker of the slot."""
        self.watch(now)
        if worker:
            if worker in self.refused:
                return False
        else:
            for other in [other for other in self.longest_silent_first() if other.partition("#")[0] == slot]:
                self.expire_here(other, now)
        self.last_call[worker or joined] = now
        return True

    def touch(self, now: float, worker: str) -> bool:
        """Record a call of the worker. Return whether the worker is known."""
        if worker not in self.last_call:
            return False
        self.last_call[worker] = now
        self.watch(now)
        return True

    def watch(self, now: float) -> None:
        """Expire silent workers. Time in which nobody called, and clock jumps, do not count."""
        if self.number:
            return
        gap = now - (now if self.seen is None else self.seen)
        self.seen = now
        if gap > OUTAGE_S or gap < 0:
            self.last_call = {worker: min(now, time_s + gap) for worker, time_s in self.last_call.items()}
            return
        for worker in [worker for worker in self.longest_silent_first() if self.last_call[worker] < now - SILENT_S]:
            self.expire_here(worker, now)

    def longest_silent_first(self) -> list[str]:
        """Return the live workers, the longest silent one first."""
        return sorted(self.last_call, key=lambda worker: (self.last_call[worker], worker))

    def give_up(self, worker: str, now: float) -> None:
        """Accept no more calls of the worker. Only the first partition knows what it has committed."""
        if self.number:
            self.serials[worker] = 1 << 53
        else:
            self.expire_here(worker, now)

    def expire_here(self, worker: str, now: float) -> None:
        """Expire the worker, and have the other partitions do so, too."""
        if self.crawl.partitions > 1:
            self.expired.add(worker)
        self.expire(worker, now)

    def expire(self, worker: str, now: float) -> None:
        """Requeue the uncommitted records of the worker."""
        self.last_call.pop(worker, None)
        self.serials.pop(worker, None)
        self.first -= 1
        decided = self.crawl.decided.get(worker, 0)
        self.mark_done([each for each in self.acked(worker) if each.commit is not None and each.commit <= decided])
        for record in [record for record in self.live.values() if record.worker == worker]:
            if record.state == "leased":
                self.lose_transfer(record, now)
            self.put_back(record)
        for question in self.questions(worker):
            self.lose_transfer(question, now)
            self.host(question.host).pending_question = None
        self.expire_claims(worker, now)

    # ------------------------------------------------------------------------------------------------------------ verbs

    def apply(self, worker: str, effect: Effect, now: float) -> int:
        """Apply the effect of a verb. Return the number of new records."""
        method = getattr(self, "on_" + effect.verb)
        return method(worker, now, *effect.arguments) or 0

    def on_push(self, worker: str, now: float, record: Record) -> int:
        """A record from outside."""
        self.arrived += 1
        return self.add(record)

    def on_ack(
        self,
        worker: str,
        now: float,
        record: Record,
        contacted: bool,
        links: Sequence[tuple[int, Record]],
        not_sent: Sequence[Record],
    ) -> int:
        """The record is done, but uncommitted. Links that the worker knows as duplicates are not sent; unfiltered ones
        wait for the commit.
        """
        new = 0
        record.links = (*(link for _, link in links), *not_sent)
        for partition, link in links:
            if link.key is None:
                self.waiting_links.append((record, partition, link))
            else:
                new += self.add_link(partition, link)
        self.finish_transfer(record, contacted)
        record.state = "uncommitted"
        return new

    def on_nack(self, worker: str, now: float, record: Record, contacted: bool, retry_at: float | None) -> None:
        """Failed, for now or for good."""
        self.finish_transfer(record, contacted)
        record.worker = ""
        if retry_at is None:
            self.end(record, "dead")
        else:
            record.state, record.due = "delayed", retry_at
            self.last += 1
            record.order = self.last

    def on_release(self, worker: str, now: float, record: Record) -> None:
        self.finish_transfer(record, contacted=True)
        self.first -= 1
        self.put_back(record)

    def on_prepare(self, worker: str, now: float, commit: int) -> int:
        """Prepare all acks for this commit."""
        new = self.on_commit_prepared(worker, now)
        for record in self.acked(worker):
            record.commit = commit
        return new

    def on_commit_prepared(self, worker: str, now: float) -> int:
        """Apply the prepared commit, if there is one."""
        prepared = [record for record in self.acked(worker) if record.commit is not None]
        assert all((record.commit or 0) <= self.crawl.decided.get(worker, 0) for record in prepared), "not committed"
        return self.mark_done(prepared)

    def on_commit(self, worker: str, now: float, commit: int) -> int:
        """Decide the commit."""
        self.crawl.decided[worker] = commit
        return self.mark_done(self.acked(worker))

    def mark_done(self, records: Sequence[Record]) -> int:
        """The records are done for good; links that waited for the commit are added."""
        released = [each for each in self.waiting_links if each[0] in records]
        for record in records:
            self.end(record, "done")
        self.waiting_links = [each for each in self.waiting_links if each not in released]
        return sum(self.add_link(partition, link) for _, partition, link in released)

    def add_link(self, partition: int, link: Record) -> int:
        """Queue a link, or put it into the outbox for its partition."""
        if partition == self.number:
            return self.add(link)
        self.outboxes.setdefault(partition, []).append(link)
        return 0

    def acked(self, worker: str) -> list[Record]:
        """Return the records of uncommitted acks."""
        return [each for each in self.live.values() if each.worker == worker and each.state == "uncommitted"]

    def receive(self, source: int, first: int, count: int) -> None:
        """Add the new ones of the records that another partition sent."""
        outbox = self.crawl.parts[source].outboxes.get(self.number, [])
        if first > self.received[source] + 1:
            return
        for number in range(self.received[source] + 1, first + count):
            self.received[source] = number
            self.arrived += 1
            self.add(outbox[number - 1])

    # ---------------------------------------------------------------------------------------------------------- records

    def add(self, record: Record) -> int:
        """Queue the record if it is new. Return the number of new ones."""
        if record.key is not None:
            if record.key in self.known:
                return 0
            self.known.add(record.key)
        assert record.number not in self.live
        self.live[record.number] = record
        self.last += 1
        record.state, record.order = "delayed" if record.due > 0 else "queued", self.last
        return 1

    def put_back(self, record: Record) -> None:
        """Requeue the record at the front of its priority."""
        self.waiting_links = [each for each in self.waiting_links if each[0] is not record]
        record.state, record.worker, record.order, record.commit = "queued", "", self.first, None

    def end(self, record: Record, state: str) -> None:
        """Record the final state of a record."""
        assert record.number in self.live, f"{record} ends twice"
        del self.live[record.number]
        record.state, record.commit = state, None
        self.ended[record.segment, state] += 1

    def promote_due(self, now: float) -> None:
        """Queue the delayed records that are due."""
        due = [record for record in self.live.values() if record.state == "delayed" and record.due <= now]
        for record in sorted(due, key=lambda record: (record.due, record.order)):
            self.last += 1
            record.state, record.order = "queued", self.last

    # ----------------------------------------------------------------------------------------------------------- leases

    def heads(self) -> dict[str, Record]:
        """Return the first record of each host that only waits for its time."""
        heads: dict[str, Record] = {}
        for record in self.live.values():
            if record.state == "queued" and self.may_be_leased(self.host(record.host)):
                head = heads.get(record.host)
                if head is None or record.place < head.place:
                    heads[record.host] = record
        return heads

    def has_work(self, host: Host) -> bool:
        """Whether the host has queued records."""
        return any(each.state == "queued" and self.hosts.get(each.host) is host for each in self.live.values())

    def ready(self, now: float) -> dict[str, Record]:
        """Return the heads that may be leased now."""
        heads = self.heads().items()
        return {name: head for name, head in heads if max(self.lease_at(self.host(name)), head.rank) <= now}

    def turn_taker(self, name: str) -> str:
        """Return the name that the host takes turns under: its address, or its own name."""
        host = self.host(name)
        return host.address if self.group(host) else name

    def check_leases(self, worker: str, grants: Sequence[LeaseGrant], limit: int, now: float) -> None:
        """Check the leases one after the other, and that nothing leasable was withheld."""
        self.promote_due(now)
        ready_before = self.ready(now)
        units = {self.turn_taker(each.host) for each in grants}
        ranks = [self.check_lease(worker, each, now) for each in grants]
        for rank in ranks:
            overtaken = [
                head
                for name, head in ready_before.items()
                if self.turn_taker(name) not in units
                and head.rank < rank
                and not self.leaves_to_others(worker, name, now)
            ]
            assert not overtaken, f"{grants} are leased before {overtaken}"
        if len(grants) < limit:
            self.want_leases(now)
            self.starved[worker] = now
            withheld = [
                (head, self.host(name))
                for name, head in self.ready(now).items()
                if not self.leaves_to_others(worker, name, now)
            ]
            assert not withheld, f"at {now} these are withheld: {withheld}, {self.groups}"

    def starved_others(self, worker: str, now: float) -> list[str]:
        """Return the other workers that got fewer leases than they asked for not long ago."""
        return [each for each, at in self.starved.items() if each != worker and now - at <= WANTED_MAX_S]

    def leaves_to_others(self, worker: str, name: str, now: float) -> bool:
        """Whether the worker has its equal part of the slots of a host, and the rest may wait for starved workers.

        The frontier may forget earlier than this model that a worker is starved.
        """
        others = self.starved_others(worker, now)
        transfers = [
            each
            for each in self.live.values()
            if each.state == "leased" and each.worker == worker and each.host == name and not each.ended
        ]
        return (
            bool(others)
            and not self.delay(self.host(name))
            and len(transfers) >= self.limits.places // (1 + len(others))
        )

    def check_lease(self, worker: str, grant: LeaseGrant, now: float) -> float:
        """Check one lease. Return its rank."""
        host, record = self.host(grant.host), grant.record
        first = self.heads().get(grant.host)
        assert first, f"{grant} is leased, but nothing is leasable of {host}"
        assert first.rank <= self.latest_now, f"{grant}: its segment has not started"
        assert not self.is_promised(host), f"{grant} is leased at {now} before a claim: {host}"
        assert (grant.address, grant.paced) == (host.address, self.delay(host) > 0)
        assert grant.known_until == host.known_until
        if record is None:
            assert grant.tries == host.tries[grant.kind]
            transfer = self.lease_question(worker, grant.host, grant.kind, now)
        else:
            transfer = record
            self.check_page_lease(worker, record, first, now)
        transfer.token, self.leased[grant.token] = grant.token, transfer
        return first.rank

    def check_page_lease(self, worker: str, record: Record, first: Record, now: float) -> None:
        """Check that the record is the first one of its host."""
        host = self.host(record.host)
        group = self.group(host)
        assert self.question(host, now) == PAGE, f"{record} is leased at {now} before a question: {host}"
        assert self.live.get(record.number) is record, f"{record} is leased, but has ended"
        assert record.state == "queued", f"{record} is already leased"
        assert record.place == first.place, f"{record} is leased before {first}"
        record.state, record.worker, record.ended = "leased", worker, False
        self.start_transfer(record, now)
        host.claims_in_row, host.yields_until = 0, 0.0
        if group:
            group.claims_in_row = 0

    # ---------------------------------------------------------------------------------------------------------- reports

    @property
    def is_over(self) -> bool:
        """Whether nothing is live in this partition."""
        return not self.live and not any(self.waiting(target) for target in self.outboxes)

    def waiting(self, target: int) -> int:
        """Return the number of unconfirmed records for another partition."""
        return len(self.outboxes[target]) - self.delivered[target]

    def counts(self) -> dict[str, Counter[str]]:
        """Return the counts by segment and state; "" includes the outboxes."""
        counts: dict[str, Counter[str]] = {}
        for record in self.live.values():
            of_segment = counts.setdefault(record.segment, Counter())
            of_segment[record.state] += 1
            of_segment["done"] += record.state == "uncommitted"
        for (segment, state), number in self.ended.items():
            counts.setdefault(segment, Counter())[state] += number
        counts.setdefault("", Counter())["outgoing"] += sum(map(self.waiting, self.outboxes))
        return counts

    def due_at(self, now: float) -> float:
        """Return when the next lease is possible, as far as only time matters."""
        times = [max(self.lease_at(self.host(name)), head.rank) for name, head in self.heads().items()]
        times += [record.due for record in self.live.values() if record.state == "delayed"]
        return min(times, default=inf)


def nonzero_counts(segments: dict[str, dict[str, int]]) -> dict[str, Counter[str]]:
    """Convert reported counts to the form of `Part.counts`, without zeros."""
    return without_zeros({segment: Counter(counts) for segment, counts in segments.items()})


def without_zeros(counts: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    return {segment: +counter for segment, counter in counts.items() if +counter}


def unknown_links(links: Iterable[Record], parts: Sequence[Part]) -> list[Record]:
    """Return the links that no partition knows."""
    return [link for link in links if link.key is not None and not any(link.key in part.known for part in parts)]
