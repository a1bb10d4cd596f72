"""Searching torrents: rows of the store, takedowns at once, loosened queries, completions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from lycosa.core.errors import IndexFailure
from lycosa.search import torrents
from lycosa.search.core.schema import TORRENTS
from lycosa.search.fts5 import Fts5Index
from lycosa.search.speller import Speller
from lycosa.search.torrent_indexer import TorrentIndexer
from lycosa.search.torrents import TorrentRequest, TorrentSearch
from lycosa.search.word_list import WordCounter, WordList
from lycosa.storage import ports
from lycosa.storage.core.torrent_record import Popularity, RemovedRows, Standing, TorrentRecord
from lycosa.storage.records.memory import MemoryRecordStore
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
NAMES = ["Show.S01E01.1080p", "Show.S01E02.1080p", "Other Show 4K", "英雄传 全集"]


def record(number: int) -> TorrentRecord:
    return replace(torrent(number, files=2), name=NAMES[number], discovered=1_780_000_000 + number)


Scenario = Callable[[TorrentSearch, MemoryRecordStore], Awaitable[None]]


def play(path: Path, records: Sequence[TorrentRecord], scenario: Scenario) -> None:
    """Play a scenario on an index of these torrents."""

    async def main():
        store = MemoryRecordStore()
        await store.put(records, NOW)
        with closing(Fts5Index(path / "index", TORRENTS, write=True)) as index:
            with closing(WordCounter(path / "index", TORRENTS)) as words:
                await TorrentIndexer(index, store, words).catch_up()
            speller = Speller(WordList(path / "index"))
            await scenario(TorrentSearch(index, store, lambda: NOW, speller), store)

    asyncio.run(main())


@pytest.fixture
def run(tmp_path):
    return partial(play, tmp_path, [record(number) for number in range(len(NAMES))])


async def names(search: TorrentSearch, text: str = "", **options) -> list[str]:
    found = await search.search(TorrentRequest(text, **options))
    return [each.record.name for each in found.torrents]


def test_results_are_rows_of_the_store_and_a_query_without_words_returns_the_newest_first(run):
    async def scenario(search: TorrentSearch, store: MemoryRecordStore):
        assert await names(search) == NAMES[::-1]
        assert await names(search, sort="date", ascending=True) == NAMES
        assert await names(search, limit=1, offset=1) == NAMES[2:3]
        assert set(await names(search, "show 1080p")) == set(NAMES[:2])
        assert await names(search, "英雄") == NAMES[3:]
        assert (await search.count_values(TorrentRequest("show"))).values == {"type": {"unknown": 3}, "language": {}}
        with pytest.raises(IndexFailure, match="sort 'name' is unknown: use one of relevance, date"):
            await names(search, sort="name")

    run(scenario)


def test_a_takedown_holds_from_the_next_request_before_the_index_is_updated(run):
    async def scenario(search: TorrentSearch, store: MemoryRecordStore):
        await store.deny([record(0).infohash_v1], reason="a letter")
        found = await search.search(TorrentRequest("show"))
        assert (found.total, found.exact, NAMES[0] in {each.record.name for each in found.torrents}) == (
            2,
            True,
            False,
        )
        assert (await search.count_values(TorrentRequest("show"))).values == {"type": {"unknown": 2}, "language": {}}
        assert await search.count_ranges("found", [0, 2_000_000_000]) == ([3], True)
        assert await search.count() == (3, True)
        assert await search.get(record(0).infohash_v1) is None
        assert (await search.refusal(record(0).infohash_v1)).standing is Standing.DENIED
        assert await search.refusal(record(1).infohash_v1) is None

    run(scenario)


def test_removed_torrents_are_replaced_by_the_next_matches_if_too_many_were_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(torrents, "REMOVED_MAX", 10)

    async def scenario(search: TorrentSearch, store: MemoryRecordStore):
        kept = [f"Thing {number}" for number in range(29, 24, -1)]
        assert (await search.search(TorrentRequest("thing"))).total == 30
        await store.deny([torrent(number).infohash_v1 for number in range(5, 25)])  # the search excludes ten of them
        found = await search.search(TorrentRequest("thing", sort="date", limit=4))
        assert [each.record.name for each in found.torrents] == kept[:4]
        assert (found.total, found.exact) == (10, True), "few match, so all are looked up"
        assert await names(search, "thing", sort="date", limit=4, offset=4) == [
            *kept[4:],
            "Thing 4",
            "Thing 3",
            "Thing 2",
        ]
        assert await names(search, "thing", sort="date", limit=4, offset=8) == ["Thing 1", "Thing 0"]
        assert (await search.search(TorrentRequest("thing zebra"))).partial
        assert await search.count() == (20, False)
        assert await search.count_ranges("found", [0, 2_000_000_000]) == ([20], False)
        assert not (await search.count_values(TorrentRequest(), exact=True)).exact

        monkeypatch.setattr(torrents, "REFILL_MAX", 4)
        found = await search.search(TorrentRequest("thing", sort="date", limit=4, offset=4))
        assert ([each.record.name for each in found.torrents], found.total, found.exact) == (kept[4:], 8, False)
        await store.deny([torrent(number).infohash_v1 for number in range(25, 30)])
        found = await search.search(TorrentRequest("thing", sort="date", limit=4))
        assert (found.torrents, found.total, found.exact, found.partial) == ([], 0, False, False)

    records = [replace(torrent(n), name=f"Thing {n}", discovered=1_780_000_000 + n) for n in range(30)]
    play(tmp_path, records, scenario)


def test_waiting_changes_make_counts_approximate_but_lead_to_no_other_search(run, monkeypatch):
    monkeypatch.setattr(ports, "CHANGES_READ_MAX", 1)

    async def scenario(search: TorrentSearch, store: MemoryRecordStore):
        await store.set_popularity([Popularity(record(n).infohash_v1, 1, 1, 1) for n in range(3)])
        limits, find = [], search._index.find
        monkeypatch.setattr(search._index, "find", lambda wanted: limits.append(wanted.limit) or find(wanted))
        found = await search.search(TorrentRequest(limit=2, offset=1))
        assert (len(found.torrents), found.exact, limits) == (2, False, [2])

    run(scenario)


def test_a_torrent_that_is_removed_during_a_search_is_replaced(run, monkeypatch):
    async def scenario(search: TorrentSearch, store: MemoryRecordStore):
        before = await store.removed(10)
        await store.deny([record(3).infohash_v1])

        async def removed(_limit: int) -> RemovedRows:
            return before

        monkeypatch.setattr(store, "removed", removed)
        found = await search.search(TorrentRequest(limit=1))
        assert ([each.record.name for each in found.torrents], found.total, found.exact) == ([NAMES[2]], 3, True)

    run(scenario)


def test_most_of_the_words_are_enough_if_no_torrent_has_all(run):
    async def scenario(search: TorrentSearch, store: MemoryRecordStore):
        found = await search.search(TorrentRequest("other show zebra"))
        assert (found.partial, [each.record.name for each in found.torrents]) == (True, [NAMES[2]])
        assert not (await search.search(TorrentRequest("zebra okapi"))).partial

    run(scenario)


def test_the_last_word_is_completed(run):
    async def scenario(search: TorrentSearch, store: MemoryRecordStore):
        assert await search.completions("other SH") == ["other show"]
        assert await search.completions("s") == []
        assert await search.completions("") == []

    run(scenario)


def test_words_of_removed_torrents_are_not_completed(run, monkeypatch):
    async def scenario(search: TorrentSearch, store: MemoryRecordStore):
        assert await search.completions("ot") == ["other"]
        await store.deny([record(2).infohash_v1])
        assert (await search.completions("ot"), await search.completions("sh")) == ([], ["show"])
        monkeypatch.setattr(torrents, "REMOVED_MAX", 0)
        assert await search.completions("sh") == [], "more were removed than a search can leave out"
        assert not (await search.count_values(TorrentRequest())).exact
        assert (await search.search(TorrentRequest("Shoe 1080p"))).suggestion == ""

    run(scenario)


def test_a_spelling_with_more_results_is_suggested_on_request(run):
    async def scenario(search: TorrentSearch, store: MemoryRecordStore):
        found = await search.search(TorrentRequest("Ohter show lang:zh"))
        assert found.suggestion == "", "nothing has this language"
        found = await search.search(TorrentRequest("Ohter show"))
        assert (found.suggestion, found.partial) == ("other show", True)
        assert (await search.search(TorrentRequest("Ohter show", suggests=False))).suggestion == ""
        await store.deny([record(2).infohash_v1])
        assert (await search.search(TorrentRequest("Ohter show"))).suggestion == "", "a takedown holds here, too"

    run(scenario)
