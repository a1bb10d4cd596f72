"""One random history, played on every frontier and on a small model of it (C6, F2-F7).

Pushes into segments of all kinds, leases, good and bad ends, late tokens, expiries, blocks, operations, clocks that
jump, commits and crashes, also in the middle of a commit. After every step everything that the frontier tells is
compared with the model, which shares no code with it: nothing is lent twice, nothing is lost, no host is asked too
soon, what is lent is what must come first. In the end whatever is left can be lent. What the embedded frontier does
seldom, it does all the time here: see `SMALL`.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lycosa.core import bloom
from lycosa.core.errors import UsageError
from lycosa.frontier import local, memory
from lycosa.frontier.core.model import Lease, Row, Selection, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.lsm import filters, levels, memtable, open_segment, store
from lycosa.frontier.lsm import frontier as embedded
from lycosa.frontier.lsm.wal import generations
from lycosa.frontier.operations import LocalOperations
from lycosa.http.core.model import Validators
from tests.conftest import PROVE
from tests.frontier.sim.frontier_model import Crawl, Key, Url, order, starts_at

HOSTS = [f"http://h{n}.example:80" for n in range(4)]
NUMBERS = 120
BUSY = (0, 1, 0, 0, 2, 0, 3, 0, 1, 0)
"""Which host a URL belongs to, by the last digit of its number: most have little, one has much."""

PRIORITIES = (0, -1, 0, 1, 1 << 40, -(1 << 40))
SEGMENTS = (
    "",
    "2026-11-21T10",
    "shop",
    "2026-11-21T09",
    "2026-11-21T11",
    "2026-11-21T13",
    "2026-11-21",
    "zoo",
    "2026-11-22",
)
START = starts_at("2026-11-21T10:30")
LEASE_S = 20.0
REASONS = ("200", "404", "not html")
JUMPS_S = (0.0, 0.25, 2.0, 2.0, 3.0, 10.0, 10.0, 25.0, 500.0, 3600.0, 7200.0, -0.25, -1.0, -1.25, -20.0, -7200.0)
END_S = 3 * 24 * 3600.0
ROUNDS_MAX = 2000
SMALL: dict[tuple[Any, str], float] = {
    (bloom, "FALSE_POSITIVES"): 0.5,
    (levels, "L0_MAX"): 15,
    (levels, "SCAN_ROWS"): 6,
    (memtable, "OVERLAY_MAX"): 30,
    (memtable, "SLICE_MIN"): 7,
    (memtable, "SLICE_MAX"): 14,
    (memtable, "ORDERED_MIN"): 3,
    (store, "BUFFER_MAX"): 4,
    (store, "BUFFER_MIN"): 2,
    (store, "BUFFERED_MAX"): 12,
    (store, "DELAYED_MAX"): 3,
    (open_segment, "RECENT_MAX"): 5,
    (filters, "ADDED_MAX"): 20,
    (embedded, "SCAN_ROWS"): 5,
}
"""By module and name, what is replaced so that what happens seldom happens often."""

EXPECTED = 8
"""URLs that a Bloom filter is first made for."""


class Killed(Exception):
    """The process ends here."""


@dataclass
class Opened:
    """A frontier with its operations; `kill_at` is the step at which it dies, and how often that may pass before."""

    folder: Path
    kill_at: tuple[str, int] | None = None
    frontier: Any = None
    operations: Any = None

    def on_step(self, name: str) -> None:
        """Die here, if that is what is wanted."""
        if self.kill_at is None or self.kill_at[0] != name:
            return
        self.kill_at = (name, self.kill_at[1] - 1)
        if self.kill_at[1] < 0:
            raise Killed(name)

    def use(self, frontier: Any) -> None:
        """This is the frontier now."""
        self.frontier, self.operations = frontier, LocalOperations(frontier)


def open_memory(opened: Opened, policy: Policy, now: float) -> None:
    """Make one in memory."""
    opened.use(memory.memory_frontier(policy))


def open_embedded(opened: Opened, policy: Policy, now: float) -> None:
    """Open what is in the folder."""
    path = opened.folder / "frontier"
    opened.use(embedded.embedded_frontier(path, policy, now=now, on_step=opened.on_step, expected=EXPECTED))


class Held(NamedTuple):
    """A URL of the model that is lent, with the lease of each frontier."""

    url: Url
    leases: list[Lease]


@dataclass
class Listing:
    """A listing that goes on while the frontier changes: what was there when it began."""

    afters: list[str | None]
    there: dict[Key, int]
    seen: list[list[Key]] = field(default_factory=list)


def number_of(record: UrlRecord) -> int:
    return int(record.url.rpartition("/")[2])


def host_of(number: int) -> str:
    return HOSTS[BUSY[number % 10]]


def fingerprint(number: int) -> int:
    return (number + 1) * 0x9E3779B97F4A7C15 % (1 << 64)


def key_of(record: UrlRecord) -> Key:
    return record.segment, number_of(record), record.dont_filter


def row_of(row: Row) -> tuple[Any, ...]:
    """Return what must be the same of a row in every back end: those that ended need not remember their attempts.

    Which one of two URLs is lent that were pushed whatever was known, nobody can tell.
    """
    record, state, at = row.record, str(row.state), row.at
    if record.dont_filter and state in ("queued", "leased"):
        state, at = "queued or leased", 0.0
    attempts = record.attempts if state not in ("done", "archived") else 0
    etag = record.validators.etag if record.validators else ""
    assert record.fingerprint == fingerprint(number_of(record))
    return key_of(record), record.host, record.priority, state, int(at), row.reason, attempts, etag


class FrontierHistory(RuleBasedStateMachine):
    """Plays on all `back_ends` what hypothesis thinks of. They must answer alike, and as the model says."""

    back_ends: ClassVar[Sequence[Callable[[Opened, Policy, float], None]]] = ()
    durable = False
    selected: ClassVar[Sequence[tuple[str, ...]]] = ((), ("dead",), ("done",), ("done", "dead"))

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for (module, name), value in SMALL.items():
            self.patch.setattr(module, name, value)
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.now = START
        self.held: list[Held] = []
        self.stale: list[Held] = []
        self.tokens: list[int] = []
        self.listing: Listing | None = None
        self.opened = [Opened(self.folder / str(n)) for n, _ in enumerate(self.back_ends)]
        self.model: Crawl | None = None

    @initialize(
        delay=st.sampled_from([0.0, 3.0]),
        places=st.sampled_from([1, 2, 3, 8]),
        forgets=st.booleans(),
        limit=st.sampled_from([1, 2, 7, 50]),
    )
    def start(self, delay: float, places: int, forgets: bool, limit: int) -> None:
        if forgets:
            self.patch.setattr(local, "HOSTS_KEPT_MAX", 2)
        self.policy = Policy(delay_s=delay, concurrency_per_host=places, lease_s=LEASE_S, robots=False)
        self.limit = limit
        self.model = Crawl(delay, places, LEASE_S, sure=not forgets)
        self.open()
        self.commit()

    # How it is played.

    def do(self, call: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(call)  # type: ignore[arg-type]

    def each(self, call: Callable[[Any, Any], Awaitable[Any]]) -> list[Any]:
        """Ask all back ends."""
        return [self.do(call(opened.frontier, opened.operations)) for opened in self.opened]

    def same(self, call: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        """Ask all back ends what they must answer alike."""
        first, *others = self.each(call)
        for other in others:
            assert other == first
        return first

    def settle(self, held: Held, method: str, *arguments: Any, **options: Any) -> list[Any]:
        """Come back with a lease."""
        calls = (
            getattr(opened.frontier, method)(lease, *arguments, **options)
            for opened, lease in zip(self.opened, held.leases, strict=True)
        )
        return [self.do(call) for call in calls]

    def open(self) -> None:
        for opened, open_ in zip(self.opened, self.back_ends, strict=True):
            open_(opened, self.policy, self.now)
        self.tokens = [0] * len(self.opened)
        self.committed = self.model.committed
        self.stale_before = len(self.stale)
        self.agree()
        self.lend(0)

    def record(self, number: int, segment: str, due: float = 0.0, *, unfiltered: bool = False) -> UrlRecord:
        host = host_of(number)
        url = f"{host.removesuffix(':80')}/{number}"
        priority = PRIORITIES[number // 20 % len(PRIORITIES)]
        return UrlRecord(1, fingerprint(number), url, host, segment, 0, priority, due, dont_filter=unfiltered)

    def pushed(self, records: list[UrlRecord]) -> int:
        """Tell the model. Return how many were new."""
        urls = (Url(number_of(each), each.segment, each.host, each.priority, each.dont_filter) for each in records)
        return sum(self.model.push(url, each.not_before) for url, each in zip(urls, records, strict=True))

    # What happens.

    @rule(
        pages=st.lists(st.tuples(st.integers(0, NUMBERS - 1), st.sampled_from(SEGMENTS)), max_size=12),
        wait=st.sampled_from([0.0, 0.0, 0.0, 5.0, 100.0, 5000.0, 90_000.0, -10.0]),
        unfiltered=st.sampled_from([False, False, False, True]),
    )
    def push(self, pages: list[tuple[int, str]], wait: float, unfiltered: bool) -> None:
        due = self.now + wait if wait else 0.0
        records = [self.record(number, segment, due, unfiltered=unfiltered) for number, segment in pages]
        assert self.same(lambda frontier, _: frontier.push(records)) == self.pushed(records)

    @rule(
        first=st.integers(0, NUMBERS - 1),
        count=st.integers(5, 40),
        step=st.sampled_from([1, 7]),
        segment=st.sampled_from(SEGMENTS[:3]),
        wait=st.sampled_from([0.0, 0.0, 0.0, 5.0]),
    )
    def push_many(self, first: int, count: int, step: int, segment: str, wait: float) -> None:
        self.push([((first + n * step) % NUMBERS, segment) for n in range(count)], wait, unfiltered=False)

    @rule(limit=st.integers(0, 12))
    def lend(self, limit: int) -> None:
        answers = self.each(lambda frontier, _: frontier.lease(limit, self.now))
        model = self.model
        model.wake(self.now)
        model.see(self.now)
        for leases in zip(*answers, strict=True):
            lease = leases[0]
            assert all(other.record == lease.record for other in leases)
            url = model.lend(key_of(lease.record), lease.record.host, lease.record.attempts)
            assert (lease.record.validators.etag if lease.record.validators else "") == url.etag
            assert {other.expires_at for other in leases} == {url.at}
            assert all(other.token > last for other, last in zip(leases, self.tokens, strict=True)), "an old token"
            self.tokens = [other.token for other in leases]
            self.held.append(Held(url, list(leases)))
        lent = len(answers[0])
        assert lent == limit or (lent < limit and not model.ready()), f"{model.ready()} could have been lent"

    def take(self, data: st.DataObject) -> Held:
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.stale.append(held)
        return held

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        children=st.lists(st.tuples(st.integers(0, NUMBERS - 1), st.sampled_from(SEGMENTS)), max_size=4),
        reason=st.sampled_from(REASONS),
        etag=st.sampled_from(["", '"a"', '"b"']),
    )
    def ack(self, data: st.DataObject, children: list[tuple[int, str]], reason: str, etag: str) -> None:
        held = self.take(data)
        records = [self.record(number, segment) for number, segment in children]
        validators = Validators(etag) if etag else None
        assert all(self.settle(held, "ack", reason, records, self.now, validators=validators))
        self.pushed(records)
        held.url.etag = etag
        held.url.become("done", self.now, reason)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), wait=st.sampled_from([-5.0, 0.0, 0.25, 0.5, 0.75, 3.0, 20.0, 50.0]))
    def nack(self, data: st.DataObject, wait: float) -> None:
        held = self.take(data)
        assert all(self.settle(held, "nack", "503", self.now + wait, self.now))
        self.model.retry(held.url, self.now + wait)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), reason=st.sampled_from(REASONS))
    def give_up(self, data: st.DataObject, reason: str) -> None:
        held = self.take(data)
        assert all(self.settle(held, "nack", reason, None, self.now))
        held.url.attempts += 1
        held.url.become("dead", self.now, reason)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        held = self.take(data)
        assert all(self.settle(held, "release", self.now))
        held.url.become("queued")

    @precondition(lambda self: self.held)
    @rule(data=st.data(), seconds=st.sampled_from([0.0, 5.0, 10.0]))
    def renew(self, data: st.DataObject, seconds: float) -> None:
        self.now += seconds
        held = data.draw(st.sampled_from(self.held))
        renewed = self.settle(held, "renew", self.now)
        self.model.see(self.now)
        held.url.at = self.model.seen + LEASE_S
        assert [lease.expires_at for lease in renewed] == [held.url.at] * len(renewed)

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def come_with_an_old_token(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.stale))
        records = [self.record(number, "") for number in range(3)]
        refused = self.settle(held, "ack", "200", records, self.now)
        refused += self.settle(held, "nack", "x", None, self.now)
        refused += self.settle(held, "nack", "x", self.now, self.now)
        refused += self.settle(held, "release", self.now)
        assert not any(refused)
        assert not any(self.settle(held, "renew", self.now))
        self.model.see(self.now)

    @rule(seconds=st.sampled_from([0.0, 5.0, 10.0, 15.0, 20.0]))
    def expire(self, seconds: float = 0.0) -> None:
        self.now += seconds
        late = self.model.expire(self.now)
        assert self.same(lambda frontier, _: frontier.expire(self.now)) == len(late)
        self.let_go(late)

    def let_go(self, urls: list[Url]) -> None:
        """These are lent no more."""
        self.stale += [held for held in self.held if held.url in urls]
        self.held = [held for held in self.held if held.url not in urls]

    @rule(host=st.sampled_from(HOSTS), wait=st.sampled_from([0.0, 0.5, 7.25, 40.0, 3000.0, 9000.0]))
    def block(self, host: str, wait: float) -> None:
        self.each(lambda frontier, _: frontier.block_host(host, self.now + wait))
        self.model.block(host, self.now + wait)

    @rule(seconds=st.sampled_from(JUMPS_S))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(seconds=st.sampled_from([0.0, 0.25, 0.5, 2.0, 3.0, 10.0]), limit=st.integers(1, 12))
    def lend_later(self, seconds: float, limit: int) -> None:
        self.now += seconds
        self.lend(limit)

    @rule(items=st.sampled_from([0, 10]))
    def commit(self, items: int = 10) -> None:
        position = self.model.position + items
        self.each(lambda frontier, _: frontier.commit({"items": position}))
        self.model.commit(position)

    @rule()
    def next_ready(self) -> None:
        self.lend(0)
        low, high = self.model.next_ready()
        for opened in self.opened:
            at = opened.frontier.next_ready(self.now)
            if low is None or high is None:
                assert at is None or self.model.vague
                continue
            assert at is not None
            assert at <= max(high, self.model.seen)
            assert at >= min(low, self.model.seen) or self.model.vague or at == 0.0 >= low - self.model.seen

    @rule(data=st.data(), segment=st.sampled_from([None, None, *SEGMENTS]), limit=st.integers(1, 5))
    def requeue(self, data: st.DataObject, segment: str | None, limit: int) -> None:
        states = data.draw(st.sampled_from(self.selected))
        into = data.draw(st.sampled_from([None, None, None, *SEGMENTS]))
        self.requeue_all(Selection(states=states, segment=segment), into, limit)

    def requeue_all(self, selection: Selection, into: str | None, limit: int) -> None:
        model = self.model
        wanted = selection.states or ("done", "dead", "archived")
        chosen = [url for url in model.urls if url.state in ("done", "dead") and model.word(url) in wanted]
        chosen = [url for url in chosen if selection.segment in (None, url.segment)]
        assert self.same(lambda _, operations: moved_in_all(operations, selection, into, limit)) == (
            model.requeue(chosen, into)
        )

    @rule(segment=st.sampled_from(SEGMENTS))
    def archive(self, segment: str) -> None:
        known = self.model.segments.get(segment)
        if known is None or known.state == "dropped":
            for opened in self.opened:
                with pytest.raises(UsageError):
                    self.do(opened.operations.archive(segment))
            return
        assert self.same(lambda _, operations: operations.archive(segment)) == self.model.archive(segment)

    @rule(segment=st.sampled_from(SEGMENTS))
    def drop(self, segment: str) -> None:
        known = self.model.segments.get(segment)
        if known is None or known.state == "dropped":
            for opened in self.opened:
                with pytest.raises(UsageError):
                    self.do(opened.operations.drop(segment))
            return
        lent = [url for url in self.model.inside(segment) if url.state == "leased"]
        assert self.same(lambda _, operations: operations.drop(segment)) == self.model.drop(segment)
        self.let_go(lent)

    @rule(limit=st.integers(1, 9))
    def list_on(self, limit: int) -> None:
        """Read on in a listing that may have begun long ago."""
        if self.listing is None:
            there = {url.key: url.moves for url in self.model.urls if not url.unfiltered}
            self.listing = Listing([""] * len(self.opened), there, [[] for _ in self.opened])
        listing = self.listing
        for n, opened in enumerate(self.opened):
            after = listing.afters[n]
            if after is not None:
                rows, listing.afters[n] = self.do(opened.operations.rows(Selection(), after, limit))
                listing.seen[n] += [key_of(row.record) for row in rows]
        if not any(after is not None for after in listing.afters):
            now = {url.key: url.moves for url in self.model.urls}
            unmoved = {key for key, moves in listing.there.items() if now.get(key) == moves}
            for seen in listing.seen:
                assert sorted(key for key in seen if key in unmoved) == sorted(unmoved)
            self.listing = None

    @rule(number=st.integers(0, NUMBERS - 1), told=st.booleans())
    def find(self, number: int, told: bool) -> None:
        host = host_of(number) if told else ""
        expected = [self.row(url) for url in self.model.find(number)]
        for rows in self.each(lambda _, operations: operations.find(fingerprint(number), host)):
            assert [row_of(row) for row in rows] == expected

    @rule(segment=st.sampled_from(SEGMENTS))
    def known(self, segment: str) -> None:
        """What is called known must be; not all that is needs to be called so."""
        prints = [fingerprint(number) for number in range(NUMBERS)]
        for opened in self.opened:
            found = opened.frontier.known(segment, prints)
            dropped = segment in self.model.segments and self.model.segments[segment].state == "dropped"
            assert not dropped or not found
            assert found <= {fingerprint(number) for number in self.model.known(segment)}

    # What must hold all the time.

    @invariant()
    def agree(self) -> None:
        """Compare everything that the frontiers tell with the model."""
        if self.model is None or self.opened[0].frontier is None:
            return
        model = self.model
        rows = sorted(map(self.row, model.urls))
        dead = sorted(url.key for url in model.urls if url.state == "dead")
        for opened in self.opened:
            counts, expected = self.counts(self.do(opened.frontier.stats())), self.expected_counts()
            assert counts == expected, f"{counts}, not {expected}"
            for view, described in zip(self.do(opened.operations.segments()), self.segments(opened), strict=True):
                assert view == described
            assert self.do(opened.frontier.positions()) == {"items": model.position} or not model.position
            found = [row_of(row) for row in self.do(all_rows(opened.operations, self.limit))]
            assert sorted(found) == rows
            assert sorted(key_of(record) for record, _ in self.do(opened.frontier.dead(1000))) == dead
            assert len(self.do(opened.frontier.dead(self.limit))) == min(self.limit, len(dead))

    @staticmethod
    def counts(stats: Any) -> tuple[Any, ...]:
        return (
            stats.queued,
            stats.leased,
            stats.delayed,
            stats.done,
            stats.dead,
            dict(stats.reasons),
            dict(stats.dead_reasons),
        )

    def expected_counts(self) -> tuple[Any, ...]:
        model = self.model
        return (
            model.count("queued"),
            model.count("leased"),
            model.count("delayed", "retry"),
            model.count("done"),
            model.count("dead"),
            model.reasons("done"),
            model.reasons("dead"),
        )

    def segments(self, opened: Opened) -> list[Any]:
        """Return what the segments are, as views."""
        views = self.do(opened.operations.segments())
        live = sorted(
            (each for each in self.model.segments.values() if each.state != "dropped"),
            key=lambda each: order(each.name),
        )
        gone = sorted(
            (each for each in self.model.segments.values() if each.state == "dropped"),
            key=lambda each: order(each.name),
        )
        return [self.view(type(views[0]), each) for each in (*live, *gone)]

    def view(self, kind: Any, segment: Any) -> Any:
        urls = self.model.inside(segment.name)
        counts = [
            sum(url.state in states for url in urls)
            for states in (("queued",), ("leased",), ("delayed", "retry"), ("done",), ("dead",))
        ]
        reasons = self.model.reasons("done", urls), self.model.reasons("dead", urls)
        return kind(segment.name, self.model.segment_word(segment), starts_at(segment.name), *counts, *reasons)

    def row(self, url: Url) -> tuple[Any, ...]:
        state, at = self.model.word(url), url.at
        if url.unfiltered and state in ("queued", "leased"):
            state, at = "queued or leased", 0.0
        attempts = url.attempts if state not in ("done", "archived") else 0
        return url.key, url.host, url.priority, state, int(at), url.reason, attempts, url.etag

    def verify(self) -> None:
        for problems in self.each(lambda _, operations: operations.verify(lambda _: None)):
            assert problems == []

    def lend_the_rest(self) -> None:
        """After a bounded time nothing may be left that cannot be lent."""
        self.now = max(self.now, START) + END_S
        self.expire()
        for _ in range(ROUNDS_MAX):
            self.lend(12)
            for held in self.held:
                assert all(self.settle(held, "ack", "200", [], self.now))
                held.url.etag = ""
                held.url.become("done", self.now, "200")
            self.held.clear()
            if not self.model.count("queued", "delayed", "retry"):
                return
            self.now += 4.0
        raise AssertionError("it never ends")

    def teardown(self) -> None:
        try:
            if self.model is not None and sys.exc_info()[0] is None:
                self.lend_the_rest()
                self.agree()
                self.verify()
        finally:
            for opened in self.opened:
                if opened.frontier is not None:
                    self.do(opened.frontier.close())
            self.loop.close()
            shutil.rmtree(self.folder)
            self.patch.undo()


async def all_rows(operations: Any, limit: int) -> list[Row]:
    found: list[Row] = []
    after: str | None = ""
    while after is not None:
        rows, after = await operations.rows(Selection(), after, limit)
        assert len(rows) <= limit
        found += rows
    return found


async def moved_in_all(operations: Any, selection: Selection, into: str | None, limit: int) -> int:
    total, after = 0, ""
    while True:
        moved, following = await operations.requeue(selection, into, 0.0, after, limit)
        total += moved
        if following is None:
            return total
        after = following


class DurableHistory(FrontierHistory):
    """With processes that end in many ways."""

    def reopen(self) -> None:
        """A new process finds what the model says, with all leases void.

        A process that never committed anything leaves no trace: not even its tokens are known.
        """
        self.stale += self.held
        self.held.clear()
        if self.model.committed is self.committed:
            del self.stale[self.stale_before :]
        self.model = self.model.crashed(self.now)
        self.listing = None
        self.open()

    def close(self) -> None:
        for opened in self.opened:
            frontier, opened.frontier = opened.frontier, None
            self.do(frontier.close())

    @rule()
    def crash(self) -> None:
        """Back to the last commit."""
        self.close()
        self.reopen()

    @rule()
    def end(self) -> None:
        """Go on from here."""
        self.commit()
        self.close()
        self.reopen()

    @rule(step=st.sampled_from(memtable.STEPS), before=st.integers(0, 2))
    def crash_in_a_commit(self, step: str, before: int) -> None:
        """Whatever the step, what was to be committed is."""
        self.die(step, before, lambda opened, position: opened.frontier.commit({"items": position}))

    @rule(step=st.sampled_from(memtable.STEPS), before=st.integers(0, 2))
    def crash_while_all_is_written(self, step: str, before: int) -> None:
        """As before, and LMDB takes over everything."""

        async def all_of_it(opened: Opened, position: int) -> None:
            await opened.frontier.commit({"items": position})
            await opened.operations.verify(lambda _: None)

        self.die(step, before, all_of_it)

    def die(self, step: str, before: int, end: Callable[[Opened, int], Awaitable[None]]) -> None:
        position = self.model.position + 10
        for opened in self.opened:
            opened.kill_at = (step, before)
            with suppress(Killed):
                self.do(end(opened, position))
            opened.kill_at = None
        self.model.commit(position)
        self.close()
        self.reopen()

    @rule(data=st.data())
    def crash_in_the_middle_of_a_frame(self, data: st.DataObject) -> None:
        """A frame that is not whole is not there."""
        for opened in self.opened:
            path = opened.frontier.store.path
            journal = path / f"journal.{generations(path)[-1]}"
            before = journal.stat().st_size
            opened.kill_at = ("frame written", 0)
            with pytest.raises(Killed):
                self.do(opened.frontier.commit({"items": self.model.position + 10}))
            opened.kill_at = None
            whole = journal.stat().st_size
            with journal.open("r+b") as stream:
                stream.truncate(data.draw(st.integers(before, whole - 1)))
        self.close()
        self.reopen()

    @rule()
    def compact(self) -> None:
        """What is not committed becomes durable too."""
        self.each(lambda _, operations: operations.compact())
        self.model.commit(self.model.position)

    @rule()
    def verify_all(self) -> None:
        """What is not committed becomes durable too."""
        self.verify()
        self.model.commit(self.model.position)


def settings_for(examples: int) -> settings:
    return settings(
        max_examples=80 * examples if PROVE else examples,
        stateful_step_count=60,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


class MemoryHistory(FrontierHistory):
    back_ends = (open_memory,)


class EmbeddedHistory(DurableHistory):
    back_ends = (open_embedded,)


class BothHistory(FrontierHistory):
    """Those that are requeued at once come in the order of each back end's own, so one state at a time."""

    back_ends = (open_memory, open_embedded)
    selected = (("dead",), ("done",))


