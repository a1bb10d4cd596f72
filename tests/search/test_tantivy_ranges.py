"""Ranges of times and numbers that an index finds by the terms of its documents, not by their numbers."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from contextlib import closing

import pytest

from lycosa.search import tantivy_ranges, tantivy_slices
from lycosa.search.core.request import SearchRequest, ValueFilter
from lycosa.search.core.schema import NUMBER_MAX, TORRENTS, IndexEntry
from lycosa.search.core.torrent_query import DAY_S, HOUR_S, parse_torrent_query
from lycosa.search.tantivy import TantivyIndex
from lycosa.search.tantivy_ranges import DAY_MAX, TERMS_MAX, Days, Steps, step_of

CHANCE = random.Random(3)
TIMES = [
    *(CHANCE.randrange(DAY_S * 20_000, DAY_S * 20_100) for _ in range(2_000)),
    *(DAY_S * 20_050 + edge for edge in (-1, 0, 1, DAY_S - 1, DAY_S)),
    *(DAY_S * day for day in range(TERMS_MAX + 1)),
    DAY_S * DAY_MAX,
    DAY_S * (DAY_MAX + 1),
    NUMBER_MAX,
]
SIZES = {key: int(CHANCE.paretovariate(0.5)) for key in range(len(TIMES)) if key % 9}
"""The documents with a size."""


@pytest.fixture(autouse=True)
def small_scale(monkeypatch) -> None:
    """Search such a small index as a large one."""
    for name, value in (("SLICE_KEYS", 40), ("COUNTED_MAX", 100), ("SAMPLE", 500)):
        monkeypatch.setattr(tantivy_slices, name, value)
    monkeypatch.setattr(tantivy_ranges, "TERM_COST", 1)


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Iterator[TantivyIndex]:
    """An index. "often" is in half of the names."""
    with closing(TantivyIndex(tmp_path_factory.mktemp("ranges") / "index", TORRENTS, write=True)) as index:
        index.add(
            [
                IndexEntry(
                    key,
                    {"name": "show often" if key % 2 else "show"},
                    {"found": time} | ({"size": SIZES[key]} if key in SIZES else {}),
                )
                for key, time in enumerate(TIMES)
            ]
        )
        index.commit({})
        yield index


def days(index: TantivyIndex) -> Days:
    reader = index._reader()
    return Days(reader._fields, reader._searcher)


def steps(index: TantivyIndex) -> Steps:
    found = index._reader()._steps
    assert found is not None
    return found


def hours(first: int, last: int) -> tuple[int, int]:
    """Return the times of some hours."""
    return first * HOUR_S, (last + 1) * HOUR_S - 1


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (DAY_S * 20_050, DAY_S * 20_051 - 1),
        hours(20_050 * 24, 20_050 * 24),
        hours(20_050 * 24 + 23, 20_051 * 24),
        hours(20_050 * 24 + 1, 20_060 * 24 + 22),
        (DAY_S * 20_095 + HOUR_S, None),
        (None, DAY_S * 30 + 5 * HOUR_S - 1),
        (DAY_S * 20_200, DAY_S * 20_300 - 1),
        (DAY_S * DAY_MAX, None),
        (DAY_S * 20_051, DAY_S * 20_050 - 1),
    ],
)
def test_a_range_of_whole_hours_is_found_by_days_and_hours(index, low, high):
    wanted = ValueFilter("found", low, high)
    assert days(index).query(wanted) is not None
    check(index, wanted)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (DAY_S * 20_050 + 1, DAY_S * 20_052 - 1),
        (DAY_S * 20_050, DAY_S * 20_050),
        (DAY_S * DAY_MAX, DAY_S * (DAY_MAX + 1) - 1),
        (DAY_S * (DAY_MAX + 1), None),
        (DAY_S * 20_000, NUMBER_MAX),
        (None, DAY_S * 20_001 - 1),
    ],
    ids=["part of an hour", "second", "last day", "later", "last time", "many days"],
)
def test_any_other_range_is_found_by_its_numbers(index, low, high):
    wanted = ValueFilter("found", low, high)
    assert days(index).query(wanted) is None
    check(index, wanted)


def test_an_index_with_few_documents_is_faster_by_its_numbers(index, monkeypatch):
    monkeypatch.setattr(tantivy_ranges, "TERM_COST", len(TIMES) // 10)
    assert days(index).query(ValueFilter("found", DAY_S * 20_010, DAY_S * 20_020 - 1)) is not None
    assert days(index).query(ValueFilter("found", DAY_S * 20_010, DAY_S * 20_021 - 1)) is None
    assert days(index).query(ValueFilter("found", *hours(20_010 * 24, 20_010 * 24 + 10))) is None


def check(index: TantivyIndex, wanted: ValueFilter) -> None:
    """Check that exactly the documents in the range are found."""
    low, high = wanted.low or 0, NUMBER_MAX if wanted.high is None else wanted.high
    expected = {key for key, time in enumerate(TIMES) if low <= time <= high}
    found = index.find(SearchRequest(filters=(wanted,), limit=len(TIMES), exact=True))
    assert {match.key for match in found.page} == expected
    assert found.total == len(expected) <= days(index).most(wanted)


@pytest.mark.parametrize("text", ["", "often"])
@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("offset", [0, 40, 300])
@pytest.mark.parametrize("sort", ["size", "found"])
def test_pages_sorted_by_a_bounded_number_are_exact(index, text, sort, ascending, offset):
    numbers = SIZES if sort == "size" else dict(enumerate(TIMES))
    chosen = [number for key, number in numbers.items() if key % 2 or not text]
    wanted = SearchRequest(parse_torrent_query(text, 0.0).query, (), sort, ascending, 20, offset)
    found = index.find(wanted)
    assert [numbers[match.key] for match in found.page] == sorted(chosen, reverse=not ascending)[offset : offset + 20]


@pytest.mark.parametrize(
    ("sort", "bound", "is_bounded"),
    [
        ("size", ValueFilter("size", 5_000), True),
        ("size", ValueFilter("size", 1), False),
        ("found", ValueFilter("found", DAY_S * 20_095 + 5), True),
        ("found", ValueFilter("found", DAY_S * 20_010 + 5), False),
        ("year", ValueFilter("year", 2000), True),
    ],
)
def test_a_bound_of_most_of_the_matches_is_left_out(index, monkeypatch, sort, bound, is_bounded):
    reader = index._reader()
    request = SearchRequest(sort=sort)
    within, without = (
        str(query) for query in (reader._within(request, bound), reader._queries.of(request, near=False))
    )
    assert (within != without) == is_bounded
    assert "RangeQuery" not in within or sort == "year"


@pytest.mark.parametrize("bound", [ValueFilter("size", 5_000), ValueFilter("size", None, 1)])
def test_steps_have_all_documents_within_a_bound_and_few_others(index, bound):
    reader = index._reader()
    made = steps(index).query(bound, len(TIMES))
    assert made is not None
    hits = reader._searcher.search(made, len(TIMES)).hits
    found = {int(key) for key in reader._searcher.fast_field_values("key", [address for _, address in hits])}
    low, high = bound.low or 0, bound.high or NUMBER_MAX
    assert {key for key, size in SIZES.items() if low <= size <= high} <= found
    assert all(low <= SIZES[key] * 1.25 and SIZES[key] <= high * 1.25 for key in found)
    assert steps(index).query(bound, len(found)) is not None
    assert steps(index).query(bound, len(found) - 1) is None


def test_steps_grow_with_the_number_and_from_4_on_by_less_than_a_quarter():
    numbers = [*range(3_000), *(CHANCE.randrange(NUMBER_MAX) for _ in range(500)), NUMBER_MAX]
    for number in numbers:
        assert step_of(number) <= step_of(number + 1)
        assert number < 4 or step_of(-(-number * 5 // 4)) > step_of(number)


def test_the_reader_of_an_earlier_commit_is_freed_at_once(tmp_path):
    with closing(TantivyIndex(tmp_path / "index", TORRENTS, write=True)) as index:
        index.add([IndexEntry(1, {"name": "show"}, {"found": 1, "size": 2})])
        index.commit({})
        assert index.find(SearchRequest(filters=(ValueFilter("found", 0, 5),), sort="size")).total == 1
        earlier = weakref.ref(index._reader())
        gc.disable()
        try:
            index.commit({"scan": 1})
            assert index.count() == 1
            assert earlier() is None
        finally:
            gc.enable()
