"""One random history, run on every frontier and on a small model of it (C6, F2-F7).

A history consists of pushes into segments of all kinds, leases, good and bad ends, old tokens, expiries, blocks,
operations, clocks that jump, commits, and crashes, also in the middle of a commit. After every step everything the
frontier reports is compared with the model, which shares no code with the frontier: nothing is leased twice, nothing is
lost, no host is contacted too soon, and URLs are leased in the required order. In the end everything that is left can
be leased. Events that are rare in the embedded frontier happen all the time here: see `SMALL`.
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
HOST_BY_DIGIT = (0, 1, 0, 0, 2, 0, 3, 0, 1, 0)
"""Index of the host of a URL, by the last digit of its number: one host has most URLs."""

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
    "2026-11-21+3d",
    "2026-11-24+3d",
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
    (memtable, "MEMTABLE_MAX"): 30,
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
"""Replaced constants, by module and name, so that rare events become frequent."""

EXPECTED = 8
"""URLs that the first Bloom filter is sized for."""


class Killed(Exception):
    """The process is killed here."""


@dataclass
class OpenFrontier:
    """A frontier with its operations.

    `kill_at` holds the step at which the process is killed, and how many times it passes this step before that.
    """

    folder: Path
    kill_at: tuple[str, int] | None = None
    frontier: Any = None
    operations: Any = None

    def on_step(self, name: str) -> None:
        """Raise `Killed` if this is the chosen step."""
        if self.kill_at is None or self.kill_at[0] != name:
            return
        self.kill_at = (name, self.kill_at[1] - 1)
        if self.kill_at[1] < 0:
            raise Killed(name)

    def use(self, frontier: Any) -> None:
        """Take this frontier."""
        self.frontier, self.operations = frontier, LocalOperations(frontier)


def open_memory(opened: OpenFrontier, policy: Policy, now: float) -> None:
    """Open a frontier in memory."""
    opened.use(memory.memory_frontier(policy))


def open_embedded(opened: OpenFrontier, policy: Policy, now: float) -> None:
    """Open the embedded frontier of the folder."""
    path = opened.folder / "frontier"
    opened.use(embedded.embedded_frontier(path, policy, now=now, on_step=opened.on_step, expected=EXPECTED))


class LeasedUrl(NamedTuple):
    """A leased URL of the model, with the lease of each frontier."""

    url: Url
    leases: list[Lease]


@dataclass
class Listing:
    """A listing that continues while the frontier changes. `there` holds the URLs at its start, with their `moves`."""

    afters: list[str | None]
    there: dict[Key, int]
    seen: list[list[Key]] = field(default_factory=list)


def number_of(record: UrlRecord) -> int:
    return int(record.url.rpartition("/")[2])


def host_of(number: int) -> str:
    return HOSTS[HOST_BY_DIGIT[number % 10]]


def fingerprint(number: int) -> int:
    return (number + 1) * 0x9E3779B97F4A7C15 % (1 << 64)


def key_of(record: UrlRecord) -> Key:
    return record.segment, number_of(record), record.dont_filter


def row_of(row: Row) -> tuple[Any, ...]:
    """Return the part of a row that is equal in every back end: finished URLs need not keep their attempts.

    Of two URLs pushed without the duplicate filter, either may be the leased one.
    """
    record, state, at = row.record, str(row.state), row.at
    if record.dont_filter and state in ("queued", "leased"):
        state, at = "queued or leased", 0.0
    attempts = record.attempts if state not in ("done", "archived") else 0
    etag = record.validators.etag if record.validators else ""
    assert record.fingerprint == fingerprint(number_of(record))
    return key_of(record), record.host, record.priority, state, int(at), row.reason, attempts, etag


class FrontierHistory(RuleBasedStateMachine):
    """Runs the rules on all `back_ends`, which must give the same answers as each other and as the model."""

    back_ends: ClassVar[Sequence[Callable[[OpenFrontier, Policy, float], None]]] = ()
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
        self.leased: list[LeasedUrl] = []
        self.ended: list[LeasedUrl] = []
        self.tokens: list[int] = []
        self.listing: Listing | None = None
        self.opened = [OpenFrontier(self.folder / str(n)) for n, _ in enumerate(self.back_ends)]
        self.model: Crawl | None = None

    @initialize(
        delay=st.sampled_from([0.0, 3.0]),
        concurrency=st.sampled_from([1, 2, 3, 8]),
        unloads=st.booleans(),
        limit=st.sampled_from([1, 2, 7, 50]),
    )
    def start(self, delay: float, concurrency: int, unloads: bool, limit: int) -> None:
        if unloads:
            self.patch.setattr(local, "HOSTS_KEPT_MAX", 2)
        self.policy = Policy(delay_s=delay, concurrency_per_host=concurrency, lease_s=LEASE_S, robots=False)
        self.limit = limit
        self.model = Crawl(delay, concurrency, LEASE_S, exact=not unloads)
        self.open()
        self.commit()

    # Helpers.

    def do(self, call: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(call)  # type: ignore[arg-type]

    def each(self, call: Callable[[Any, Any], Awaitable[Any]]) -> list[Any]:
        """Call all back ends and return their results."""
        return [self.do(call(opened.frontier, opened.operations)) for opened in self.opened]

    def same(self, call: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        """Call all back ends, check that the results are equal, and return the result."""
        first, *others = self.each(call)
        for other in others:
            assert other == first
        return first

    def end_lease(self, leased: LeasedUrl, method: str, *arguments: Any, **options: Any) -> list[Any]:
        """Call a method of each back end with its lease."""
        calls = (
            getattr(opened.frontier, method)(lease, *arguments, **options)
            for opened, lease in zip(self.opened, leased.leases, strict=True)
        )
        return [self.do(call) for call in calls]

    def open(self) -> None:
        for opened, open_ in zip(self.opened, self.back_ends, strict=True):
            open_(opened, self.policy, self.now)
        self.tokens = [0] * len(self.opened)
        self.committed = self.model.committed
        self.ended_before = len(self.ended)
        self.check_agreement()
        self.lease(0)

    def record(self, number: int, segment: str, due: float = 0.0, *, unfiltered: bool = False) -> UrlRecord:
        host = host_of(number)
        url = f"{host.removesuffix(':80')}/{number}"
        priority = PRIORITIES[number // 20 % len(PRIORITIES)]
        return UrlRecord(1, fingerprint(number), url, host, segment, 0, priority, due, dont_filter=unfiltered)

    def push_to_model(self, records: list[UrlRecord]) -> int:
        """Push records to the model. Return the number of new ones."""
        urls = (Url(number_of(each), each.segment, each.host, each.priority, each.dont_filter) for each in records)
        return sum(self.model.push(url, each.not_before) for url, each in zip(urls, records, strict=True))

    # The rules.

    @rule(
        pages=st.lists(st.tuples(st.integers(0, NUMBERS - 1), st.sampled_from(SEGMENTS)), max_size=12),
        wait=st.sampled_from([0.0, 0.0, 0.0, 5.0, 100.0, 5000.0, 90_000.0, -10.0]),
        unfiltered=st.sampled_from([False, False, False, True]),
    )
    def push(self, pages: list[tuple[int, str]], wait: float, unfiltered: bool) -> None:
        due = self.now + wait if wait else 0.0
        records = [self.record(number, segment, due, unfiltered=unfiltered) for number, segment in pages]
        assert self.same(lambda frontier, _: frontier.push(records)) == self.push_to_model(records)

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
    def lease(self, limit: int) -> None:
        answers = self.each(lambda frontier, _: frontier.lease(limit, self.now))
        model = self.model
        model.promote_due(self.now)
        model.update_clock(self.now)
        for leases in zip(*answers, strict=True):
            lease = leases[0]
            assert all(other.record == lease.record for other in leases)
            url = model.lease(key_of(lease.record), lease.record.host, lease.record.attempts)
            assert (lease.record.validators.etag if lease.record.validators else "") == url.etag
            assert {other.expires_at for other in leases} == {url.at}
            assert all(other.token > last for other, last in zip(leases, self.tokens, strict=True)), "an old token"
            self.tokens = [other.token for other in leases]
            self.leased.append(LeasedUrl(url, list(leases)))
        count = len(answers[0])
        assert count == limit or (count < limit and not model.ready()), f"{model.ready()} could have been leased"

    def take(self, data: st.DataObject) -> LeasedUrl:
        leased = self.leased.pop(data.draw(st.integers(0, len(self.leased) - 1)))
        self.ended.append(leased)
        return leased

    @precondition(lambda self: self.leased)
    @rule(
        data=st.data(),
        children=st.lists(st.tuples(st.integers(0, NUMBERS - 1), st.sampled_from(SEGMENTS)), max_size=4),
        reason=st.sampled_from(REASONS),
        etag=st.sampled_from(["", '"a"', '"b"']),
    )
    def ack(self, data: st.DataObject, children: list[tuple[int, str]], reason: str, etag: str) -> None:
        leased = self.take(data)
        records = [self.record(number, segment) for number, segment in children]
        validators = Validators(etag) if etag else None
        assert all(self.end_lease(leased, "ack", reason, records, self.now, validators=validators))
        self.push_to_model(records)
        leased.url.etag = etag
        leased.url.become("done", self.now, reason)

    @precondition(lambda self: self.leased)
    @rule(data=st.data(), wait=st.sampled_from([-5.0, 0.0, 0.25, 0.5, 0.75, 3.0, 20.0, 50.0]))
    def nack(self, data: st.DataObject, wait: float) -> None:
        leased = self.take(data)
        assert all(self.end_lease(leased, "nack", "503", self.now + wait, self.now))
        self.model.retry(leased.url, self.now + wait)

    @precondition(lambda self: self.leased)
    @rule(data=st.data(), reason=st.sampled_from(REASONS))
    def give_up(self, data: st.DataObject, reason: str) -> None:
        leased = self.take(data)
        assert all(self.end_lease(leased, "nack", reason, None, self.now))
        leased.url.attempts += 1
        leased.url.become("dead", self.now, reason)

    @precondition(lambda self: self.leased)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        leased = self.take(data)
        assert all(self.end_lease(leased, "release", self.now))
        leased.url.become("queued")

    @precondition(lambda self: self.leased)
    @rule(data=st.data(), seconds=st.sampled_from([0.0, 5.0, 10.0]))
    def renew(self, data: st.DataObject, seconds: float) -> None:
        self.now += seconds
        leased = data.draw(st.sampled_from(self.leased))
        renewed = self.end_lease(leased, "renew", self.now)
        self.model.update_clock(self.now)
        leased.url.at = self.model.clock + LEASE_S
        assert [lease.expires_at for lease in renewed] == [leased.url.at] * len(renewed)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def use_old_token(self, data: st.DataObject) -> None:
        leased = data.draw(st.sampled_from(self.ended))
        records = [self.record(number, "") for number in range(3)]
        refused = self.end_lease(leased, "ack", "200", records, self.now)
        refused += self.end_lease(leased, "nack", "x", None, self.now)
        refused += self.end_lease(leased, "nack", "x", self.now, self.now)
        refused += self.end_lease(leased, "release", self.now)
        assert not any(refused)
        assert not any(self.end_lease(leased, "renew", self.now))
        self.model.update_clock(self.now)

    @rule(seconds=st.sampled_from([0.0, 5.0, 10.0, 15.0, 20.0]))
    def expire(self, seconds: float = 0.0) -> None:
        self.now += seconds
        expired = self.model.expire(self.now)
        assert self.same(lambda frontier, _: frontier.expire(self.now)) == len(expired)
        self.end_leases_of(expired)

    def end_leases_of(self, urls: list[Url]) -> None:
        """Record that the leases of these URLs are over."""
        self.ended += [leased for leased in self.leased if leased.url in urls]
        self.leased = [leased for leased in self.leased if leased.url not in urls]

    @rule(host=st.sampled_from(HOSTS), wait=st.sampled_from([0.0, 0.5, 7.25, 40.0, 3000.0, 9000.0]))
    def block(self, host: str, wait: float) -> None:
        self.each(lambda frontier, _: frontier.block_host(host, self.now + wait))
        self.model.block(host, self.now + wait)

    @rule(seconds=st.sampled_from(JUMPS_S))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(seconds=st.sampled_from([0.0, 0.25, 0.5, 2.0, 3.0, 10.0]), limit=st.integers(1, 12))
    def lease_later(self, seconds: float, limit: int) -> None:
        self.now += seconds
        self.lease(limit)

    @rule(items=st.sampled_from([0, 10]))
    def commit(self, items: int = 10) -> None:
        position = self.model.position + items
        self.each(lambda frontier, _: frontier.commit({"items": position}))
        self.model.commit(position)

    @rule()
    def next_ready(self) -> None:
        self.lease(0)
        low, high = self.model.next_ready()
        for opened in self.opened:
            at = opened.frontier.next_ready(self.now)
            if low is None or high is None:
                assert at is None or self.model.uncertain
                continue
            assert at is not None
            assert at <= max(high, self.model.clock)
            assert at >= min(low, self.model.clock) or self.model.uncertain or at == 0.0 >= low - self.model.clock

    @rule(data=st.data(), segment=st.sampled_from([None, None, *SEGMENTS]), limit=st.integers(1, 5))
    def requeue(self, data: st.DataObject, segment: str | None, limit: int) -> None:
        states = data.draw(st.sampled_from(self.selected))
        target = data.draw(st.sampled_from([None, None, None, *SEGMENTS]))
        self.requeue_all(Selection(states=states, segment=segment), target, limit)

    def requeue_all(self, selection: Selection, target: str | None, limit: int) -> None:
        model = self.model
        states = selection.states or ("done", "dead", "archived")
        chosen = [url for url in model.urls if url.state in ("done", "dead") and model.state_of(url) in states]
        chosen = [url for url in chosen if selection.segment in (None, url.segment)]
        assert self.same(lambda _, operations: requeued_in_total(operations, selection, target, limit)) == (
            model.requeue(chosen, target)
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
        leased = [url for url in self.model.inside(segment) if url.state == "leased"]
        assert self.same(lambda _, operations: operations.drop(segment)) == self.model.drop(segment)
        self.end_leases_of(leased)

    @rule(limit=st.integers(1, 9))
    def continue_listing(self, limit: int) -> None:
        """Read the next rows of a listing that may have started long ago."""
        if self.listing is None:
            urls_at_start = {url.key: url.moves for url in self.model.urls if not url.unfiltered}
            self.listing = Listing([""] * len(self.opened), urls_at_start, [[] for _ in self.opened])
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

    @rule(number=st.integers(0, NUMBERS - 1), with_host=st.booleans())
    def find(self, number: int, with_host: bool) -> None:
        host = host_of(number) if with_host else ""
        expected = [self.row(url) for url in self.model.find(number)]
        for rows in self.each(lambda _, operations: operations.find(fingerprint(number), host)):
            assert [row_of(row) for row in rows] == expected

    @rule(segment=st.sampled_from(SEGMENTS))
    def known(self, segment: str) -> None:
        """Every fingerprint reported as known is known; the converse need not hold."""
        prints = [fingerprint(number) for number in range(NUMBERS)]
        for opened in self.opened:
            found = opened.frontier.known(segment, prints)
            dropped = segment in self.model.segments and self.model.segments[segment].state == "dropped"
            assert not dropped or not found
            known = {fingerprint(number) for number in self.model.known(segment)}
            assert found <= known
            if isinstance(opened.frontier, local.LocalFrontier):
                stored = {int.from_bytes(each) for each in opened.frontier.stored(segment, b"")}
                assert stored <= known

    # Invariants.

    @invariant()
    def check_agreement(self) -> None:
        """Compare everything the frontiers report with the model."""
        if self.model is None or self.opened[0].frontier is None:
            return
        model = self.model
        rows = sorted(map(self.row, model.urls))
        dead = sorted(url.key for url in model.urls if url.state == "dead")
        for opened in self.opened:
            counts, expected = self.counts(self.do(opened.frontier.stats())), self.expected_counts()
            assert counts == expected, f"{counts}, not {expected}"
            for view, expected_view in zip(self.do(opened.operations.segments()), self.segments(opened), strict=True):
                assert view == expected_view
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

    def segments(self, opened: OpenFrontier) -> list[Any]:
        """Return the segments of the model, as views."""
        views = self.do(opened.operations.segments())
        live = sorted(
            (each for each in self.model.segments.values() if each.state != "dropped"),
            key=lambda each: order(each.name),
        )
        dropped = sorted(
            (each for each in self.model.segments.values() if each.state == "dropped"),
            key=lambda each: order(each.name),
        )
        return [self.view(type(views[0]), each) for each in (*live, *dropped)]

    def view(self, kind: Any, segment: Any) -> Any:
        urls = self.model.inside(segment.name)
        counts = [
            sum(url.state in states for url in urls)
            for states in (("queued",), ("leased",), ("delayed", "retry"), ("done",), ("dead",))
        ]
        reasons = self.model.reasons("done", urls), self.model.reasons("dead", urls)
        return kind(segment.name, self.model.segment_state(segment), starts_at(segment.name), *counts, *reasons)

    def row(self, url: Url) -> tuple[Any, ...]:
        state, at = self.model.state_of(url), url.at
        if url.unfiltered and state in ("queued", "leased"):
            state, at = "queued or leased", 0.0
        attempts = url.attempts if state not in ("done", "archived") else 0
        return url.key, url.host, url.priority, state, int(at), url.reason, attempts, url.etag

    def verify(self) -> None:
        for problems in self.each(lambda _, operations: operations.verify(lambda _: None)):
            assert problems == []

    def lease_the_rest(self) -> None:
        """Check that after a bounded time everything left can be leased."""
        self.now = max(self.now, START) + END_S
        self.expire()
        for _ in range(ROUNDS_MAX):
            self.lease(12)
            for leased in self.leased:
                assert all(self.end_lease(leased, "ack", "200", [], self.now))
                leased.url.etag = ""
                leased.url.become("done", self.now, "200")
            self.leased.clear()
            if not self.model.count("queued", "delayed", "retry"):
                return
            self.now += 4.0
        raise AssertionError("URLs are left")

    def teardown(self) -> None:
        try:
            if self.model is not None and sys.exc_info()[0] is None:
                self.lease_the_rest()
                self.check_agreement()
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


async def requeued_in_total(operations: Any, selection: Selection, into: str | None, limit: int) -> int:
    total, after = 0, ""
    while True:
        moved, next_cursor = await operations.requeue(selection, into, 0.0, after, limit)
        total += moved
        if next_cursor is None:
            return total
        after = next_cursor


class DurableHistory(FrontierHistory):
    """Adds processes that end in many ways."""

    def reopen(self) -> None:
        """Open the state in a new process: all leases are void.

        A process that never committed leaves nothing behind, not even its tokens.
        """
        self.ended += self.leased
        self.leased.clear()
        if self.model.committed is self.committed:
            del self.ended[self.ended_before :]
        self.model = self.model.crashed(self.now)
        self.listing = None
        self.open()

    def close(self) -> None:
        for opened in self.opened:
            frontier, opened.frontier = opened.frontier, None
            self.do(frontier.close())

    @rule()
    def crash(self) -> None:
        """Return to the last commit."""
        self.close()
        self.reopen()

    @rule()
    def end(self) -> None:
        """End the process after a commit."""
        self.commit()
        self.close()
        self.reopen()

    @rule(step=st.sampled_from(memtable.STEPS), before=st.integers(0, 2))
    def crash_in_a_commit(self, step: str, before: int) -> None:
        """At whatever step the process is killed, the commit is complete."""
        self.kill_during(step, before, lambda opened, position: opened.frontier.commit({"items": position}))

    @rule(step=st.sampled_from(memtable.STEPS), before=st.integers(0, 2))
    def crash_while_everything_is_flushed(self, step: str, before: int) -> None:
        """The same while everything is moved to LMDB."""

        async def commit_and_verify(opened: OpenFrontier, position: int) -> None:
            await opened.frontier.commit({"items": position})
            await opened.operations.verify(lambda _: None)

        self.kill_during(step, before, commit_and_verify)

    def kill_during(self, step: str, before: int, action: Callable[[OpenFrontier, int], Awaitable[None]]) -> None:
        position = self.model.position + 10
        for opened in self.opened:
            opened.kill_at = (step, before)
            with suppress(Killed):
                self.do(action(opened, position))
            opened.kill_at = None
        self.model.commit(position)
        self.close()
        self.reopen()

    @rule(data=st.data())
    def crash_in_the_middle_of_a_frame(self, data: st.DataObject) -> None:
        """A partial frame does not count."""
        for opened in self.opened:
            path = opened.frontier.store.path
            log = path / f"journal.{generations(path)[-1]}"
            before = log.stat().st_size
            opened.kill_at = ("frame written", 0)
            with pytest.raises(Killed):
                self.do(opened.frontier.commit({"items": self.model.position + 10}))
            opened.kill_at = None
            size = log.stat().st_size
            with log.open("r+b") as stream:
                stream.truncate(data.draw(st.integers(before, size - 1)))
        self.close()
        self.reopen()

    @rule()
    def compact(self) -> None:
        """Uncommitted changes become durable too."""
        self.each(lambda _, operations: operations.compact())
        self.model.commit(self.model.position)

    @rule()
    def verify_all(self) -> None:
        """Uncommitted changes become durable too."""
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
    """Requeues URLs of one state at a time: URLs requeued together arrive in an order that depends on the back end."""

    back_ends = (open_memory, open_embedded)
    selected = (("dead",), ("done",))


@contextmanager
def running(**options: Any) -> Iterator[BothHistory]:
    """Run a given history."""
    history = BothHistory()
    try:
        history.start(**{"delay": 0.0, "concurrency": 8, "unloads": True, "limit": 50, **options})
        yield history
    finally:
        history.teardown()


def test_block_set_before_a_backward_clock_step_is_noticed_is_not_cut_to_an_hour() -> None:
    """The clock was set back before. The limit of an hour for pauses set since then must not shorten the block."""
    with running() as history:
        history.push([(0, ""), (2, "")], 0.0, unfiltered=False)
        history.lease(1)
        history.time_passes(-20.0)
        history.block(HOSTS[0], 9000.0)
        for seconds in (0.0, 7200.0, 1760.0):
            history.lease_later(seconds, 1)
            history.next_ready()
        assert len(history.leased) == 1
        history.lease_later(20.0, 1)
        assert len(history.leased) == 2


def unload_hosts(history: BothHistory) -> None:
    """Give all hosts a pause that is saved, and unload them when it is over."""
    for host in HOSTS:
        history.block(host, 40.0)
    history.lease(0)
    history.commit()
    history.lease_later(500.0, 0)
    history.commit()


@pytest.mark.parametrize("noticed_by", ["expire", "lease_later"])
def test_unloaded_host_is_paused_for_at_most_an_hour_after_the_clock_was_set_back(noticed_by: str) -> None:
    with running() as history:
        unload_hosts(history)
        history.expire(-7200.0) if noticed_by == "expire" else history.lease_later(-7200.0, 0)
        history.push([(0, "")], 0.0, unfiltered=False)
        history.next_ready()
        history.lease_later(3600.0, 1)
        assert len(history.leased) == 1


def test_host_unloaded_after_the_clock_was_set_back_may_be_paused_again() -> None:
    """The host's saved pause was not shifted with the clock: it may outlast a transfer that the host had since."""
    with running() as history:
        for host in HOSTS:
            history.block(host, 40.0)
        history.commit()
        history.lease(0)
        history.lease_later(-20.0, 0)
        history.push([(0, "")], 0.0, unfiltered=False)
        history.lease_later(40.0, 1)
        (leased,) = history.leased
        assert all(history.end_lease(leased, "ack", "200", [], history.now))
        leased.url.become("done", history.now, "200")
        history.leased.clear()
        history.commit()
        history.push([(2, "")], 0.0, unfiltered=False)
        history.next_ready()
        history.lease_later(20.0, 1)
        assert len(history.leased) == 1


