"""Searches torrents: the index finds the ids, and the record store has the current records.

So a removed torrent is no longer shown, even if the indexer has not yet removed it from the index.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from lycosa.core.errors import BadQuery
from lycosa.search.core.analysis import analysis_of
from lycosa.search.core.analyzer import fold, normalize
from lycosa.search.core.highlight import Highlighter
from lycosa.search.core.query import SearchQuery, Term, check_page
from lycosa.search.core.request import SearchRequest, ValueCounts
from lycosa.search.core.torrent_query import TorrentQuery, parse_torrent_query
from lycosa.search.ports import Index
from lycosa.search.speller import FEW, Speller
from lycosa.storage.core.torrent_record import Refusal, RemovedRows, StoredTorrent
from lycosa.storage.ports import RecordStore

SORTS = {"relevance": "", "date": "found", "size": "size", "files": "files_count", "seeders": "seeders"}
"""Maps sort orders to fields of the index; "" is relevance."""
COUNTED = {"type": 10, "language": 12}
"""The counted keywords, each with the maximum number of values returned."""
FILES_READ_MAX = 200
"""Maximum number of files read per result: reading thousands takes longer than the search."""
REMOVED_MAX = 1000
"""Maximum number of removed torrents that a search excludes: the index may still have them. If there are more, counts
are approximate, and neither completions nor other spellings are offered."""
REFILL_MAX = 1000
"""Maximum number of matches after a page that are searched for torrents to replace removed ones."""
COMPLETION_MIN = 2
COMPLETIONS_TRIED = 3
"""Maximum number of listed words tried per completion: some are only in removed torrents."""


@dataclass(frozen=True, slots=True)
class TorrentRequest:
    """A search. `fields` maps names of filters in the query language to values."""

    text: str = ""
    fields: Mapping[str, str] | None = None
    sort: str = ""
    """A key of SORTS. "" sorts by relevance, or by date if there are no words."""
    ascending: bool = False
    limit: int = 20
    offset: int = 0
    strict: bool = False
    """Whether all words must match, even if no torrent has them all. Clients of feeds and Torznab expect this."""
    suggests: bool = True
    """Whether to look for another spelling if there are few results."""


class FoundTorrents(NamedTuple):
    """A page of results. `exact` is False if `total` is an estimate, or may count torrents removed after they were
    indexed. If it is False and `total` is 0, all of the first matches were removed; others may exist.

    `partial`: no torrent has all words; the results have some of them. `suggestion`: if there are few results, another
    spelling of the query that has more; else "".
    """

    total: int
    torrents: list[StoredTorrent]
    parsed: TorrentQuery
    took_ms: float
    exact: bool = True
    partial: bool = False
    suggestion: str = ""


class TorrentCount(NamedTuple):
    """The number of torrents; unless `exact`, with some that were removed."""

    total: int
    exact: bool = True


class RangeCounts(NamedTuple):
    """The number of torrents in each range; unless `exact`, with some that were removed."""

    counts: list[int]
    exact: bool = True


class _StoredMatches(NamedTuple):
    """A page of matches that the store has, and the number of all of these matches: an estimate, unless `exact`."""

    total: int
    torrents: list[StoredTorrent]
    exact: bool


class TorrentSearch:
    """Searches an index and its store. Raises `BadQuery`; `IndexFailure` and `StateError` if index or store fail."""

    def __init__(
        self, index: Index, store: RecordStore, now: Callable[[], float], speller: Speller | None = None
    ) -> None:
        self._index, self._store, self._now, self._speller = index, store, now, speller

    async def search(self, request: TorrentRequest) -> FoundTorrents:
        started = time.perf_counter()
        check_page(request.limit, request.offset)
        if request.sort not in {"", *SORTS}:
            raise BadQuery(
                "sort {value!r} is unknown: use one of {known}", value=request.sort[:20], known=", ".join(SORTS)
            )
        parsed = self._parse(request.text, request.fields)
        removed = await self._removed()
        wanted = _index_request(request, parsed, removed)
        found = await self._find(wanted, removed)
        suggestion = await self._suggestion(request, found.total, removed)
        has_none = found.exact and not found.total
        loose = parsed.query.loosened() if parsed.query and has_none and not request.strict else None
        if loose:
            found = await self._find(wanted._replace(query=loose), removed)
        took_ms = (time.perf_counter() - started) * 1000
        partial = bool(loose and found.torrents)
        return FoundTorrents(found.total, found.torrents, parsed, took_ms, found.exact, partial, suggestion)

    async def count_values(self, request: TorrentRequest, *, exact: bool = False) -> ValueCounts:
        """Return how many results have each value of the counted keywords.

        With `exact`, the index does not estimate. Numbers that may include removed torrents are never marked as exact.
        """
        parsed, removed = self._parse(request.text, request.fields), await self._removed()
        wanted = _index_request(request, parsed, removed)._replace(exact=exact)
        values, counted_all = await asyncio.to_thread(self._index.count_values, wanted, COUNTED)
        return ValueCounts(values, counted_all and removed.is_all)

    async def count_ranges(self, field: str, bounds: Sequence[int]) -> RangeCounts:
        """Return the number of torrents in each range, from one bound (included) to the next (excluded)."""
        removed = await self._removed()
        counts = await asyncio.to_thread(self._index.count_ranges, SearchRequest(without=removed.ids), field, bounds)
        return RangeCounts(counts, removed.is_all)

    def parsed(self, text: str) -> SearchQuery | None:
        """Parse the words of a query. Return None if it has none, or is invalid."""
        with suppress(BadQuery):
            return self._parse(text).query
        return None

    async def completions(self, text: str, limit: int = 8) -> list[str]:
        """Return completions of the text: its last word becomes a word from the names of torrents."""
        head, _, prefix = text.rpartition(" ")
        folded = fold(normalize(prefix)).strip()
        if self._speller is None or len(folded) < COMPLETION_MIN or " " in folded:
            return []
        removed = await self._removed()
        words = await asyncio.to_thread(self._words_shown, folded, removed, limit)
        return [f"{head} {word}".strip() for word in words]

    def highlighter(self, query: SearchQuery | None) -> Highlighter | None:
        return Highlighter(query, analysis_of(self._index.analysis), releases=True) if query else None

    async def _find(self, wanted: SearchRequest, removed: RemovedRows) -> _StoredMatches:
        """Find a page of matches that the store has. If the index may return removed torrents, the page is counted from
        the first match, so that pages do not overlap."""
        found = await asyncio.to_thread(self._index.find, wanted)
        torrents = await self._stored([match.key for match in found.page], FILES_READ_MAX)
        excludes_all = len(removed.ids) < REMOVED_MAX  # of the removed rows that were looked for
        is_first_of_many = not wanted.offset and found.total > REFILL_MAX
        if len(torrents) == len(found.page) and (excludes_all or is_first_of_many):
            return _StoredMatches(found.total, torrents, found.exact and removed.is_all)
        end = wanted.offset + wanted.limit
        found = await asyncio.to_thread(self._index.find, wanted._replace(offset=0, limit=end + REFILL_MAX))
        stored = await self._stored([match.key for match in found.page], 0)
        torrents = await self._stored([each.id for each in stored[wanted.offset : end]], FILES_READ_MAX)
        if found.exact and len(found.page) == found.total:
            return _StoredMatches(len(stored), torrents, exact=True)
        share = len(stored) / max(len(found.page), 1)
        return _StoredMatches(max(round(found.total * share), len(stored)), torrents, exact=False)

    async def _stored(self, keys: Iterable[str | int], files_max: int) -> list[StoredTorrent]:
        """Read torrents from the store, in this order, without those that were removed."""
        ids = [key for key in keys if isinstance(key, int)]
        rows = {row.id: row for row in await self._store.by_id(ids, files_max)} if ids else {}
        return [rows[number] for number in ids if number in rows]

    def _parse(self, text: str, fields: Mapping[str, str] | None = None) -> TorrentQuery:
        parsed = parse_torrent_query(text, self._now(), fields)
        if parsed.query is None:
            return parsed
        return parsed._replace(query=analysis_of(self._index.analysis).query(parsed.query))

    def _words_shown(self, prefix: str, removed: RemovedRows, limit: int) -> list[str]:
        """Complete a prefix. The list still has words of removed torrents, so each word is searched."""
        if self._speller is None or not removed.is_all:
            return []
        analysis = analysis_of(self._index.analysis)

        def is_shown(word: str) -> bool:
            query = analysis.query(SearchQuery(((Term((word,), "title"),),)))
            return self._index.has_matches(SearchRequest(query, without=removed.ids))

        words = self._speller.completions(prefix, limit * COMPLETIONS_TRIED)
        return list(islice(filter(is_shown, words), limit))

    async def _suggestion(self, request: TorrentRequest, total: int, removed: RemovedRows) -> str:
        if total > FEW or not request.suggests or self._speller is None or not removed.is_all:
            return ""

        def has_more(text: str, total: int) -> bool:
            parsed = self._parse(text, request.fields)
            return self._index.has_matches(SearchRequest(parsed.query, parsed.filters, without=removed.ids), total)

        return await asyncio.to_thread(self._speller.suggestion, request.text, total, has_more)

    async def _removed(self) -> RemovedRows:
        return await self._store.removed(REMOVED_MAX)

    async def get(self, infohash: bytes) -> StoredTorrent | None:
        return await self._store.get(infohash)

    async def refusal(self, infohash: bytes) -> Refusal | None:
        """Return why a torrent may not be stored; None if it may."""
        return await self._store.refusal(infohash, self._now())

    async def count(self) -> TorrentCount:
        removed = await self._removed()
        indexed = await asyncio.to_thread(self._index.count)
        return TorrentCount(max(indexed - len(removed.ids), 0), removed.is_all)


def _index_request(request: TorrentRequest, parsed: TorrentQuery, removed: RemovedRows) -> SearchRequest:
    sort = SORTS[request.sort] if request.sort else ""
    if not sort and parsed.query is None:
        sort = SORTS["date"]
    return SearchRequest(
        parsed.query, parsed.filters, sort, request.ascending, request.limit, request.offset, removed.ids
    )
