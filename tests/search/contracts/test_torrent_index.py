"""The parts of the `Index` contract that pages do not use: numbers, keywords, sorting, counts, removal."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from lycosa.core.errors import IndexFailure
from lycosa.search.core.request import SearchRequest, ValueFilter
from lycosa.search.core.schema import NUMBER_MAX, PAGES, TORRENTS, IndexEntry
from lycosa.search.core.torrent_query import parse_torrent_query
from lycosa.search.core.torrent_text import torrent_texts
from lycosa.search.ports import Index, NewIndex
from tests.search.indexes import ENGINES, create_index, open_index


def entry(key: int, name: str, kind: str, languages: str, size: int, seeders: int | None) -> IndexEntry:
    named, files = torrent_texts(name, [f"{name}/readme{key}.txt"])
    numbers = {"size": size, "found": 1000 + key, "files_count": 1}
    if seeders is not None:
        numbers["seeders"] = seeders
    return IndexEntry(key, {"name": named, "files": files}, numbers, {"type": [kind], "language": languages.split()})


ENTRIES = [
    entry(1, "Show.S01E01.1080p.x264", "video", "en", 10, 5),
    entry(2, "Show.S01E02.2160p.HEVC", "video", "en de", 20, None),
    entry(3, "英雄传 第一集", "video", "zh", 30, 0),
    entry(4, "Album Show Tunes FLAC", "audio", "", 40, 7),
    entry(5, "Showman Book", "text", "en", NUMBER_MAX, None),
]


@pytest.fixture(params=ENGINES)
def index(request, tmp_path) -> Iterator[Index]:
    with closing(create_index(request.param, tmp_path / "index", TORRENTS)) as index:
        index.add(ENTRIES)
        index.commit({"scan": 5})
        yield index


def find(index: Index, text: str = "", **options) -> list[int]:
    parsed = parse_torrent_query(text, 2000.0)
    request = SearchRequest(parsed.query, parsed.filters, **options)
    found = index.find(request)
    assert found.total >= len(found.page)
    assert [index.has_matches(request, count) for count in (0, 1, 2, 9)] == [
        found.total > count for count in (0, 1, 2, 9)
    ]
    return [match.key for match in found.page]


def test_documents_that_are_not_wanted_are_neither_found_nor_counted(index):
    assert set(find(index, "show", without=(1, 4, 99))) == {2}
    assert set(find(index, without=(1,))) == {2, 3, 4, 5}
    unwanted = SearchRequest(without=(1, 4))
    assert index.find(unwanted).total == 3
    assert index.count_values(unwanted, {"type": 5}).values == {"type": {"video": 2, "text": 1}}
    assert index.count_ranges(unwanted, "size", [0, 15, 35]) == [0, 2]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("show", {1, 2, 4}),
        ("show s01e02", {2}),
        ("show 1x02 4k h265", {2}),
        ("s01", {1, 2}),
        ("title:show -flac", {1, 2}),
        ("英雄", {3}),
        ("雄英", set()),
        ("readme4", {4}),
        ("title:readme4", set()),
        ("show type:video", {1, 2}),
        ("type:audio,text", {4, 5}),
        ("lang:de", {2}),
        ("size:20..30", {2, 3}),
        ("size:>40", {5}),
        ("seeders:>=0", {1, 3, 4}),
        ("show seeders:>5", {4}),
        ("site:example.org", set()),
    ],
)
def test_words_and_filters_find_exactly_the_expected_documents(index, text, keys):
    assert set(find(index, text)) == keys


def test_numbers_sort_both_ways_and_documents_without_one_come_last(index):
    assert find(index, sort="size") == [5, 4, 3, 2, 1]
    assert find(index, sort="size", ascending=True, limit=2, offset=1) == [2, 3]
    assert find(index, sort="seeders")[:3] == [4, 1, 3]
    assert find(index, sort="seeders", ascending=True)[:3] == [3, 1, 4]
    assert find(index, "show", sort="found") == [4, 2, 1]


def test_values_are_counted_among_the_matches(index):
    everything = SearchRequest()
    assert index.count_values(everything, {"type": 10}).values == {"type": {"video": 3, "audio": 1, "text": 1}}
    assert list(index.count_values(everything, {"type": 1}).values["type"]) == ["video"]
    some = SearchRequest(filters=(ValueFilter("size", 20, 30),))
    assert index.count_values(some, {"language": 10, "type": 1}).values == {
        "language": {"en": 1, "de": 1, "zh": 1},
        "type": {"video": 2},
    }


def test_numbers_are_counted_by_ranges(index):
    assert index.count_ranges(SearchRequest(), "size", [0, 20, 40, 10**15]) == [1, 2, 1]
    assert index.count_ranges(SearchRequest(filters=(ValueFilter("type", values=("audio",)),)), "size", [0, 50]) == [1]
    assert index.count_ranges(SearchRequest(filters=(ValueFilter("type", values=("x",)),)), "size", [0, 5, 50]) == [
        0,
        0,
    ]


def test_a_removed_document_is_gone_after_the_commit(index):
    index.remove([1, 999])
    assert index.count() == 5
    index.commit({})
    assert (index.count(), find(index, "show s01e01")) == (4, [])
    index.add([ENTRIES[0]])
    index.commit({})
    assert find(index, "show s01e01") == [1]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_rebuilt_index_replaces_the_old_one_for_readers_at_once(tmp_path, engine):
    with closing(create_index(engine, tmp_path, TORRENTS)) as index:
        index.add(ENTRIES)
        index.commit({"scan": 5})
        with closing(open_index(engine, tmp_path, TORRENTS, write=False)) as reader:
            for kept in (ENTRIES[:2], ENTRIES[2:]):
                rebuilt = index.rebuild()
                rebuilt.add(kept, new=True)
                rebuilt.add(ENTRIES[:1])
                rebuilt.remove([1])
                before = set(find(reader))
                assert set(find(index)) == before, "the old index is searched meanwhile"
                index.adopt(rebuilt)
                expected = {each.key for each in kept} - {1}
                assert (set(find(reader)), set(find(index)), index.count()) == (expected, expected, len(expected))
            assert index.positions() == {"scan": 5}
        index.rebuild().add(ENTRIES)
    with closing(create_index(engine, tmp_path, TORRENTS)) as index:
        assert set(find(index)) == {3, 4, 5}, "an unfinished rebuild is discarded"
        assert len(list(tmp_path.glob(f"{engine}*"))) == (engine != "sphinx")


@pytest.mark.parametrize("engine", ENGINES)
def test_an_index_keeps_the_analysis_with_which_it_was_built(tmp_path, engine):
    create_index(engine, tmp_path, TORRENTS).close()
    wanted = replace(TORRENTS, analysis=("simplified",))
    with (
        closing(create_index(engine, tmp_path, wanted)) as index,
        closing(open_index(engine, tmp_path, TORRENTS, write=False)) as reader,
    ):
        assert (index.outdated, index.analysis, reader.analysis) == (True, (), ())
        index.adopt(index.rebuild())
        assert (index.outdated, index.analysis) == (False, ("simplified",))
        assert find(reader) == []
        assert reader.analysis == ("simplified",)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_index_of_another_kind_or_engine_is_refused(tmp_path, engine):
    create_index(engine, tmp_path, TORRENTS).close()
    with pytest.raises(IndexFailure, match="holds torrents, not pages: `lycosa site --state DIR` searches it"):
        create_index(engine, tmp_path, PAGES)
    if engine != "sphinx":
        other = next(each for each in ("fts5", "tantivy") if each != engine)
        with pytest.raises(IndexFailure, match=f"belongs to {engine}, not to {other}"):
            create_index(other, tmp_path, TORRENTS)


def fill_and_adopt(index: Index, rebuilt: NewIndex, entries: Iterator[IndexEntry]) -> None:
    for each in entries:
        rebuilt.add([each], new=True)
    index.adopt(rebuilt)


def large_entries(count: int) -> Iterator[IndexEntry]:
    """Yield entries with 200,000 bytes of random numbers each."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for key in range(count):
        text = " ".join(str(rng.getrandbits(64)) for _ in range(10_000))
        yield ENTRIES[0]._replace(key=key, texts={"name": text, "files": ""})