def test_torn_frame_alone_in_its_log_is_removed_when_found(tmp_path: Path) -> None:
    """If another log followed the torn frame, the frame would count as damage, and the state would never open again."""
    (tmp_path / "journal.1").write_bytes(b"torn")
    for _ in range(2):
        frontier = embedded.embedded_frontier(tmp_path, Policy())
        assert asyncio.run(frontier.stats()).unfinished == 0
        asyncio.run(frontier.close())


def test_leased_record_behind_newer_ones_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The window on a host's queue is read again from before the leased record, which is on disk."""
    monkeypatch.setattr(store, "BUFFER_MAX", 4)

    async def scenario() -> None:
        frontier = embedded.embedded_frontier(tmp_path, Policy(robots=False, concurrency_per_host=100))
        await frontier.push([UrlRecord(1, n, f"{HOSTS[0]}/{n}", HOSTS[0]) for n in range(3)])
        leases = await frontier.lease(3, START)
        await frontier.push([UrlRecord(1, n, f"{HOSTS[0]}/{n}", HOSTS[0], priority=1) for n in range(3, 20)])
        assert await LocalOperations(frontier).verify(lambda _: None) == []
        leases += await frontier.lease(100, START)
        assert sorted(lease.record.fingerprint for lease in leases) == list(range(20))
        await frontier.close()

    asyncio.run(scenario())