@contextmanager
def played(**options: Any) -> Iterator[BothHistory]:
    """Play a history that somebody thought of."""
    history = BothHistory()
    try:
        history.start(**{"delay": 0.0, "places": 8, "forgets": True, "limit": 50, **options})
        yield history
    finally:
        history.teardown()


def test_a_pause_that_nobody_knows_the_clock_of_gets_no_shorter() -> None:
    """By the clock that was set back it ends behind the longest pause that a newer clock may ask for."""
    with played() as history:
        history.push([(0, ""), (2, "")], 0.0, unfiltered=False)
        history.lend(1)
        history.time_passes(-20.0)
        history.block(HOSTS[0], 9000.0)
        for seconds in (0.0, 7200.0, 1760.0):
            history.lend_later(seconds, 1)
            history.next_ready()
        assert len(history.held) == 1
        history.lend_later(20.0, 1)
        assert len(history.held) == 2


def forgotten(history: BothHistory) -> None:
    """Let all hosts owe a pause that is remembered, and forget them when it is over."""
    for host in HOSTS:
        history.block(host, 40.0)
    history.lend(0)
    history.commit()
    history.lend_later(500.0, 0)
    history.commit()


@pytest.mark.parametrize("see", ["expire", "lend_later"])
def test_a_forgotten_host_rests_for_an_hour_at_most_whoever_sees_first_that_the_clock_was_set_back(see: str) -> None:
    with played() as history:
        forgotten(history)
        history.expire(-7200.0) if see == "expire" else history.lend_later(-7200.0, 0)
        history.push([(0, "")], 0.0, unfiltered=False)
        history.next_ready()
        history.lend_later(3600.0, 1)
        assert len(history.held) == 1


