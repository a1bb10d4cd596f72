"""Requests with very many matches are answered from the newest slices; here a slice has 20 documents."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest

from lycosa.search import tantivy_queries, tantivy_ranges, tantivy_slices
from lycosa.search.core.request import SearchRequest, ValueFilter
from lycosa.search.core.schema import TORRENTS, IndexEntry
from lycosa.search.core.torrent_query import parse_torrent_query
from lycosa.search.ports import Index
from lycosa.search.tantivy import TantivyIndex

DOCUMENTS = 2_000


@pytest.fixture(scope="module")
def entries() -> list[IndexEntry]:
    """In half of the documents, "often" is in the name, and in every tenth in the files. Few have "rare"."""
    chance = random.Random(1)
    return [
        IndexEntry(
            key,
            {"name": "often show" if key % 2 else f"show number{key}", "files": "often" if key % 10 == 4 else ""}
            | ({"name": f"rare often {key}"} if key % 500 == 9 else {})
            | ({"name": "zebra"} if key == 8 else {}),
            {"found": chance.randrange(10**6), "size": chance.randrange(100)}
            | ({"seeders": key} if key % 3 else {})
            | ({"year": 2000 - key} if key <= 1500 else {})
            | ({"season": key} if key <= 500 else {}),
            {"type": ["video" if key % 4 else "audio"], "language": ["en"]},
        )
        for key in range(1, DOCUMENTS + 1)
    ]


@pytest.fixture
def index(tmp_path, monkeypatch, entries) -> Iterator[Index]:
    monkeypatch.setattr(tantivy_slices, "SLICE_KEYS", 20)
    monkeypatch.setattr(tantivy_slices, "COUNTED_MAX", 100)
    monkeypatch.setattr(tantivy_slices, "SAMPLE", 100)
    monkeypatch.setattr(tantivy_slices, "SAMPLE_MIN", 50)
    with closing(TantivyIndex(tmp_path / "index", TORRENTS, write=True)) as index:
        index.add(entries)
        index.commit({})
        yield index


def request(text: str = "", **options) -> SearchRequest:
    parsed = parse_torrent_query(text, 0.0)
    return SearchRequest(parsed.query, parsed.filters, **options)


def keys(index: Index, wanted: SearchRequest) -> list[int]:
    return [match.key for match in index.find(wanted).page]


@pytest.mark.parametrize(("text", "matches"), [("often", 1200), ("show", 1995), ("often show", 1196), ("", 2000)])
def test_many_matches_are_estimated_from_the_newest_documents(index, text, matches):
    found = index.find(request(text))
    assert not found.exact
    assert found.total == pytest.approx(matches, rel=0.1)
    assert min(match.key for match in found.page) > DOCUMENTS * 0.8
    counts = index.count_values(request(text), {"type": 2})
    assert not counts.exact
    assert counts.values["type"]["video"] == pytest.approx(index_counts(index, text)["video"], rel=0.15)
    exact = index.find(request(text, exact=True))
    assert (exact.total, exact.exact) == (matches, True)


def index_counts(index: Index, text: str) -> dict[str, int]:
    return index.count_values(request(text, exact=True), {"type": 2}).values["type"]


@pytest.mark.parametrize("text", ["often", "often show", "type:video often"])
def test_the_pages_together_have_each_match_once(index, text):
    matches = index.find(request(text, exact=True)).total
    assert not index.find(request(text)).exact
    pages = [keys(index, request(text, limit=30, offset=offset)) for offset in range(0, matches + 30, 30)]
    found = [key for page in pages for key in page]
    assert (len(found), len(set(found))) == (matches, matches)


def test_few_matches_are_exact(index):
    found = index.find(request("rare often"))
    assert ({match.key for match in found.page}, found.total, found.exact) == ({9, 509, 1009, 1509}, 4, True)
    assert index.find(request("often number4")).total == 1, "a frequent word in the files"
    old = request("often")._replace(filters=(ValueFilter("size", 5, 5),))
    assert index.find(old).exact, "a filter that leaves too few matches for an estimate"


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("offset", [0, 40, 300])
def test_the_order_by_a_number_is_exact(index, entries, ascending, offset):
    often = [each for each in entries if "often" in each.texts["name"] + each.texts["files"]]
    ordered = sorted(often, key=lambda each: each.numbers["found"], reverse=not ascending)
    wanted = request("often", sort="found", ascending=ascending, limit=20, offset=offset)
    assert keys(index, wanted) == [each.key for each in ordered[offset : offset + 20]]
    counted = [each for each in often if "seeders" in each.numbers]
    ordered = sorted(counted, key=lambda each: each.numbers["seeders"], reverse=not ascending)
    wanted = wanted._replace(sort="seeders")
    assert keys(index, wanted) == [each.key for each in ordered[offset : offset + 20]]


@pytest.mark.parametrize(
    ("number", "ascending", "best"),
    [
        ("year", False, range(1, 21)),
        ("year", True, range(1500, 1480, -1)),
        ("season", False, range(500, 480, -1)),
        ("season", True, range(1, 21)),
    ],
)
def test_the_order_is_exact_if_the_newest_documents_lack_the_number(index, number, ascending, best):
    assert keys(index, request(sort=number, ascending=ascending, limit=20)) == [*best]


def test_a_document_with_a_rare_word_of_a_loose_query_is_found(index):
    loose = request("often zebra absent").query.loosened()
    assert keys(index, SearchRequest(loose._replace(needed=1)))[0] == 8


@pytest.mark.parametrize("text", ["often zebra absent", "often show rare absent", "zebra rare often absent gone"])
def test_matches_with_a_rare_word_of_a_loose_query_have_enough_words(index, entries, text):
    loose = request(text).query.loosened()
    words = {term.words[0] for term in loose.optional}
    counts = {each.key: len(words & set(" ".join(each.texts.values()).split())) for each in entries}
    wanted = {key for key, count in counts.items() if count >= loose.needed}
    found = keys(index, SearchRequest(loose, limit=100))
    assert set(found) <= wanted
    assert set(found) == {
        key for key in wanted if {"zebra", "rare"} & words & {*entries[key - 1].texts["name"].split()}
    }


@pytest.mark.parametrize("alternatives_max", [32, 11, 0])
@pytest.mark.parametrize("text", ["often show absent", "often number14 show absent"])
def test_matches_of_a_loose_query_sorted_by_a_number_have_enough_words(
    index, monkeypatch, entries, text, alternatives_max
):
    """With fewer alternatives, the query is the one for pages sorted by relevance."""
    monkeypatch.setattr(tantivy_queries, "ALTERNATIVES_MAX", alternatives_max)
    monkeypatch.setattr(tantivy_slices, "COUNTED_MAX", 0)  # no word is rare
    loose = request(text).query.loosened()
    words = {term.words[0] for term in loose.optional}
    found = {
        each.key: each.numbers["found"]
        for each in entries
        if len(words & set(" ".join(each.texts.values()).split())) >= loose.needed
    }
    wanted = sorted(found, key=found.__getitem__, reverse=True)[:50]
    assert keys(index, SearchRequest(loose, sort="found", limit=50)) == wanted


def test_documents_that_a_request_excludes_are_not_found(index):
    newest = keys(index, request("often"))
    assert not set(keys(index, request("often", without=tuple(newest)))) & set(newest)


@pytest.mark.parametrize(
    ("module", "field"), [(tantivy_slices, "FIELD"), (tantivy_ranges, "DAYS"), (tantivy_ranges, "STEPS")]
)
def test_an_index_of_an_earlier_version_is_searched_and_rebuilt(tmp_path, monkeypatch, entries, module, field):
    with monkeypatch.context() as patch:
        patch.setattr(module, field, "other")
        with closing(TantivyIndex(tmp_path / "index", TORRENTS, write=True)) as old:
            old.add(entries[:10])
            old.commit({})
    with closing(TantivyIndex(tmp_path / "index", TORRENTS, write=True)) as index:
        assert index.outdated
        index.add(entries[10:20])
        index.commit({})
        assert index.find(request("often")).total == 12
        assert index.find(request("date:1970")).total == 20
        rebuilt = index.rebuild()
        rebuilt.add(entries[:30], new=True)
        index.adopt(rebuilt)
        assert not index.outdated
        assert index.count() == 30
