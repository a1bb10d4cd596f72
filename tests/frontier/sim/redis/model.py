"""A crawl that several workers share as its contract tells it, for `test_redis_history`: nothing of the package.

A partition does one call at a time. It hears from the history what a call meant (`Effect`), and checks what was lent.
Records are told apart by a number of their own, so that a record that is lent is the one that was taken in first, and
in its turn. Whether what was acked is committed is decided in one place for all partitions (`Crawl.decided`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from tests.frontier.sim.redis.turns import PAGE, Host, Limits, Transfer, Turns

SILENT_S, AWAY_S = 2.0, 1.0

Key = tuple[str, int]
"""Segment and page: what a record is known by."""


class Effect(NamedTuple):
    """What a verb of an exchange means: `what` it does, and to what."""

    what: str
    arguments: tuple[Any, ...] = ()


@dataclass(eq=False)
class Record(Transfer):
    """One push of a URL. `key` is None for one that is never a duplicate; `rank` is when its segment begins.

    `order` is its place in its lane, `commit` the number of the commit that it is prepared for.
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
        """What comes first."""
        return self.rank, -self.priority, self.segment

    @property
    def place(self) -> tuple[tuple[float, int, str], int]:
        """Its lane, and its place there."""
        return self.lane, self.order


class Lent(NamedTuple):
    """What a worker is told of a lease: of a page which `record`, None of a question."""

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
    """What all partitions agree on. `decided` is the last commit of each worker, `records` all that was ever pushed."""

    partitions: int
    limits: Limits
    decided: dict[str, int] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parts = [Part(self, number) for number in range(self.partitions)]

    @property
    def is_over(self) -> bool:
        """Nothing is left anywhere, and nothing can come."""
        return all(part.is_over for part in self.parts)