def test_a_host_may_rest_again_when_it_was_forgotten_after_the_clock_was_set_back() -> None:
    """What is remembered of it was not moved with its pause: it may outlast a turn that the host had since."""
    with played() as history:
        for host in HOSTS:
            history.block(host, 40.0)
        history.commit()
        history.lend(0)
        history.lend_later(-20.0, 0)
        history.push([(0, "")], 0.0, unfiltered=False)
        history.lend_later(40.0, 1)
        (held,) = history.held
        assert all(history.settle(held, "ack", "200", [], history.now))
        held.url.become("done", history.now, "200")
        history.held.clear()
        history.commit()
        history.push([(2, "")], 0.0, unfiltered=False)
        history.next_ready()
        history.lend_later(20.0, 1)
        assert len(history.held) == 1


def test_a_torn_frame_alone_in_its_journal_is_forgotten_when_it_is_found(tmp_path: Path) -> None:
    """Once another journal followed it, it would be taken for damage, and the state be refused for ever."""
    (tmp_path / "journal.1").write_bytes(b"torn")
    for _ in range(2):
        frontier = embedded.embedded_frontier(tmp_path, Policy())
        assert asyncio.run(frontier.stats()).unfinished == 0
        asyncio.run(frontier.close())


def test_what_is_lent_behind_better_ones_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The window on a host's queue begins anew before what is lent, and comes across it on the disk."""
    monkeypatch.setattr(store, "BUFFER_MAX", 4)

    async def story() -> None:
        frontier = embedded.embedded_frontier(tmp_path, Policy(robots=False, concurrency_per_host=100))
        await frontier.push([UrlRecord(1, n, f"{HOSTS[0]}/{n}", HOSTS[0]) for n in range(3)])
        lent = await frontier.lease(3, START)
        await frontier.push([UrlRecord(1, n, f"{HOSTS[0]}/{n}", HOSTS[0], priority=1) for n in range(3, 20)])
        assert await LocalOperations(frontier).verify(lambda _: None) == []
        lent += await frontier.lease(100, START)
        assert sorted(lease.record.fingerprint for lease in lent) == list(range(20))
        await frontier.close()

    asyncio.run(story())


