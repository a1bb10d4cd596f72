"""Explains what limits the speed of a crawl, from two snapshots about a minute apart.

Each rule checks one possible cause. Several causes may apply at once; the first one is likely to cause the others.
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
DISK_LOW_BYTES = 1_000_000_000
BUSY = 0.8
"""Share of time at which a busy store or processor counts as a brake."""
FULL = 0.95
"""From this share on, a maximum counts as reached."""
CONTACTS_LOW = 8
"""With fewer good contacts than Kademlia's k, lookups do not get far."""
SILENT = 0.7
"""Share of unanswered queries that counts as a brake. On the public network, a third to a half is usual."""
MOST = 0.5
NEARLY_ALL = 0.9
QUERIES_MIN, TRIES_MIN, DISCOVERED_MIN = 50, 20, 100
"""Minimum numbers of cases for a meaningful share."""


class Brake(StrEnum):
    """What limits a crawl. The names are stable, because they are labels in the metrics."""

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
    """A cause, and what it means for the user."""

    brake: Brake
    text: str


class Span(NamedTuple):
    """The time between two snapshots."""

    before: CrawlSnapshot
    now: CrawlSnapshot

    @property
    def elapsed_s(self) -> float:
        return self.now.at - self.before.at

    def count(self, *outcomes: CrawlOutcome) -> int:
        return self.now.total(*outcomes) - self.before.total(*outcomes)


def why_slow(before: CrawlSnapshot, now: CrawlSnapshot) -> list[BrakeFinding]:
    """Return what limits the crawl, the most important cause first. Few causes are found if the crawl just started."""
    span = Span(before, now)
    rules = RULES if span.elapsed_s >= SPAN_MIN_S else [each for each in RULES if each[0] in COUNTED]
    return [BrakeFinding(brake, text) for brake, rule in rules for text in rule(span)]


def _disk(span: Span) -> Iterator[str]:
    free = span.now.disk_free_bytes
    if free is not None and free < DISK_LOW_BYTES:
        yield f"the disk of the state folder has only {format_size(free)} left: when it is full, nothing can be stored"


def _store(span: Span) -> Iterator[str]:
    now = span.now
    busy = (now.store_busy_s - span.before.store_busy_s) / span.elapsed_s
    taken = span.count(CrawlOutcome.STORED, CrawlOutcome.STORED_BEFORE, CrawlOutcome.REFUSED)
    if busy >= FULL and not taken:
        yield f"the store has not answered for {format_duration(span.elapsed_s)}: it is down, locked or full"
    elif busy >= BUSY or (now.store_waiting_max and now.store_waiting >= FULL * now.store_waiting_max):
        waiting = format_count(now.store_waiting, "torrent")
        yield f"the store cannot keep up: it is busy {min(busy, 1):.0%} of the time, and {waiting} wait for it"


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
        yield f"the node has only {known}: the network is small, or most responses are lost"


def _silence(span: Span) -> Iterator[str]:
    silent, answered = span.now.unanswered - span.before.unanswered, span.now.answers_in - span.before.answers_in
    if silent + answered >= QUERIES_MIN and silent >= SILENT * (silent + answered):
        share = silent / (silent + answered)
        yield f"{share:.0%} of the queries get no answer: the line or the router loses packets, or contacts are stale"


def _unreachable(span: Span) -> Iterator[str]:
    if span.now.reachability is Reachability.UNREACHABLE:
        yield (
            "other nodes cannot reach this one, so no peer announces to it: open its UDP port in the firewall, and"
            " forward it in the router"
        )


LIMIT_TEXTS = {
    QueryLimit.NEW_ADDRESSES: "the limit of new addresses per minute (see --profile)",
    QueryLimit.BANDWIDTH: "the limit of bytes per second",
    QueryLimit.HOST: "the limit of one query per second to the same host: few other nodes are known nearby",
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
        yield f"the queue is full ({now.queued:,} of {now.queued_max:,}): the sweep rests until it is shorter"


def _connections(span: Span) -> Iterator[str]:
    now = span.now
    if now.connections_max and now.connections >= FULL * now.connections_max:
        yield f"{now.connections:,} of {now.connections_max:,} connections to peers are open: fetches wait for them"


def _lookups(span: Span) -> Iterator[str]:
    postponed = span.count(CrawlOutcome.NO_LOOKUP)
    if span.now.all_lookups_used:
        yield "the maximum number of lookups, at a time or per minute, is reached: other tries wait or are postponed"
    elif postponed >= TRIES_MIN and postponed >= MOST * span.count(CrawlOutcome.TRIED):
        yield f"{format_count(postponed, 'try')} postponed, because the lookups of the minute are used up"


def _tries(span: Span) -> int:
    fetched = span.now.fetched - span.before.fetched
    return fetched + span.count(CrawlOutcome.NO_PEERS, CrawlOutcome.NO_METADATA, CrawlOutcome.BAD_INFO)


def _no_peers(span: Span) -> Iterator[str]:
    tries, failed = _tries(span), span.count(CrawlOutcome.NO_PEERS)
    if tries >= TRIES_MIN and failed >= MOST * tries:
        yield f"{failed / tries:.0%} of the tried infohashes have no peers now: they will be tried again later"


def _peers(span: Span) -> Iterator[str]:
    tries, failed = _tries(span), span.count(CrawlOutcome.NO_METADATA)
    if tries >= TRIES_MIN and failed >= MOST * tries:
        yield (
            f"the peers of {failed / tries:.0%} of the tried infohashes do not deliver: they are offline, behind"
            " routers, or require encryption"
        )


def _known(span: Span) -> Iterator[str]:
    discovered, known = span.now.discovered - span.before.discovered, span.count(CrawlOutcome.KNOWN)
    if discovered >= DISCOVERED_MIN and known >= NEARLY_ALL * discovered:
        yield f"{known / discovered:.0%} of the discovered infohashes are known: these nodes return little that is new"


def _sweep(span: Span) -> Iterator[str]:
    if span.now.sweeps and not span.now.coverage and not span.count(CrawlOutcome.SAMPLED):
        yield "the sweep is complete: the next one starts when the nodes may be queried again (6 hours at most, BEP 51)"


def _queue(span: Span) -> Iterator[str]:
    now = span.now
    if not now.queued and not now.in_work:
        later = f": {now.delayed:,} will be tried again later" if now.delayed else ""
        yield f"no infohash is due{later}"


COUNTED = {Brake.LOOKUPS, Brake.NO_PEERS, Brake.PEERS, Brake.KNOWN}
"""Brakes that need a number of cases instead of a minimum time."""
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