class Part(Turns):
    """One partition. `live` are the records that are neither done nor dead, `over` counts the others."""

    def __init__(self, crawl: Crawl, number: int) -> None:
        super().__init__(crawl.limits)
        self.crawl, self.number = crawl, number
        self.known: set[Key] = set()
        self.live: dict[int, Record] = {}
        self.over: Counter[tuple[str, str]] = Counter()
        self.heard: dict[str, float] = {}
        self.seen: float | None = None
        self.refused: set[str] = set()
        self.serials: dict[str, int] = {}
        self.expired: set[str] = set()
        self.kept: list[tuple[Record, int, Record]] = []
        self.outboxes: dict[int, list[Record]] = {}
        self.brought: Counter[int] = Counter()
        self.taken: Counter[int] = Counter()
        self.arrived = 0
        self.last = self.first = 0

    # ---------------------------------------------------------------------------------------------------- who lives

    def open(self, now: float, slot: str, worker: str, joined: str) -> bool:
        """Join, under a name that was given before, or as `joined`: then whoever had the slot is buried."""
        self.watch(now)
        if worker:
            if worker in self.refused:
                return False
        else:
            for other in [other for other in self.by_silence() if other.partition("#")[0] == slot]:
                self.bury_here(other, now)
        self.heard[worker or joined] = now
        return True

    def hear(self, now: float, worker: str) -> bool:
        """Return whether it is known: then it lives."""
        if worker not in self.heard:
            return False
        self.heard[worker] = now
        self.watch(now)
        return True

    def watch(self, now: float) -> None:
        """Bury who was silent; a silence of everybody, and a clock that jumps, is nobody's."""
        if self.number:
            return
        away = now - (now if self.seen is None else self.seen)
        self.seen = now
        if away > AWAY_S or away < 0:
            self.heard = {worker: min(now, at + away) for worker, at in self.heard.items()}
            return
        for worker in [worker for worker in self.by_silence() if self.heard[worker] < now - SILENT_S]:
            self.bury_here(worker, now)

    def by_silence(self) -> list[str]:
        """Return who lives, whoever was silent for longest first."""
        return sorted(self.heard, key=lambda worker: (self.heard[worker], worker))

    def give_up(self, worker: str, now: float) -> None:
        """Hear nothing more of it. Only the first partition knows what it has committed."""
        if self.number:
            self.serials[worker] = 1 << 53
        else:
            self.bury_here(worker, now)

    def bury_here(self, worker: str, now: float) -> None:
        """Bury it, and let the others be told."""
        if self.crawl.partitions > 1:
            self.expired.add(worker)
        self.bury(worker, now)

    def bury(self, worker: str, now: float) -> None:
        """What it has goes back, unless it is committed."""
        self.heard.pop(worker, None)
        self.serials.pop(worker, None)
        self.first -= 1
        decided = self.crawl.decided.get(worker, 0)
        self.done([each for each in self.acked(worker) if each.commit is not None and each.commit <= decided])
        for record in [record for record in self.live.values() if record.worker == worker]:
            if record.state == "leased":
                self.lost(record, now)
            self.put_back(record)
        for question in self.questions(worker):
            self.lost(question, now)
            self.host(question.host).asked = None
        self.bury_claims(worker, now)

    # -------------------------------------------------------------------------------------------------- what is told

    def apply(self, worker: str, effect: Effect, now: float) -> int:
        """Do what a verb means; return how many records were new."""
        method = getattr(self, "on_" + effect.what)
        return method(worker, now, *effect.arguments) or 0

    def on_push(self, worker: str, now: float, record: Record) -> int:
        """From outside."""
        self.arrived += 1
        return self.add(record)

    def on_ack(
        self,
        worker: str,
        now: float,
        record: Record,
        contacted: bool,
        links: Sequence[tuple[int, Record]],
        not_told: Sequence[Record],
    ) -> int:
        """Done, for now. What the worker knew to be known is not told; what may be a duplicate waits for the commit."""
        new = 0
        record.links = (*(link for _, link in links), *not_told)
        for home, link in links:
            if link.key is None:
                self.kept.append((record, home, link))
            else:
                new += self.found(home, link)
        self.ended(record, contacted)
        record.state = "uncommitted"
        return new

    def on_nack(self, worker: str, now: float, record: Record, contacted: bool, again: float | None) -> None:
        """Failed, for now or for good."""
        self.ended(record, contacted)
        record.worker = ""
        if again is None:
            self.end(record, "dead")
        else:
            record.state, record.due = "delayed", again
            self.last += 1
            record.order = self.last

    def on_release(self, worker: str, now: float, record: Record) -> None:
        """Not done."""
        self.ended(record, contacted=True)
        self.first -= 1
        self.put_back(record)

    def on_prepare(self, worker: str, now: float, commit: int) -> int:
        """What is acked goes with this commit."""
        new = self.on_commit_prepared(worker, now)
        for record in self.acked(worker):
            record.commit = commit
        return new

    def on_commit_prepared(self, worker: str, now: float) -> int:
        """The commit was decided, if there was one."""
        prepared = [record for record in self.acked(worker) if record.commit is not None]
        assert all((record.commit or 0) <= self.crawl.decided.get(worker, 0) for record in prepared), "not committed"
        return self.done(prepared)

    def on_commit(self, worker: str, now: float, commit: int) -> int:
        """It is decided."""
        self.crawl.decided[worker] = commit
        return self.done(self.acked(worker))

    def done(self, records: Sequence[Record]) -> int:
        """They are done for good, and what was kept back is queued."""
        let_go = [each for each in self.kept if each[0] in records]
        for record in records:
            self.end(record, "done")
        self.kept = [each for each in self.kept if each not in let_go]
        return sum(self.found(home, link) for _, home, link in let_go)

    def found(self, home: int, link: Record) -> int:
        """A link is queued, or waits to be brought to its partition."""
        if home == self.number:
            return self.add(link)
        self.outboxes.setdefault(home, []).append(link)
        return 0

    def acked(self, worker: str) -> list[Record]:
        """Return what it has acked, and not committed."""
        return [each for each in self.live.values() if each.worker == worker and each.state == "uncommitted"]

    def bring(self, source: int, first: int, count: int) -> None:
        """Take what another partition sends, as far as it is new."""
        box = self.crawl.parts[source].outboxes.get(self.number, [])
        if first > self.taken[source] + 1:
            return
        for number in range(self.taken[source] + 1, first + count):
            self.taken[source] = number
            self.arrived += 1
            self.add(box[number - 1])

    # ------------------------------------------------------------------------------------------------------- records

    def add(self, record: Record) -> int:
        """Take it in, if it is new."""
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
        """To the front of its lane."""
        self.kept = [each for each in self.kept if each[0] is not record]
        record.state, record.worker, record.order, record.commit = "queued", "", self.first, None

    def end(self, record: Record, state: str) -> None:
        """Neither lent nor reverted any more."""
        assert record.number in self.live, f"{record} ends twice"
        del self.live[record.number]
        record.state, record.commit = state, None
        self.over[record.segment, state] += 1

    def wake(self, now: float) -> None:
        """What is due is queued."""
        due = [record for record in self.live.values() if record.state == "delayed" and record.due <= now]
        for record in sorted(due, key=lambda record: (record.due, record.order)):
            self.last += 1
            record.state, record.order = "queued", self.last

    # -------------------------------------------------------------------------------------------------------- leases

    def heads(self) -> dict[str, Record]:
        """Return the first record of each host that has one and may be lent it, were it its turn."""
        heads: dict[str, Record] = {}
        for record in self.live.values():
            if record.state == "queued" and self.may_be_lent(self.host(record.host)):
                head = heads.get(record.host)
                if head is None or record.place < head.place:
                    heads[record.host] = record
        return heads

    def has_work(self, host: Host) -> bool:
        """Whether something is queued for it."""
        return any(each.state == "queued" and self.hosts.get(each.host) is host for each in self.live.values())

    def ready(self, now: float) -> dict[str, Record]:
        """Return those whose turn it is."""
        heads = self.heads().items()
        return {name: head for name, head in heads if max(self.lease_at(self.host(name)), head.rank) <= now}

    def unit(self, name: str) -> str:
        """Return with which hosts it takes turns: those of its address, or only itself."""
        host = self.host(name)
        return host.address if self.group(host) else name

    def lend(self, worker: str, lent: Sequence[Lent], limit: int, now: float) -> None:
        """Check what was lent, one after the other, and that nothing was held back."""
        self.wake(now)
        before = self.ready(now)
        units = {self.unit(each.host) for each in lent}
        ranks = [self.lend_one(worker, each, now) for each in lent]
        for rank in ranks:
            passed = [head for name, head in before.items() if self.unit(name) not in units and head.rank < rank]
            assert not passed, f"{lent} are lent before {passed}"
        if len(lent) < limit:
            self.want(now)
            back = [(head, self.host(name)) for name, head in self.ready(now).items()]
            assert not back, f"at {now} these are held back: {back}, {self.groups}"

    def lend_one(self, worker: str, lent: Lent, now: float) -> float:
        """Check that it may be lent. Return its rank."""
        host, record = self.host(lent.host), lent.record
        first = self.heads().get(lent.host)
        assert first, f"{lent} is lent: there is nothing to be lent of {host}"
        assert first.rank <= self.latest, f"{lent}: its segment has not begun"
        assert not self.is_promised(host), f"{lent} is lent at {now} before a claim: {host}"
        assert (lent.address, lent.paced) == (host.address, self.delay(host) > 0)
        assert lent.known_until == host.known_until
        if record is None:
            assert lent.tries == host.tries[lent.kind]
            transfer = self.ask(worker, lent.host, lent.kind, now)
        else:
            transfer = record
            self.lend_page(worker, record, first, now)
        transfer.token, self.lent[lent.token] = lent.token, transfer
        return first.rank

    def lend_page(self, worker: str, record: Record, first: Record, now: float) -> None:
        """Check that it is the first one."""
        host = self.host(record.host)
        group = self.group(host)
        assert self.question(host, now) == PAGE, f"{record} is lent at {now}, and nobody knows: {host}"
        assert self.live.get(record.number) is record, f"{record} is lent, and over"
        assert record.state == "queued", f"{record} is lent"
        assert record.place == first.place, f"{record} is lent before {first}"
        record.state, record.worker, record.over = "leased", worker, False
        self.starts(record, now)
        host.row, host.yields_until = 0, 0.0
        if group:
            group.row = 0

    # ------------------------------------------------------------------------------------------------- what it tells

    @property
    def is_over(self) -> bool:
        """Nothing is live here."""
        return not self.live and not any(self.waiting(to) for to in self.outboxes)

    def waiting(self, to: int) -> int:
        """Return how many records for another partition it says it has."""
        return len(self.outboxes[to]) - self.brought[to]

    def counts(self) -> dict[str, Counter[str]]:
        """Return how much there is of what, for each segment; "" has what is in outboxes too."""
        counts: dict[str, Counter[str]] = {}
        for record in self.live.values():
            of = counts.setdefault(record.segment, Counter())
            of[record.state] += 1
            of["done"] += record.state == "uncommitted"
        for (segment, state), number in self.over.items():
            counts.setdefault(segment, Counter())[state] += number
        counts.setdefault("", Counter())["outgoing"] += sum(map(self.waiting, self.outboxes))
        return counts

    def due_at(self, now: float) -> float:
        """Return when something can be lent, as far as the clock decides that."""
        times = [max(self.lease_at(self.host(name)), head.rank) for name, head in self.heads().items()]
        times += [record.due for record in self.live.values() if record.state == "delayed"]
        return min(times, default=inf)


def told(segments: dict[str, dict[str, int]]) -> dict[str, Counter[str]]:
    """Return what a partition tells, as `Part.counts` does: without what is 0."""
    return trimmed({segment: Counter(counts) for segment, counts in segments.items()})


def trimmed(counts: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    """Leave out what is 0."""
    return {segment: +of for segment, of in counts.items() if +of}


def unknown(links: Iterable[Record], parts: Sequence[Part]) -> list[Record]:
    """Return those that no partition knows."""
    return [link for link in links if link.key is not None and not any(link.key in part.known for part in parts)]