def test_what_is_released_behind_better_ones_is_lent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies on the disk behind the window, which reads on to it: it must not be in memory too."""
    monkeypatch.setattr(store, "BUFFER_MAX", 4)

    async def story() -> None:
        frontier = embedded.embedded_frontier(tmp_path, Policy(robots=False, concurrency_per_host=100))
        await frontier.push([UrlRecord(1, 0, f"{HOSTS[0]}/0", HOSTS[0])])
        (early,) = await frontier.lease(1, START)
        await frontier.push([UrlRecord(1, n, f"{HOSTS[0]}/{n}", HOSTS[0], priority=1) for n in range(1, 20)])
        assert await LocalOperations(frontier).verify(lambda _: None) == []
        await frontier.release(early, START)
        lent = await frontier.lease(100, START)
        assert sorted(lease.record.fingerprint for lease in lent) == list(range(20))
        await frontier.close()

    asyncio.run(story())


def test_long_urls_go_to_the_disk_after_fewer_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory, and the journal that the next opening reads, are bounded in bytes too."""
    monkeypatch.setattr(memtable, "OVERLAY_MAX_BYTES", 100_000)

    async def story() -> None:
        frontier = embedded.embedded_frontier(tmp_path, Policy(robots=False))
        for n in range(100):
            await frontier.push([UrlRecord(1, n, f"{HOSTS[0]}/{'u' * 8000}{n}", HOSTS[0])])
            await frontier.commit({})
        await frontier.close()

    asyncio.run(story())
    assert sum(journal.stat().st_size for journal in tmp_path.glob("journal.*")) < 300_000


