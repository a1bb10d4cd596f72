"""Searches torrents: the index says which, the record store what they are, at this moment.

A torrent that was removed is in no answer from the next request on, though it stays in the index until the indexer
runs: every row of an answer is read from the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from lycosa.core.errors import BadQuery
from lycosa.search.core.analyzer import fold, normalize
from lycosa.search.core.query import SearchQuery, check_page
from lycosa.search.core.request import SearchRequest
from lycosa.search.core.torrent_query import TorrentQuery, parse_torrent_query
from lycosa.search.ports import Index
from lycosa.storage.core.torrent_record import Refusal, StoredTorrent
from lycosa.storage.ports import RecordStore

SORTS = {"relevance": "", "date": "found", "size": "size", "files": "files_count", "seeders": "seeders"}
"""What results are sorted by, and the number of the index."""
COUNTED = {"type": 10, "language": 12}
"""The keywords whose values are counted, and how many of the values are shown."""
COMPLETION_MIN = 2
"""Minimum length of what is completed."""


@dataclass(frozen=True, slots=True)
class TorrentRequest:
    """A search: the words, filters by the names of the query language, the order, and the page."""

    text: str = ""
    fields: Mapping[str, str] | None = None
    sort: str = ""
    """A key of SORTS; "" is relevance, and the newest first if there are no words."""
    ascending: bool = False
    limit: int = 20
    offset: int = 0
    strict: bool = False
    """Whether all words are needed, even if no torrent has them: what programs ask for is meant so."""


class FoundTorrents(NamedTuple):
    """A page of results. `exact`: whether `total` counts no torrent that was removed since it was indexed.

    `partial`: whether no torrent has all words, and these have most of them.
    """

    total: int
    torrents: list[StoredTorrent]
    parsed: TorrentQuery
    took_ms: float
    exact: bool = True
    partial: bool = False


class TorrentSearch:
    """See the module. Raises `BadQuery`; `IndexFailure` and `StateError` if index or store fail."""

    def __init__(self, index: Index, store: RecordStore, now: Callable[[], float]) -> None:
        self._index, self._store, self._now = index, store, now

    async def search(self, request: TorrentRequest) -> FoundTorrents:
        """Return a page of results."""
        started = time.perf_counter()
        check_page(request.limit, request.offset)
        if request.sort not in {"", *SORTS}:
            raise BadQuery(f"sort {request.sort[:20]!r} is unknown: use one of {', '.join(SORTS)}")
        parsed = parse_torrent_query(request.text, self._now(), request.fields)
        wanted = _index_request(request, parsed)
        found = await asyncio.to_thread(self._index.find, wanted)
        loose = parsed.query.loosened() if parsed.query and not found.total and not request.strict else None
        if loose:
            found = await asyncio.to_thread(self._index.find, wanted._replace(query=loose))
        ids = [match.key for match in found.page if isinstance(match.key, int)]
        rows = {row.id: row for row in await self._store.by_id(ids)} if ids else {}
        torrents = [rows[number] for number in ids if number in rows]
        removed = len(ids) - len(torrents)
        took_ms = (time.perf_counter() - started) * 1000
        return FoundTorrents(found.total - removed, torrents, parsed, took_ms, not removed, bool(loose and torrents))

    async def count_values(self, request: TorrentRequest) -> dict[str, dict[str, int]]:
        """Return how many results have each value of the counted keywords. A removed torrent may still be counted."""
        parsed = parse_torrent_query(request.text, self._now(), request.fields)
        wanted = _index_request(request, parsed)
        return {
            field: await asyncio.to_thread(self._index.count_values, wanted, field, limit)
            for field, limit in COUNTED.items()
        }

    async def values_of_all(self) -> dict[str, dict[str, int]]:
        """Return how many torrents have each value of the counted keywords."""
        return await self.count_values(TorrentRequest())

    async def count_ranges(self, field: str, bounds: Sequence[int]) -> list[int]:
        """Return how many torrents have a number of the index from each of the bounds to below the next one."""
        return await asyncio.to_thread(self._index.count_ranges, SearchRequest(), field, bounds)

    def parsed(self, text: str) -> SearchQuery | None:
        """Return the words of a query; None if it has none, or cannot be read."""
        with suppress(BadQuery):
            return parse_torrent_query(text, self._now()).query
        return None

    async def completions(self, text: str, limit: int = 8) -> list[str]:
        """Return texts that go on where this one ends, by words of names."""
        head, _, prefix = text.rpartition(" ")
        folded = fold(normalize(prefix)).strip()
        if len(folded) < COMPLETION_MIN or " " in folded:
            return []
        found = await asyncio.to_thread(self._index.completions, folded, limit)
        return [f"{head} {word}".strip() for word in found]

    async def get(self, infohash: bytes) -> StoredTorrent | None:
        """Look a torrent up by either infohash."""
        return await self._store.get(infohash)

    async def refusal(self, infohash: bytes) -> Refusal | None:
        """Return why a torrent must not be shown; None if it may."""
        return await self._store.refusal(infohash, self._now())

    async def count(self) -> int:
        """Return the number of indexed torrents."""
        return await asyncio.to_thread(self._index.count)


def _index_request(request: TorrentRequest, parsed: TorrentQuery) -> SearchRequest:
    sort = SORTS[request.sort] if request.sort else ""
    if not sort and parsed.query is None:
        sort = SORTS["date"]
    return SearchRequest(parsed.query, parsed.filters, sort, request.ascending, request.limit, request.offset)