def test_released_record_behind_newer_ones_is_leased_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The released record is on disk behind the window, which reaches it later, so it must not be in memory too."""
    monkeypatch.setattr(store, "BUFFER_MAX", 4)

    async def scenario() -> None:
        frontier = embedded.embedded_frontier(tmp_path, Policy(robots=False, concurrency_per_host=100))
        await frontier.push([UrlRecord(1, 0, f"{HOSTS[0]}/0", HOSTS[0])])
        (early,) = await frontier.lease(1, START)
        await frontier.push([UrlRecord(1, n, f"{HOSTS[0]}/{n}", HOSTS[0], priority=1) for n in range(1, 20)])
        assert await LocalOperations(frontier).verify(lambda _: None) == []
        await frontier.release(early, START)
        leases = await frontier.lease(100, START)
        assert sorted(lease.record.fingerprint for lease in leases) == list(range(20))
        await frontier.close()

    asyncio.run(scenario())


def test_long_urls_are_flushed_after_fewer_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory and the log that the next process reads are bounded in bytes too."""
    monkeypatch.setattr(memtable, "MEMTABLE_MAX_BYTES", 100_000)

    async def scenario() -> None:
        frontier = embedded.embedded_frontier(tmp_path, Policy(robots=False))
        for n in range(100):
            await frontier.push([UrlRecord(1, n, f"{HOSTS[0]}/{'u' * 8000}{n}", HOSTS[0])])
            await frontier.commit({})
        await frontier.close()

    asyncio.run(scenario())
    assert sum(log.stat().st_size for log in tmp_path.glob("journal.*")) < 300_000