@pytest.mark.parametrize("engine", ["fts5", "tantivy"])
def test_a_rebuild_on_a_full_device_is_refused_and_the_index_is_searched_on(engine: str, small_device: Path) -> None:
    path = small_device / "index"
    with closing(create_index(engine, path, TORRENTS)) as index:
        index.add(ENTRIES)
        index.commit({"scan": 5})
        rebuilt = index.rebuild()
        with pytest.raises(IndexFailure, match="no space left on the device") as caught:
            fill_and_adopt(index, rebuilt, large_entries(200))
        assert "\n" not in str(caught.value)
        assert set(find(index, "show")) == {1, 2, 4}
        rebuilt.discard()
        index.add([ENTRIES[0]._replace(key=6)])
        index.commit({"scan": 6})
        assert set(find(index, "show")) == {1, 2, 4, 6}
    with closing(create_index(engine, path, TORRENTS)) as index:
        assert set(find(index, "show")) == {1, 2, 4, 6}


def test_a_discarded_rebuild_changes_nothing(index):
    rebuilt = index.rebuild()
    rebuilt.add(ENTRIES[:1], new=True)
    rebuilt.discard()
    assert set(find(index)) == {1, 2, 3, 4, 5}
    rebuilt = index.rebuild()
    rebuilt.add(ENTRIES[1:3], new=True)
    index.adopt(rebuilt)
    assert set(find(index)) == {2, 3}
