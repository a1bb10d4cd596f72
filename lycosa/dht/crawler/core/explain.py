"""Explains why a torrent is not in the store, or when it was stored.

`when` formats a time in unix seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from lycosa.core.units import format_count, format_size
from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.crawler.core.hash_records import ANNOUNCED, FETCHED, PRIVATE, SAMPLED, WANTED, queued_after
from lycosa.dht.crawler.core.retries import last_failure
from lycosa.frontier.core.model import Row
from lycosa.frontier.core.states import State
from lycosa.storage.core.torrent_record import Refusal, Standing, StoredTorrent

FormatTime = Callable[[float], str]

FAILURE_TEXTS = {
    CrawlOutcome.NO_PEERS: "no node returned a peer",
    CrawlOutcome.NO_METADATA: "no peer delivered the metadata",
    CrawlOutcome.POSTPONED: "our own limits prevented it",
    CrawlOutcome.NO_LOOKUP: "no sampler returned a peer, and all lookups were used up",
}
ORIGINS = {
    ANNOUNCED: "announced to our node",
    SAMPLED: "found in a sample, or imported",
    WANTED: "requested from our node",
}
STOPPED = "the crawl is not running: the command that started it resumes it"


class HashFacts(NamedTuple):
    """What the queue and the store know about an infohash. `runs`: whether the crawl is running."""

    row: Row | None = None
    stored: StoredTorrent | None = None
    refusal: Refusal | None = None
    runs: bool = False


class Answer(StrEnum):
    """The answer in one word. The words are stable."""

    STORED = "stored"
    DENIED = "denied"
    EVICTED = "evicted"
    QUEUED = "queued"
    BEING_TRIED = "being_tried"
    RETRY = "retry"
    ENDED = "ended"
    NEVER_SEEN = "never_seen"


STATE_ANSWERS = {
    State.QUEUED: Answer.QUEUED,
    State.DELAYED: Answer.QUEUED,
    State.LEASED: Answer.BEING_TRIED,
    State.RETRY: Answer.RETRY,
}


def answer_of(facts: HashFacts) -> Answer:
    """Return the answer. The store takes precedence over the queue."""
    if facts.stored is not None:
        return Answer.STORED
    if facts.refusal is not None:
        return Answer.DENIED if facts.refusal.standing is Standing.DENIED else Answer.EVICTED
    if facts.row is None:
        return Answer.NEVER_SEEN
    return STATE_ANSWERS.get(State(facts.row.state), Answer.ENDED)


def explain_infohash(facts: HashFacts, when: FormatTime) -> list[str]:
    """Return the answer in sentences, the most important first."""
    lines = [*_store_lines(facts, when)]
    if facts.row is None:
        return lines or ["never queued: no trusted node returned it, and no announce or request of it was accepted"]
    return [*lines, *_queue_lines(facts.row, facts, when)]


def last_failure_of(row: Row) -> CrawlOutcome | None:
    """Return why the last try failed, if that is known."""
    return last_failure(row.record.not_before) if row.record.attempts else None


def _store_lines(facts: HashFacts, when: FormatTime) -> Iterator[str]:
    if (stored := facts.stored) is not None:
        record = stored.record
        files = format_count(len(record.files), "file")
        yield f"stored at {when(record.discovered)}: {record.name} ({files}, {format_size(record.size_bytes)})"
        if stored.counted is not None:
            leechers = format_count(stored.leechers, "leecher")
            yield f"{format_count(stored.seeders, 'seeder')} and {leechers} at {when(stored.counted)}"
    if (refusal := facts.refusal) is not None and refusal.standing is Standing.DENIED:
        reason = f" ({refusal.reason})" if refusal.reason else ""
        yield f"denied{reason}: it is neither fetched nor stored"
    elif refusal is not None:
        until = f"before {when(refusal.until)}" if refusal.until else "again"
        yield f"evicted to keep the store within its maximum size: it will not be stored {until}"


def _queue_lines(row: Row, facts: HashFacts, when: FormatTime) -> Iterator[str]:
    tries = format_count(row.record.attempts, "failed try")
    if (failure := last_failure_of(row)) is not None:
        tries += f", most recently because {FAILURE_TEXTS.get(failure, failure.name.lower().replace('_', ' '))}"
    match row.state:
        case State.QUEUED | State.DELAYED if row.record.attempts:
            yield f"in the queue, to be tried again: {tries}"
        case State.QUEUED | State.DELAYED:
            first = f" (first queued in the hour from {when(at)})" if (at := queued_after(row.record)) else ""
            # Not "the first try": after an eviction, an infohash that was tried before is queued again.
            yield f"in the queue{first}: {ORIGINS.get(row.record.priority, 'found')}, waiting for a try"
        case State.LEASED:
            yield "being tried now" + (f"; before that, {tries}" if row.record.attempts else "")
        case State.RETRY:
            yield f"next try at {when(row.at)}: {tries}"
        case State.DEAD:
            yield f"given up{_at(row, when)}: {row.reason} ({tries})"
        case _ if facts.stored is None:
            yield from _ended(row, facts, when)
    if row.state in STATE_ANSWERS and not facts.runs:
        yield STOPPED


def _ended(row: Row, facts: HashFacts, when: FormatTime) -> Iterator[str]:
    """Explain an infohash that is done but not in the store."""
    if row.reason == PRIVATE:
        yield f"fetched{_at(row, when)}, but not stored: it is private, so it belongs to a closed tracker"
    elif row.reason == FETCHED and facts.refusal is None:
        yield f"fetched{_at(row, when)}, but not in the store: it was refused or removed, or the store was replaced"
    elif row.reason == FETCHED:
        yield f"fetched{_at(row, when)}"
    else:
        yield f"not tried any more{_at(row, when)}: {row.reason}"


def _at(row: Row, when: FormatTime) -> str:
    return f" at {when(row.at)}" if row.at else ""