@pytest.mark.parametrize("layers", [1, bloom.LAYERS_MAX])
def test_no_url_is_lost_with_a_filter_that_is_half_false_positives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: int
) -> None:
    """Batches with 40 % duplicates, commits and new processes; the filter alone would drop every second URL."""
    seed, count = random.randrange(1 << 32), 100_000 if PROVE else 3000
    print("seed", seed)
    rng = random.Random(seed)
    for (module, name), value in (SMALL | {(bloom, "LAYERS_MAX"): layers}).items():
        monkeypatch.setattr(module, name, value)

    async def scenario() -> None:
        known: set[int] = set()
        while len(known) < count:
            frontier = embedded.embedded_frontier(tmp_path, Policy(), expected=count // 10)
            while rng.random() < 0.8:
                numbers = [rng.randrange(round(count * 1.2)) for _ in range(60)]
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
        resolved = (await frontier.stats()).lookups_settled - before.lookups_settled
        assert resolved <= 600, "the filter was not as bad as it should have been"
        await frontier.close()

    asyncio.run(scenario())


MemoryHistory.TestCase.settings = settings_for(15)
EmbeddedHistory.TestCase.settings = settings_for(30)
BothHistory.TestCase.settings = settings_for(15)
TestMemoryFrontier = MemoryHistory.TestCase
TestEmbeddedFrontier = EmbeddedHistory.TestCase
TestBothFrontiers = BothHistory.TestCase
