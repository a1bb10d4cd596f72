"""Explain an infohash of a running or stopped DHT crawl, and count its torrents and infohashes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from lycosa.app.dht_state import QUEUE, TORRENTS, RecordsLocation, open_records, queue_advice
from lycosa.app.frontier.operations import OpenState, open_state
from lycosa.core.errors import UsageError
from lycosa.dht.crawler.core.explain import Answer, HashFacts, answer_of, explain_infohash, last_failure_of
from lycosa.dht.crawler.core.hash_records import HOST, HOUR_S, fingerprint, queued_after
from lycosa.frontier.core.model import FrontierStats, Row
from lycosa.frontier.core.states import State
from lycosa.frontier.state_dir import DESCRIPTION
from lycosa.storage.core.torrent_record import key_of
from lycosa.storage.ports import RecordStore

RATE_OVER_S = 1.0
"""Seconds over which the rate of a running crawl is measured."""


class Explanation(NamedTuple):
    """Whether an infohash is stored, and if not, why, in three forms: a word, sentences, values."""

    answer: Answer
    lines: list[str]
    values: dict[str, Any]


class CrawlInspection:
    """The store with the torrents of a crawl or of imports, and the open queue of the crawl, if there is one."""

    def __init__(self, folder: str, queue: OpenState | None, store: RecordStore) -> None:
        self._folder, self._queue, self._store = folder, queue, store

    async def explain(self, infohash: bytes, now: float, when: Callable[[float], str]) -> Explanation:
        """Explain an infohash of 20 or 32 bytes. `when` formats unix seconds."""
        key = key_of(infohash)
        rows = await self._queue.operations.find(fingerprint(key), HOST) if self._queue else []
        facts = HashFacts(
            next((row for row in rows if row.record.url in ("", HOST + key.hex())), None),
            await self._store.get(key),
            await self._store.refusal(key, now),
            bool(self._queue and self._queue.runs),
        )
        answer = answer_of(facts)
        return Explanation(
            answer, explain_infohash(facts, when), {"infohash": key.hex(), "answer": answer.value, **_values(facts)}
        )

    async def stats(self, now: float) -> dict[str, Any]:
        """Return the counts of the queue and of the store, and the rate of a running crawl."""
        stats, per_minute, due = FrontierStats(), None, None
        if self._queue is not None:
            operations = self._queue.operations
            stats = await operations.stats()
            if self._queue.runs:
                await asyncio.sleep(RATE_OVER_S)
                later = await operations.stats()
                per_minute, stats = (later.done - stats.done) * 60 / RATE_OVER_S, later
            due = await operations.next_due(now) if stats.delayed and not stats.queued else None
        return {
            "state": self._folder,
            "running": (self._queue and self._queue.runs) or None,
            "torrents": await self._store.count(),
            "store_bytes": await self._store.used_bytes(),
            "queued": stats.queued,
            "in_work": stats.leased,
            "delayed": stats.delayed,
            "done": stats.done,
            "given_up": stats.dead,
            "reasons": dict(stats.reasons),
            "done_per_minute": per_minute,
            "next_due": due,
        }


def _values(facts: HashFacts) -> dict[str, Any]:
    row, stored, refusal = facts.row, facts.stored, facts.refusal
    return {
        "stored": stored and {"name": stored.record.name, "discovered": stored.record.discovered, "id": stored.id},
        "refusal": refusal and {"until": refusal.until, "reason": refusal.reason},
        "queue": row and _row_values(row),
    }


def _row_values(row: Row) -> dict[str, Any]:
    failure, first = last_failure_of(row), queued_after(row.record)
    return {
        "state": str(row.state),
        "first_queued_after": first,
        "first_queued_before": first and first + HOUR_S,
        "failed_tries": row.record.attempts,
        "last_failure": failure and failure.name.lower(),
        "next_try": row.at if row.state == State.RETRY else None,
        "ended": row.at if row.state in {State.DONE, State.DEAD} else None,
        "reason": row.reason or None,
    }


@asynccontextmanager
async def open_inspection(
    location: RecordsLocation, report: Callable[[str], None] = lambda _: None
) -> AsyncIterator[CrawlInspection]:
    """Open the state of a crawl or of imports. `report` is called if a running crawl is slow to answer.

    Raises `StateError`, or `UsageError` if the folder has neither torrents nor a queue.
    """
    if location.state is None:
        raise UsageError("which crawl? Write --state DIR")
    queue = Path(location.state) / QUEUE
    has_queue = (queue / DESCRIPTION).is_file()
    if not has_queue and not (queue.parent / TORRENTS).is_file():
        raise UsageError(f"{location.state} is not the --state of a dht crawl: it has neither torrents nor a queue")
    opening = open_state(queue, report=report) if has_queue else nullcontext()
    with queue_advice(queue):
        async with open_records(location) as store, opening as state:
            yield CrawlInspection(location.state, state, store)
