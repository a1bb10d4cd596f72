"""Snapshots of a crawl: rates, and a history in bounded memory."""

from __future__ import annotations

from itertools import pairwise

from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.crawler.core.snapshot import POINTS_MAX, CrawlHistory, CrawlRates, CrawlSnapshot, rates_between


def test_rates_are_per_minute_and_traffic_per_second() -> None:
    before = CrawlSnapshot(100.0, {CrawlOutcome.SAMPLED: 10})
    counts = {
        CrawlOutcome.SAMPLED: 30,
        CrawlOutcome.ANNOUNCED: 10,
        CrawlOutcome.TRIED: 5,
        CrawlOutcome.FETCHED_AFTER_LOOKUP: 3,
        CrawlOutcome.STORED: 2,
    }
    now = CrawlSnapshot(130.0, counts, queries_out=60, bytes_out=3000, bytes_in=30)
    assert rates_between(before, now) == CrawlRates(60.0, 10.0, 6.0, 4.0, 2.0, 100.0, 1.0)
    assert rates_between(now, now) == CrawlRates()


def test_the_history_of_a_run_of_any_length_is_evenly_spaced_and_bounded() -> None:
    for length in (10, 1000, 12_345):
        history = CrawlHistory()
        for second in range(length):
            history.add(CrawlSnapshot(float(second)))
        assert history.points[0].at == 0.0
        assert min(length, POINTS_MAX // 2) <= len(history.points) <= POINTS_MAX
        assert len({later.at - earlier.at for earlier, later in pairwise(history.points)}) == 1


def test_the_rates_of_each_point_are_those_of_the_minute_before_it() -> None:
    history = CrawlHistory()
    for second, tried in ((0, 0), (30, 30), (60, 30), (90, 120), (300, 120)):
        history.add(CrawlSnapshot(float(second), {CrawlOutcome.TRIED: tried}))
    found = [(point.at, rates.tried) for point, rates in history.rates()]
    assert found == [(30.0, 60.0), (60.0, 30.0), (90.0, 90.0), (300.0, 0.0)]


def test_rates_are_taken_over_the_last_minute_however_long_the_run_is() -> None:
    history = CrawlHistory()
    assert history.minute_ago(CrawlSnapshot(5.0)).at == 5.0
    for second in range(0, 100_000, 5):
        history.add(CrawlSnapshot(float(second)))
        assert history.minute_ago(CrawlSnapshot(second + 3.0)).at == max(0, second - 60), second
