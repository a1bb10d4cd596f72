"""Reports of workers: sums, rates, and which stats are reported (C6, F8: shared statistics)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lycosa.frontier.core import telemetry
from lycosa.frontier.core.telemetry import (
    COUNTS,
    NAME_MAX,
    NOT_SUMMED,
    STAT_PREFIX,
    STATS_MAX,
    CrawlView,
    Rates,
    WorkerReport,
    WorkerView,
    decode,
    encode,
    page_count,
    rates,
    remaining_s,
    sum_counts,
    summable_stats,
)

COUNTED = st.dictionaries(st.sampled_from(COUNTS), st.integers(0, 1 << 52))


def report(uptime_s: float = 0.0, **counts: int) -> WorkerReport:
    return WorkerReport("machine", 1, "1.0", uptime_s, "crawling", counts=counts)


def view(uptime_s: float, name: str = "a#1", **counts: int) -> list[WorkerView]:
    return [WorkerView(name, "crawling", report=report(uptime_s, **counts))]


@given(COUNTED, st.floats(0, 1e9), st.text(), st.integers(0, 1 << 40))
def test_a_report_is_decoded_unchanged(counts, uptime_s, reason, memory):
    sent = WorkerReport("machine", 7, "1.0", uptime_s, "paused", reason, 3, 64, memory, counts)
    assert decode(encode(sent)) == sent


@given(st.binary())
def test_bytes_that_are_not_a_report_are_ignored(data):
    assert decode(data) is None


def test_a_report_of_a_later_version_with_more_fields_is_read():
    sent = telemetry.encode(
        {**dict.fromkeys(("machine", "version", "state"), "x"), "pid": 1, "uptime_s": 1.0, "new": 1}
    )
    assert decode(sent) == WorkerReport("x", 1, "x", 1.0, "x")


@given(st.lists(COUNTED))
def test_sums_include_every_count_once(all_counts):
    total = sum_counts(all_counts)
    assert {name: value for name, value in total.items() if value} == {
        name: value for name in COUNTS if (value := sum(counts.get(name, 0) for counts in all_counts))
    }


@given(COUNTED, COUNTED, st.floats(0, 1e6), st.floats(0.001, 1e6))
def test_a_rate_times_its_time_is_the_count(before, more, uptime_s, took_s):
    after = sum_counts([before, more])
    found = rates(report(uptime_s, **before), report(uptime_s + took_s, **after))
    took_s = uptime_s + took_s - uptime_s
    for name in found:
        assert abs(found[name] * took_s - more.get(name, 0)) <= 1e-9 * (1 + after.get(name, 0))


@given(COUNTED, st.floats(0, 1e6))
def test_there_is_no_rate_without_elapsed_time(counts, uptime_s):
    assert rates(report(uptime_s, **counts), report(uptime_s, **counts)) == {}


def test_rates_cover_the_last_seconds():
    found = Rates(window_s=5.0)
    for second in range(20):
        found.add(view(float(second), pages=10 * second if second < 10 else 100 + 2 * (second - 10)))
    assert round(found.of("a#1")["pages"], 3) == 2.0
    assert found.total()["pages"] == found.of("a#1")["pages"]


def test_reading_a_report_twice_does_not_lower_the_rate():
    found = Rates()
    for uptime_s in (1.0, 2.0, 2.0, 2.0):
        found.add(view(uptime_s, pages=int(10 * uptime_s)))
    assert found.of("a#1")["pages"] == 10.0
    assert len(found._reports["a#1"]) == 2


def test_the_rate_of_a_worker_that_left_is_forgotten():
    found = Rates()
    found.add(view(1.0, pages=1))
    found.add(view(2.0, pages=2))
    found.add(view(1.0, name="b#2", pages=5))
    assert (found.of("a#1"), found.of("b#2"), found.total()) == ({}, {}, {})


@given(st.dictionaries(st.text(max_size=NAME_MAX + 5), st.integers() | st.floats() | st.text() | st.booleans()))
def test_only_integers_that_can_be_summed_are_reported(stats):
    found = summable_stats(stats)
    for name, value in found.items():
        assert name.startswith(STAT_PREFIX)
        assert type(value) is int
        assert stats[name.removeprefix(STAT_PREFIX)] == value
        assert abs(value) < 1 << 53
    assert encode(report(1.0, **found))


def test_a_report_is_bounded_and_keeps_its_stats_when_more_names_come():
    stats: dict[str, object] = dict.fromkeys(NOT_SUMMED, 1)
    stats |= {f"retry/reason_count/{n}": n for n in range(STATS_MAX)}
    first = summable_stats(stats)
    stats["late"] = 1
    assert len(first) == STATS_MAX
    assert summable_stats(stats) == first
    assert not {name.removeprefix(STAT_PREFIX) for name in first} & NOT_SUMMED


def test_the_remaining_time_of_the_known_urls():
    crawl = CrawlView("x", 0.0, frontier={"queued": 90, "leased": 5, "delayed": 3, "outgoing": 2, "done": 1000})
    assert remaining_s(crawl, {"pages": 8.0, "unchanged": 2.0}) == 10.0
    assert remaining_s(crawl, {}) is None
    assert remaining_s(CrawlView("x", 0.0), {"pages": 1.0}) is None
    assert page_count({"pages": 2, "unchanged": 3, "items": 9}) == 5


def test_stats_whose_name_is_not_text_are_not_reported():
    assert summable_stats({404: 1, None: 2, ("a",): 3, "text": 4}) == {f"{STAT_PREFIX}text": 4}
