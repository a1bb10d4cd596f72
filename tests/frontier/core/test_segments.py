"""The names of segments, by time, spider and function (F2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import BadSetting, BadSpider
from lycosa.crawl.engine.records import NOT_BEFORE_MAX
from lycosa.frontier.core.model import SegmentState, SegmentView
from lycosa.frontier.core.segments import (
    EPOCH,
    NAME_MAX,
    SEGMENTS_KEPT_MAX,
    Retention,
    SegmentNaming,
    by_period,
    expired_segments,
    is_followed,
    latest_starts,
    parse_segments,
    segment_order,
    starts_at,
)
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
        ("1970-01-02+3d", 86_400.0),
        ("1970-01-01T02+hour", 7_200.0),
        ("1970-01-02+day+day", 0.0),
        ("1970-01-02+often", 0.0),
    ],
)
def test_the_name_of_a_segment_gives_its_start(name: str, start: float) -> None:
    assert starts_at(name) == start


def test_the_oldest_segment_comes_first() -> None:
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
    assert parse_segments(word, "").when_due("", NOT_BEFORE_MAX).startswith("51")


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
def test_every_segment_has_the_length_of_its_period(word: str) -> None:
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
    assert (naming.of_run(SEED, 1e9), naming.when_due("", 2e9), naming.when_due("2026-11-21", 2e9)) == (
        "",
        "",
        "2026-11-21",
    )


def test_a_segment_for_each_spider() -> None:
    naming = parse_segments("spider", "shop")
    assert (naming.of_run(SEED, 1e9), naming.when_due("shop", 2e9)) == ("shop", "shop")


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
    assert parse_segments("day", "").when_due(inherited, not_before) == segment


def test_a_function_names_the_segment_of_a_run() -> None:
    calls: list[Any] = []

    def resolver(first: Request, now: float) -> str:
        calls.append((first, now))
        return "sale-2026"

    naming = parse_segments("shop:segment", "", resolver)
    assert naming.of_run(SEED, 5.0) == "sale-2026"
    assert calls == [(SEED, 5.0)]
    assert naming.when_due("sale-2026", NOT_BEFORE_MAX) == "sale-2026"


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


COMMENTS = Request("http://shop.example/comments/1")
LEGAL = Request("http://shop.example/legal")


def by_path(request: Request) -> str | None:
    return {"comments": "3d", "legal": "none"}.get(request.url.split("/")[3], "day")


def shop(time: str) -> SegmentNaming:
    naming = by_period(by_path, "shop:period")
    naming.begin_run(at(time))
    return naming


def test_each_request_has_the_segment_of_its_period() -> None:
    naming = shop("2026-11-23T10:00")
    assert naming.of_run(SEED, at("2026-11-23T10:00")) == "2026-11-23+day"
    found = [naming.of_request(request, "2026-11-23+day") for request in (SEED, COMMENTS, LEGAL)]
    assert found == ["2026-11-23+day", "2026-11-21+3d", ""]
    assert naming.of_request(SEED, "") == "2026-11-23+day"
    assert naming.of_request(Request(COMMENTS.url, not_before=at("2026-11-28")), "2026-11-23+day") == "2026-11-27+3d"


def test_a_request_inherits_a_segment_of_its_period() -> None:
    """An unfinished segment of an earlier run is finished first."""
    naming = shop("2026-11-24T10:00")
    assert naming.of_request(SEED, "2026-11-20+day") == "2026-11-20+day"
    assert naming.of_request(COMMENTS, "2026-11-18+3d") == "2026-11-18+3d"
    assert naming.of_request(COMMENTS, "2026-11-20+day") == "2026-11-24+3d"


def test_a_request_stays_in_the_segment_of_its_page_if_the_resolver_names_no_period() -> None:
    naming = by_period(lambda _: None, "shop:period")
    naming.begin_run(1e9)
    assert naming.of_run(SEED, 1e9) == ""
    assert naming.of_request(SEED, "2026-11-20+day") == "2026-11-20+day"


def test_two_words_for_one_period_give_the_same_name() -> None:
    named = []
    for word in ("1d", "day", "1w", "week", "1h", "hour", "month", "none", ""):
        naming = by_period(lambda _, word=word: word, "shop:period")
        named.append(naming.of_run(SEED, at("2026-11-24T10:00")))
    days, weeks, hours = ["2026-11-24+day"] * 2, ["2026-11-23+week"] * 2, ["2026-11-24T10+hour"] * 2
    assert named == [*days, *weeks, *hours, "2026-11-01+month", "", ""]


@pytest.mark.parametrize(
    ("returned", "shown"), [("5 minutes", "'5 minutes'"), ("2026-11-21", "'2026-11-21'"), (3, "a int"), ("3d\n", "'3d")]
)
def test_a_resolver_that_returns_something_other_than_a_period_is_refused(returned: Any, shown: str) -> None:
    naming = by_period(lambda _: returned, "shop:period")
    naming.begin_run(1e9)
    with pytest.raises(
        BadSpider, match=f"^the segment resolver shop:period returned {shown}.* for http.*: return a period"
    ):
        naming.of_request(SEED, "")


def test_a_resolver_of_periods_that_fails() -> None:
    naming = by_period(lambda _: 1 // 0, "shop:period")
    with pytest.raises(BadSpider, match=r"shop:period failed for http://shop\.example/: ZeroDivisionError: "):
        naming.of_run(SEED, 1e9)


def test_the_segments_of_a_run_are_those_of_all_periods() -> None:
    names = ["2026-11-20+day", "2026-11-18+3d", "2026-11-21+3d", "", "spring", "2026-11-20"]
    assert shop("2026-11-24T10:00").current("2026-11-24+day", names) == ["", "2026-11-24+3d", "2026-11-24+day"]
    assert parse_segments("day", "").current("2026-11-24", names) == ["2026-11-24"]


def test_segments_are_followed_by_those_of_the_same_period() -> None:
    names = ["", "spring", "2026-11-20", "2026-11-21", "2026-11-20+day", "2026-11-24+3d"]
    latest = latest_starts(names)
    assert [name for name in names if is_followed(name, latest)] == ["2026-11-20"]
    assert not any(is_followed(name, latest_starts(names, at("2026-11-20T10:00"))) for name in names)


def views(*names: str, state: SegmentState = SegmentState.ARCHIVED) -> list[SegmentView]:
    return [SegmentView(name, state, starts_at(name), done=1) for name in names]


DAYS = [f"2026-11-{day}" for day in range(10, 20)]
TODAY = at("2026-11-19T10:00")


@pytest.mark.parametrize(
    ("retention", "expired"),
    [
        (Retention(), []),
        (Retention(number=7), DAYS[:2]),
        (Retention(number=1), DAYS[:8]),
        (Retention(age_s=5 * DAY_S), DAYS[:5]),
        (Retention(number=7, age_s=5 * DAY_S), DAYS[:5]),
        (Retention(number=2, age_s=5 * DAY_S), DAYS[:7]),
        (Retention(age_s=3600.0), DAYS[:8]),
    ],
)
def test_segments_expire_by_number_and_age_except_the_last_two(retention: Retention, expired: list[str]) -> None:
    assert expired_segments(views(*reversed(DAYS)), retention, TODAY) == expired


def test_only_archived_time_segments_expire() -> None:
    others = views("", "spring", "2026-11-05+day", "2026-11-30")
    busy = views("2026-11-08", state=SegmentState.OPEN) + views("2026-11-09", state=SegmentState.FINISHED)
    dropped = views("2026-11-07", state=SegmentState.DROPPED)
    assert expired_segments([*others, *busy, *dropped, *views(*DAYS)], Retention(1, 1.0), TODAY) == DAYS[:8]


def test_retention_counts_the_segments_of_each_period_separately() -> None:
    names = [f"{day}+day" for day in DAYS] + [f"2026-11-{day:02}+3d" for day in (9, 12, 15, 18)]
    assert expired_segments(views(*names), Retention(number=2), TODAY) == ["2026-11-09+3d", *names[:7]]


def test_the_oldest_of_too_many_segments_expire_even_without_a_setting() -> None:
    hours = [(EPOCH + timedelta(hours=number)).isoformat()[:13] for number in range(10, SEGMENTS_KEPT_MAX + 15)]
    assert expired_segments(views("spring", *hours), Retention(), 1e9) == hours[:6]
