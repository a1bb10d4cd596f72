from __future__ import annotations

import pytest

from lycosa.core.errors import IndexFailure
from lycosa.search.core.request import ValueFilter
from lycosa.search.core.torrent_query import DAY_S, HOUR_S, TorrentQuery, parse_torrent_query

NOW = 1_795_000_000.0
HOUR = 1_794_999_600
"""The full hour before NOW."""
DAY = 1_793_836_800
"""2026-11-05."""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("type:video", ValueFilter("type", values=("video",))),
        ("type:video,audio,Video", ValueFilter("type", values=("video", "audio"))),
        ("lang:zh", ValueFilter("language", values=("zh",))),
        ("size:>1GB", ValueFilter("size", 10**9 + 1)),
        ("size:1.5kb", ValueFilter("size", 1500)),
        ("size:500MB..2GiB", ValueFilter("size", 500 * 10**6, 2**31)),
        ("size:..2GB", ValueFilter("size", None, 2 * 10**9)),
        ("files:<=20", ValueFilter("files_count", None, 20)),
        ("files:<20", ValueFilter("files_count", None, 19)),
        ("seeders:>0", ValueFilter("seeders", 1)),
        ("YEAR:1999", ValueFilter("year", 1999, 1999)),
        ("date:2026-11-05", ValueFilter("found", DAY, DAY + DAY_S - 1)),
        ("date:>=2026-11-05", ValueFilter("found", DAY)),
        ("date:<2026-11-05", ValueFilter("found", None, DAY - 1)),
        ("date:2026-11", ValueFilter("found", DAY - 4 * DAY_S, DAY + 26 * DAY_S - 1)),
        ("date:2026-11-05..2026-11-06", ValueFilter("found", DAY, DAY + 2 * DAY_S - 1)),
        ("age:<7", ValueFilter("found", HOUR - 7 * DAY_S)),
        ("age:>7", ValueFilter("found", None, HOUR - 7 * DAY_S - 1)),
        ("age:1..7", ValueFilter("found", HOUR - 7 * DAY_S, HOUR - DAY_S + HOUR_S - 1)),
        ("age:..7", ValueFilter("found", HOUR - 7 * DAY_S)),
        ("size:>1 size:2..9 size:<=8", ValueFilter("size", 2, 8)),
    ],
)
def test_a_filter_stands_anywhere_in_the_query(text, wanted):
    assert parse_torrent_query(text, NOW) == TorrentQuery(None, (wanted,))
    found = parse_torrent_query(f"word {text} other", NOW)
    assert found.filters == (wanted,)
    assert found.query.plain_words == ("word", "other")


@pytest.mark.parametrize("text", ["size:big", "size:1..x", "date:2026-13", "date:20261", "x:1", "size:..", "files:>"])
def test_invalid_filters_are_searched_as_words(text):
    found = parse_torrent_query(text, NOW)
    assert (found.filters, found.query is not None) == ((), True)


def test_the_first_invalid_filters_are_reported():
    first, second, third = parse_torrent_query("SIZE:big type:video date:2026-13 show age:x files:>", NOW).mistakes
    assert str(first) == "size 'big' is not a valid filter: write size:>1GB or size:500MB..2GB"
    assert [each.values["name"] for each in (first, second, third)] == ["size", "date", "age"]
    assert parse_torrent_query("size:1GB x:1", NOW).mistakes == ()


def test_fields_are_filters_too_but_must_be_valid():
    found = parse_torrent_query("word", NOW, {"type": "video", "size": ">1GB", "lang": " "})
    assert found.filters == (ValueFilter("type", values=("video",)), ValueFilter("size", 10**9 + 1))
    with pytest.raises(IndexFailure, match="size 'big' is not a valid filter: write size:>1GB"):
        parse_torrent_query("", NOW, {"size": "big"})


def test_an_empty_query_finds_everything_and_releases_have_one_spelling():
    assert parse_torrent_query("  ", NOW) == TorrentQuery(None)
    assert parse_torrent_query("Show S1E2 h.264", NOW).query.plain_words == ("show", "s01e02", "h264")
    assert parse_torrent_query("site:x", NOW).query.plain_words == ("x",)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("season 1", "s01"), ("S01 E02", "s01e02"), ("h 265", "h265"), ("web dl", "webdl"), ("blu ray", "bluray")],
)
def test_a_spelling_of_two_words_needs_no_quotation_marks(text, wanted):
    assert parse_torrent_query(f"show {text} x", NOW).query.plain_words == ("show", wanted, "x")


def test_an_exclusion_is_not_part_of_a_spelling():
    assert parse_torrent_query("season -1", NOW).query.plain_words == ("season",)
    assert [term.words for term in parse_torrent_query("show -web dl", NOW).query.excluded] == [("webdl",)]
