"""The names of segments, by time, spider and function (F2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import BadSetting, BadSpider
from lycosa.crawl.engine.records import NOT_BEFORE_MAX
from lycosa.frontier.core.segments import NAME_MAX, parse_segments, segment_order, starts_at
from lycosa.http.core.request import Request

SEED = Request("http://shop.example/")
SPANS = ["hour", "day", "week", "month", "6h", "5h", "3d", "2w", "999w", "999d"]
DAY_S = 86_400


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def name(word: str, time: str) -> str:
    return parse_segments(word, "shop").of_run(SEED, at(time))


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("1970-01-02", 86_400.0),
        ("1970-01-01T02", 7_200.0),
        ("1970-01-01T02:30", 9_000.0),
        ("", 0.0),
        ("spring", 0.0),
        ("2026-13-01", 0.0),
        ("2026-11-21x", 0.0),
    ],
)
def test_the_name_gives_the_start(name: str, start: float) -> None:
    assert starts_at(name) == start


def test_the_oldest_comes_first() -> None:
    names = ["2026-11-21", "2026-11-20", "", "2026-11-20T10", "spring"]
    assert sorted(names, key=segment_order) == ["", "spring", "2026-11-20", "2026-11-20T10", "2026-11-21"]


@pytest.mark.parametrize(
    ("word", "time", "segment"),
    [
        ("hour", "2026-11-21T10:59:59.999", "2026-11-21T10"),
        ("hour", "2026-11-21T11:00", "2026-11-21T11"),
        ("day", "2026-11-21T23:59:59.999", "2026-11-21"),
        ("day", "2026-11-22T00:00", "2026-11-22"),
        ("day", "2026-12-31T23:59:59", "2026-12-31"),
        ("day", "2027-01-01T00:00", "2027-01-01"),
        ("day", "2028-02-29T12:00", "2028-02-29"),
        ("day", "2100-02-28T23:59", "2100-02-28"),
        ("day", "2100-03-01T00:00", "2100-03-01"),
        # Clocks go forward in Europe on 2026-03-29 and back on 2026-10-25; UTC is not affected.
        ("hour", "2026-03-29T02:30", "2026-03-29T02"),
        ("hour", "2026-10-25T01:30", "2026-10-25T01"),
        ("day", "2026-10-25T23:30", "2026-10-25"),
        ("week", "2026-11-21T10:00", "2026-11-16"),
        ("week", "2026-11-22T23:59:59", "2026-11-16"),
        ("week", "2026-11-23T00:00", "2026-11-23"),
        ("week", "2026-12-31T12:00", "2026-12-28"),  # ISO week 53, which ends in the next year
        ("week", "2027-01-03T23:59", "2026-12-28"),
        ("week", "2027-01-04T00:00", "2027-01-04"),
        ("month", "2026-11-21T10:00", "2026-11-01"),
        ("month", "2028-02-29T23:59:59", "2028-02-01"),
        ("6h", "2026-11-21T05:59", "2026-11-21T00"),
        ("6h", "2026-11-21T18:00", "2026-11-21T18"),
        ("24h", "2026-11-21T18:00", "2026-11-21T00"),
        ("3d", "1970-01-03T23:59", "1970-01-01"),
        ("3d", "1970-01-04T00:00", "1970-01-04"),
        ("3d", "2026-11-23T23:59", "2026-11-21"),
        ("3d", "2026-11-24T00:00", "2026-11-24"),
        ("2w", "1970-01-05T00:00", "1970-01-05"),
        ("2w", "1970-01-18T23:59", "1970-01-05"),
        ("hour", "1969-12-31T23:59", "1969-12-31T23"),
        ("3d", "1969-12-31T23:59", "1969-12-29"),
        ("week", "1970-01-01T00:00", "1969-12-29"),
        ("month", "1969-12-31T23:59", "1969-12-01"),
        ("day", "0001-01-01T12:00", "0001-01-01"),
        ("hour", "9999-12-31T23:59", "9999-12-31T23"),
    ],
)
def test_a_time_segment_is_named_by_its_start_in_utc(word: str, time: str, segment: str) -> None:
    assert name(word, time) == segment


@pytest.mark.parametrize("word", SPANS)
def test_the_largest_stored_time_has_a_segment(word: str) -> None:
    assert parse_segments(word, "").of_request("", NOT_BEFORE_MAX).startswith("51")


@given(st.sampled_from(SPANS), st.floats(0, NOT_BEFORE_MAX), st.floats(0, 90 * DAY_S))
def test_segments_have_no_gaps(word: str, time: float, later: float) -> None:
    naming = parse_segments(word, "")
    name, next_name = naming.of_run(SEED, time), naming.of_run(SEED, time + later)
    assert starts_at(name) <= time
    assert segment_order(name) <= segment_order(next_name)
    assert naming.of_run(SEED, starts_at(name)) == name or starts_at(name) < 0
    if name != next_name:
        assert starts_at(next_name) > time


@pytest.mark.parametrize("word", [word for word in SPANS if word != "month"])
def test_every_segment_has_its_length(word: str) -> None:
    lengths = {"hour": "1h", "day": "1d", "week": "1w"}
    text = lengths.get(word, word)
    length = timedelta(**{{"h": "hours", "d": "days", "w": "weeks"}[text[-1]]: int(text[:-1])}).total_seconds()
    naming = parse_segments(word, "")
    start = starts_at(naming.of_run(SEED, at("2026-11-21T10:30")))
    for number in range(5):
        begin = start + number * length
        assert starts_at(naming.of_run(SEED, begin)) == begin
        assert starts_at(naming.of_run(SEED, begin + length - 0.001)) == begin


@pytest.mark.parametrize("word", ["", "none"])
def test_a_crawl_without_segments(word: str) -> None:
    naming = parse_segments(word, "shop")
    assert (naming.of_run(SEED, 1e9), naming.of_request("", 2e9), naming.of_request("2026-11-21", 2e9)) == (
        "",
        "",
        "2026-11-21",
    )


def test_a_segment_for_each_spider() -> None:
    naming = parse_segments("spider", "shop")
    assert (naming.of_run(SEED, 1e9), naming.of_request("shop", 2e9)) == ("shop", "shop")


@pytest.mark.parametrize("spider", ["", "my shop", "a/b", "größe", "a\n", ".x", "a" * (NAME_MAX + 1)])
def test_a_spider_whose_name_is_not_valid_for_a_segment(spider: str) -> None:
    with pytest.raises(BadSetting, match=r"^segment: the spider's name '.*' cannot name a segment: write at most 100"):
        parse_segments("spider", spider)


@pytest.mark.parametrize(
    ("inherited", "not_before", "segment"),
    [
        ("2026-11-21", 0.0, "2026-11-21"),
        ("2026-11-21", at("2026-11-21T23:00"), "2026-11-21"),
        ("2026-11-21", at("2026-11-24T23:00"), "2026-11-24"),
        ("2026-11-21", at("2026-11-20T23:00"), "2026-11-21"),
        ("", at("2026-11-20T23:00"), "2026-11-20"),
    ],
)
def test_a_request_goes_into_the_segment_of_its_due_time_but_never_back(
    inherited: str, not_before: float, segment: str
) -> None:
    assert parse_segments("day", "").of_request(inherited, not_before) == segment


def test_a_function_names_the_segment_of_a_run() -> None:
    calls: list[Any] = []

    def resolver(first: Request, now: float) -> str:
        calls.append((first, now))
        return "sale-2026"

    naming = parse_segments("shop:segment", "", resolver)
    assert naming.of_run(SEED, 5.0) == "sale-2026"
    assert calls == [(SEED, 5.0)]
    assert naming.of_request("sale-2026", NOT_BEFORE_MAX) == "sale-2026"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "returned a NoneType: write at most 100 letters"),
        (5, "returned a int: write"),
        ("", "returned '': write"),
        ("a b", "returned 'a b': write"),
        ("a\n", r"returned 'a\n': write"),
        ("a\u202eb", r"returned 'a\u202eb': write"),
        ("x" * 101, "returned 'xxxxxx"),
        ("/etc", "returned '/etc': write"),
    ],
)
def test_an_invalid_name_from_a_resolver_is_refused(returned: Any, message: str) -> None:
    with pytest.raises(BadSpider) as caught:
        parse_segments("shop:segment", "", lambda first, now: returned).of_run(SEED, 0.0)
    assert str(caught.value).startswith(f"the segment resolver shop:segment {message}")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_failing_resolver_is_reported_in_one_line() -> None:
    def resolver(first: Request, now: float) -> str:
        raise OSError("no\nfile")

    with pytest.raises(BadSpider, match=r"^the segment resolver shop:segment failed: OSError: no$"):
        parse_segments("shop:segment", "", resolver).of_run(SEED, 0.0)


@pytest.mark.parametrize("word", ["minute", "30min", "30m", "90s", "second", "5 minutes", "100ms"])
def test_a_period_below_an_hour_is_refused_with_the_reason(word: str) -> None:
    with pytest.raises(BadSetting, match=rf"^segment: '{word}' is too short: each segment fetches .*: write hour$"):
        parse_segments(word, "")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("dayly", "did you mean day?"),
        ("Month", "did you mean month?"),
        ("0d", "write none, hour, day"),
        ("1000d", "write none, hour, day"),
        ("-3d", "write none, hour, day"),
        ("3y", "write none, hour, day"),
        ("٣d", "write none, hour, day"),
    ],
)
def test_an_unknown_word_is_refused(word: str, message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        parse_segments(word, "")
    assert str(caught.value).startswith(f"segment: {word!r} is unknown: {message}")
