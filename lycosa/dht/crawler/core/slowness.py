"""Why a crawl is not faster, in words: from two snapshots, about a minute apart.

Each rule looks at one thing that can hold a crawl back, and says what it found and what helps. Several may hold at
once; the first is the most likely cause of what follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from lycosa.core.units import format_count, format_duration, format_size
from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.core.events import Reachability
from lycosa.dht.core.limits import QueryLimit
from lycosa.dht.crawler.core.snapshot import CrawlSnapshot

SPAN_MIN_S = 5.0
"""Two snapshots that are closer say nothing."""
DISK_LOW_BYTES = 1_000_000_000
BUSY = 0.8
"""Share of the time from which the store, or the processor, counts as the brake."""
FULL = 0.95
"""Share of a maximum from which it counts as reached."""
CONTACTS_LOW = 8
"""Good contacts below which a lookup does not get far: k of Kademlia."""
SILENT = 0.7
"""Share of unanswered queries that is too high. On the public network, a third to a half is usual."""
MOST = 0.5
NEARLY_ALL = 0.9
QUERIES_MIN, TRIES_MIN, DISCOVERED_MIN = 50, 20, 100
"""Fewer say nothing about a share."""


class Brake(StrEnum):
    """What holds a crawl back. The names are stable: the metrics have them as labels."""

    DISK = "disk"
    STORE = "store"
    PROCESSOR = "processor"
    CONTACTS = "contacts"
    SILENCE = "silence"
    UNREACHABLE = "unreachable"
    LIMIT = "limit"
    BACKLOG = "backlog"
    CONNECTIONS = "connections"
    LOOKUPS = "lookups"
    NO_PEERS = "no_peers"
    PEERS = "peers"
    KNOWN = "known"
    SWEEP = "sweep"
    QUEUE = "queue"


class BrakeFinding(NamedTuple):
    """One cause, and what it means for the user."""

    brake: Brake
    text: str


class Span(NamedTuple):
    """Two snapshots, and what happened between them."""

    before: CrawlSnapshot
    now: CrawlSnapshot

    @property
    def elapsed_s(self) -> float:
        """The time between them."""
        return self.now.at - self.before.at

    def count(self, *outcomes: CrawlOutcome) -> int:
        """Return how often these outcomes happened."""
        return self.now.total(*outcomes) - self.before.total(*outcomes)


def why_slow(before: CrawlSnapshot, now: CrawlSnapshot) -> list[BrakeFinding]:
    """Return what holds the crawl back, the most important first; nothing if it runs freely or has just begun."""
    span = Span(before, now)
    if span.elapsed_s < SPAN_MIN_S:
        return []
    return [BrakeFinding(brake, text) for brake, rule in RULES for text in rule(span)]


def _disk(span: Span) -> Iterator[str]:
    free = span.now.disk_free_bytes
    if free is not None and free < DISK_LOW_BYTES:
        yield f"the disk of the state has only {format_size(free)} left: nothing can be stored when it is full"


def _store(span: Span) -> Iterator[str]:
    now = span.now
    busy = (now.store_busy_s - span.before.store_busy_s) / span.elapsed_s
    taken = span.count(CrawlOutcome.STORED, CrawlOutcome.STORED_BEFORE, CrawlOutcome.REFUSED)
    if busy >= FULL and not taken:
        yield f"the store has not answered for {format_duration(span.elapsed_s)}: it is gone, locked or full"
    elif busy >= BUSY or (now.store_waiting_max and now.store_waiting >= FULL * now.store_waiting_max):
        waiting = format_count(now.store_waiting, "torrent")
        yield f"the store cannot keep up: it works {min(busy, 1):.0%} of the time, and {waiting} wait for it"


def _processor(span: Span) -> Iterator[str]:
    busy = (span.now.cpu_s - span.before.cpu_s) / span.elapsed_s
    if busy >= BUSY:
        yield f"the crawl uses {busy:.0%} of a processor core, and cannot use more than one"


def _contacts(span: Span) -> Iterator[str]:
    good = span.now.good_contacts
    if not good:
        yield "no node answers: check --bootstrap, and that the firewall lets UDP through"
    elif good < CONTACTS_LOW:
        known = format_count(good, "good contact")
        yield f"the node knows only {known}: the network is small, or most answers are lost"


def _silence(span: Span) -> Iterator[str]:
    silent, answered = span.now.unanswered - span.before.unanswered, span.now.answers_in - span.before.answers_in
    if silent + answered >= QUERIES_MIN and silent >= SILENT * (silent + answered):
        share = silent / (silent + answered)
        yield f"{share:.0%} of the queries get no answer: the line or the router loses packets, or contacts are stale"


def _unreachable(span: Span) -> Iterator[str]:
    if span.now.reachability is Reachability.UNREACHABLE:
        yield (
            "other nodes cannot reach this one, so nobody announces to it: open its UDP port in the firewall, and"
            " forward it in the router"
        )


LIMIT_TEXTS = {
    QueryLimit.NEW_ADDRESSES: "the limit of addresses that are contacted anew in a minute (see --profile)",
    QueryLimit.BANDWIDTH: "the limit of bytes a second",
    QueryLimit.HOST: "the limit of one query a second to the same host: few nodes are known where it asks",
}


def _limits(span: Span) -> Iterator[str]:
    waits = {each: span.now.waits.get(each, 0) - span.before.waits.get(each, 0) for each in QueryLimit}
    limit = max(waits, key=lambda each: waits[each])
    queries, fetches = span.now.waiting_queries, span.now.waiting_fetches
    waiting = [format_count(number, noun) for number, noun in ((queries, "query"), (fetches, "connection")) if number]
    if waiting and waits[limit]:
        yield f"{' and '.join(waiting)} waiting for {LIMIT_TEXTS[limit]}"


def _backlog(span: Span) -> Iterator[str]:
    now = span.now
    if now.queued_max and now.queued > now.queued_max:
        yield f"the queue is full ({now.queued:,} of {now.queued_max:,}): the sweep rests until more of it was tried"


def _connections(span: Span) -> Iterator[str]:
    now = span.now
    if now.connections_max and now.connections >= FULL * now.connections_max:
        yield f"{now.connections:,} of {now.connections_max:,} connections to peers are open: fetches wait for them"


def _lookups(span: Span) -> Iterator[str]:
    if span.now.all_lookups_used:
        yield "as many lookups of peers run as may at once or in a minute: other tries wait, or are left for later"


def _tries(span: Span) -> int:
    fetched = span.now.fetched - span.before.fetched
    return fetched + span.count(CrawlOutcome.NO_PEERS, CrawlOutcome.NO_METADATA, CrawlOutcome.BAD_INFO)


def _no_peers(span: Span) -> Iterator[str]:
    tries, failed = _tries(span), span.count(CrawlOutcome.NO_PEERS)
    if tries >= TRIES_MIN and failed >= MOST * tries:
        yield f"{failed / tries:.0%} of the tried infohashes have no peers now: they are tried again later"


def _peers(span: Span) -> Iterator[str]:
    tries, failed = _tries(span), span.count(CrawlOutcome.NO_METADATA)
    if tries >= TRIES_MIN and failed >= MOST * tries:
        yield (
            f"the peers of {failed / tries:.0%} of the tried infohashes do not deliver: they are gone, behind routers,"
            " or insist on encryption"
        )


def _known(span: Span) -> Iterator[str]:
    discovered, known = span.now.discovered - span.before.discovered, span.count(CrawlOutcome.KNOWN)
    if discovered >= DISCOVERED_MIN and known >= NEARLY_ALL * discovered:
        yield f"{known / discovered:.0%} of the discovered infohashes are known: most of what these nodes name is here"


def _sweep(span: Span) -> Iterator[str]:
    if span.now.sweeps and not span.now.coverage and not span.count(CrawlOutcome.SAMPLED):
        yield "the sweep is complete: the next one starts when the nodes may be asked again (BEP 51: 6 hours at most)"


def _queue(span: Span) -> Iterator[str]:
    now = span.now
    if not now.queued and not now.in_work:
        later = f": {now.delayed:,} will be tried again later" if now.delayed else ""
        yield f"no infohash is due{later}"


RULES: tuple[tuple[Brake, Callable[[Span], Iterator[str]]], ...] = (
    (Brake.DISK, _disk),
    (Brake.STORE, _store),
    (Brake.PROCESSOR, _processor),
    (Brake.CONTACTS, _contacts),
    (Brake.SILENCE, _silence),
    (Brake.UNREACHABLE, _unreachable),
    (Brake.LIMIT, _limits),
    (Brake.BACKLOG, _backlog),
    (Brake.CONNECTIONS, _connections),
    (Brake.LOOKUPS, _lookups),
    (Brake.NO_PEERS, _no_peers),
    (Brake.PEERS, _peers),
    (Brake.KNOWN, _known),
    (Brake.SWEEP, _sweep),
    (Brake.QUEUE, _queue),
)
