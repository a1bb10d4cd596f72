"""`bench/search_load.py`: names, queries, floors, table, and a small run."""

from __future__ import annotations

import asyncio
import random
from itertools import islice

import pytest

from lycosa.search.core.torrent_text import torrent_words
from tests.bench.conftest import programs

TIMES = {"p50": 1.0, "p95": 2.0, "p99": 3.0, "max": 4.0, "mean": 1.5}
AT = {**TIMES, "cpu": TIMES}


@pytest.fixture(autouse=True, scope="module")
def bench():
    with programs("search_load", "search_corpus", "search_users") as imported:
        yield imported


def test_names_differ_and_queries_are_words_of_them(bench):
    torrents = bench.search_corpus.batch(0, 500, 1_790_000_000)
    assert len({each.name for each in torrents}) > 490
    assert sum(not each.name.isascii() for each in torrents) > 50
    texts = list(islice(bench.search_corpus.queries(random.Random(1), 500), 100))
    assert all(1 <= len(text.split()) <= 3 for text in texts)
    assert any(not text.isascii() for text in texts)
    names = [(each.name, set(torrent_words(each.name))) for each in torrents]
    for text in texts:
        latin, chinese = ([word for word in text.split() if word.isascii() is it] for it in (True, False))
        assert any(words.issuperset(latin) and all(each in name for each in chinese) for name, words in names), text


def figures(bench):
    search = {**dict.fromkeys(bench.search_load.KINDS, AT), "cold": TIMES}
    updates = {**TIMES, "rate": 10.0, "cpu_ms": 5.0, "lag": TIMES, "indexer_cores": 0.5, "indexer_mb": 90.0}
    return {
        "torrents": 1_000_000,
        "index": {"bytes": 100_000_000, "cpu_s": 80.0, "peak_mb": 200.0},
        "tantivy": search,
        "pages": {page: {**AT, "bytes": 60_000, "sent": 9_000} for page in bench.search_load.PAGES},
        "users": {**TIMES, "rate": 40.0, "cpu_ms": 5.0},
        "users_of_one": {**TIMES, "rate": 39.0, "cpu_ms": 4.0},
        "updates": updates,
        "first_ms": 200.0,
        "site_mb": 80.0,
    }


@pytest.mark.parametrize(("excess", "holds"), [(0.0, True), (0.1, False)])
def test_figures_at_their_limits_pass_and_larger_ones_fail(bench, excess, holds):
    at = figures(bench)
    for kind, most in {"search": 30, "filtered": 80, "sized": 80, "recent": 80, "facets": 150, "cold": 300}.items():
        at["tantivy"][kind] = {**AT, "p99": most + excess}
    at["pages"]["home"] |= {"p99": 50 + excess, "bytes": 60_000 + 1000 * excess}
    at["users"]["p99"] = 100 + excess
    at["first_ms"] = 200 + excess
    assert [each.holds for each in bench.search_load.verdicts(at)] == [holds] * 10


def test_a_slow_search_or_page_fails_its_limit_only(bench):
    at = figures(bench)
    at["tantivy"]["search"] = {**AT, "p99": 30.1}
    at["pages"]["detail"] = {**AT, "p99": 50.1}
    assert [each.holds for each in bench.search_load.verdicts(at)] == [False, *[True] * 5, False, *[True] * 3]


def test_the_table_has_a_row_for_each_search_and_page(bench):
    lines = bench.search_load.table(figures(bench)).splitlines()
    assert "| tantivy: best 20 | 1.0 | 2.0 | 3.0 | 1.0 | 3.0 |" in lines
    assert "| home | 1.0 | 2.0 | 3.0 | 1.0 | 3.0 | 60.0 | 9.0 |" in lines
    assert lines[-1].startswith("The index takes 100 MB, 100 bytes for each torrent.")


def test_a_small_index_is_measured(bench, tmp_path):
    load = bench.search_load
    place = load.Place(tmp_path)

    async def measured():
        async with load.open_records(place.location, create=True) as store:
            await bench.search_corpus.fill(store, 60)
        load.indexed(place, "tantivy")
        return await load.searches(place, "tantivy", 60, load.Scale(8, 2, 2, 1.0))

    found = asyncio.run(measured())
    assert set(found) == {*load.KINDS, "cold"}
    assert all(at["p99"] >= at["p50"] > 0 for at in found.values())