@pytest.mark.parametrize("layers", [1, bloom.LAYERS_MAX])
def test_no_url_is_lost_to_a_filter_that_takes_half_of_the_new_ones_for_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: int
) -> None:
    """Batches with 40 % duplicates, commits and new processes; the filter alone would drop every second URL."""
    seed, count = random.randrange(1 << 32), 100_000 if PROVE else 3000
    print("seed", seed)
    chance = random.Random(seed)
    for (module, name), value in (SMALL | {(bloom, "LAYERS_MAX"): layers}).items():
        monkeypatch.setattr(module, name, value)

    async def story() -> None:
        known: set[int] = set()
        while len(known) < count:
            frontier = embedded.embedded_frontier(tmp_path, Policy(), expected=count // 10)
            while chance.random() < 0.8:
                numbers = [chance.randrange(round(count * 1.2)) for _ in range(60)]
                records = [UrlRecord(1, fingerprint(n), f"{HOSTS[0]}/{n}", HOSTS[0]) for n in numbers]
                assert await frontier.push(records) == len({*numbers} - known)
                known.update(numbers)
                await frontier.commit({})
            stats = await frontier.stats()
            assert stats.queued == len(known)
            await frontier.close()
        frontier = embedded.embedded_frontier(tmp_path, Policy(), expected=count // 10)
        assert await LocalOperations(frontier).verify(lambda _: None) == []
        fresh = [UrlRecord(1, fingerprint(-n), f"{HOSTS[0]}/{-n}", HOSTS[0]) for n in range(2, 1002)]
        before = await frontier.stats()
        assert await frontier.push(fresh) == len(fresh)
        settled = (await frontier.stats()).lookups_settled - before.lookups_settled
        assert settled <= 600, "the filter was not as bad as it should have been"
        await frontier.close()

    asyncio.run(story())


MemoryHistory.TestCase.settings = settings_for(15)
EmbeddedHistory.TestCase.settings = settings_for(30)
BothHistory.TestCase.settings = settings_for(15)
TestMemoryFrontier = MemoryHistory.TestCase
TestEmbeddedFrontier = EmbeddedHistory.TestCase
TestBothFrontiers = BothHistory.TestCase
