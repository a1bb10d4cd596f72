"""The page and the metrics of a crawl: all figures, no addresses, and a refresh that can be stopped."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.crawler.core.snapshot import CrawlHistory, CrawlSnapshot
from lycosa.dht.crawler.metrics import crawl_metrics
from lycosa.dht.crawler.page import OUTCOME_TEXTS, STYLES, FunnelRow, crawl_pages, draw_charts, funnel_rows
from lycosa.infra.web.pages import HEADERS, STATIC
from tests.dht.crawler.views import history, snapshot_at, view


class FixedMonitor:
    """A crawl that has run for some seconds."""

    def __init__(self, seconds: int) -> None:
        self.history = history(seconds)
        self.seconds = seconds

    async def look(self) -> Any:
        return view(self.seconds)


def get(seconds: int, path: str = "/", query: str = "") -> str:
    monitor: Any = FixedMonitor(seconds)
    response = asyncio.run(crawl_pages(monitor, "torrents <1>")[path](query))
    assert response.status == 200
    return response.body.decode()


def test_the_funnel_shows_each_step_with_its_share_of_the_previous_one() -> None:
    assert funnel_rows(snapshot_at(100.0)) == [
        FunnelRow("Discovered", 13_000, None),
        FunnelRow("New", 8_000, 8 / 13),
        FunnelRow("Tried", 2_000, 0.25),
        FunnelRow("Peers found", 1_000, 0.5),
        FunnelRow("Fetched", 500, 0.5),
        FunnelRow("Stored", 500, 1.0),
    ]
    assert {row.share for row in funnel_rows(CrawlSnapshot(0.0))} == {None}
    resumed = CrawlSnapshot(0.0, {CrawlOutcome.SAMPLED: 10, CrawlOutcome.NEW: 8, CrawlOutcome.TRIED: 57})
    assert funnel_rows(resumed)[2] == FunnelRow("Tried", 57, None)


def test_the_page_shows_the_figures_of_the_crawl_and_what_limits_it() -> None:
    html = get(600)
    for shown in (
        "3,000",
        "300 a minute",
        "running for 10 min",
        "6.0%",
        "120 queries waiting for the limit of new addresses",
    ):
        assert shown in html, shown
    assert "torrents &lt;1&gt;" in html
    assert html.count("<polyline") == 9
    assert "style=" not in html, "the content security policy of the page forbids style attributes"
    assert not re.search(r"\d+\.\d+\.\d+\.\d+", html), "no address"


def test_a_crawl_that_has_just_started_has_a_page() -> None:
    html = get(0)
    assert "<polyline" not in html
    assert "The crawl has just started" in html


def test_the_page_refreshes_itself_until_it_is_stopped() -> None:
    assert '<meta http-equiv="refresh" content="10">' in get(60)
    stopped = get(60, query="refresh=off")
    assert "http-equiv" not in stopped
    assert '<a href="/">Update again</a>' in stopped


def test_the_page_loads_only_what_its_server_has() -> None:
    monitor: Any = FixedMonitor(60)
    pages = crawl_pages(monitor, "")
    loaded = re.findall(r'(?:href|src)="(/static/[^"]+)"', get(60))
    assert set(loaded) == {f"/static/{name}" for name in STYLES}
    for path in loaded:
        response = asyncio.run(pages[path](""))
        assert response.body == (STATIC / path.rpartition("/")[2]).read_bytes()
    assert asyncio.run(pages["/"]("")).fields.items() >= HEADERS.items()


def test_every_outcome_has_a_text_and_a_metric() -> None:
    assert set(OUTCOME_TEXTS) == set(CrawlOutcome)
    text = get(600, "/metrics")
    for outcome in CrawlOutcome:
        assert f'lycosa_dht_crawl_infohashes_total{{outcome="{outcome.name.lower()}"}}' in text
    assert 'lycosa_dht_crawl_infohashes_total{outcome="stored"} 3000' in text
    assert 'lycosa_dht_crawl_brake{brake="limit"} 1.0' in text
    assert 'lycosa_dht_contacts{family="ipv4",state="good"} 1200' in text


def test_prometheus_reads_the_metrics() -> None:
    families = list(text_string_to_metric_families(get(600, "/metrics")))
    assert len({each.name for each in families}) == len(families) == len(crawl_metrics(view(60)))


def test_a_chart_of_a_long_run_is_as_large_as_that_of_a_short_one() -> None:
    for drawn in draw_charts(history(100_000)):
        assert len(drawn.chart.lines[0].split()) < 250
    assert {name for drawn in draw_charts(CrawlHistory()) for _, name in drawn.legend} == {"\N{EN DASH}"}
