"""The page of a running crawl: funnel, charts, and what slows the crawl down. It needs no JavaScript.

The page refreshes itself, except at "/?refresh=off". It shows no addresses, infohashes or names of torrents.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

from lycosa.core.metrics import exposition
from lycosa.core.units import format_duration, format_size
from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.core.endpoints import IPV4, family
from lycosa.dht.core.events import Reachability
from lycosa.dht.crawler.core.snapshot import CrawlHistory, CrawlRates, CrawlSnapshot
from lycosa.dht.crawler.metrics import crawl_metrics
from lycosa.dht.crawler.monitor import CrawlMonitor, TorrentCrawlView
from lycosa.infra.web.charts import LineChart, line_chart
from lycosa.infra.web.http_server import ServerResponse
from lycosa.infra.web.metrics_page import metrics_pages
from lycosa.infra.web.pages import HEADERS, page_templates, static_pages
from lycosa.infra.web.small_site import Pages

REFRESH_S = 10
TEMPLATES = Path(__file__).parent / "templates"
STYLES = ("site.css", "dashboard.css", "charts.css", "favicon.svg")

OUTCOME_TEXTS = {
    CrawlOutcome.SAMPLED: "found in samples",
    CrawlOutcome.ANNOUNCED: "announced to our node",
    CrawlOutcome.WANTED: "requested from our node",
    CrawlOutcome.DROPPED: "dropped: announced or requested too fast to queue",
    CrawlOutcome.NEW: "new",
    CrawlOutcome.KNOWN: "already known",
    CrawlOutcome.MALFORMED: "invalid infohash",
    CrawlOutcome.DISTRUSTED: "ignored: sampled from an untrusted host",
    CrawlOutcome.ALREADY_STORED: "stored before they were tried",
    CrawlOutcome.FORBIDDEN: "denied or evicted: not tried",
    CrawlOutcome.TRIED: "tried",
    CrawlOutcome.FETCHED_FROM_SAMPLER: "fetched without a lookup",
    CrawlOutcome.FETCHED_AFTER_LOOKUP: "fetched after a lookup",
    CrawlOutcome.NO_PEERS: "failed: no peers",
    CrawlOutcome.NO_METADATA: "failed: no peer delivered",
    CrawlOutcome.BAD_INFO: "failed: invalid metadata",
    CrawlOutcome.POSTPONED: "postponed by our own limits",
    CrawlOutcome.NO_LOOKUP: "postponed: no lookup available",
    CrawlOutcome.REFUSED_BY_RULES: "refused by rules",
    CrawlOutcome.STORED: "stored",
    CrawlOutcome.STORED_BEFORE: "already in the store",
    CrawlOutcome.REFUSED: "refused by the store",
    CrawlOutcome.EVICTED: "removed: the store has reached its maximum size",
    CrawlOutcome.COUNTED: "peers counted",
    CrawlOutcome.NOT_COUNTED: "not counted: no node answered",
}

REACHABILITY_TEXTS = {
    Reachability.REACHABLE: ("Yes", "queries arrive from nodes that it has not contacted"),
    Reachability.UNREACHABLE: ("No", "open its UDP port in the firewall and forward it in the router"),
    Reachability.UNKNOWN: ("\N{EN DASH}", "not known yet, or read-only or on loopback"),
}


class FunnelRow(NamedTuple):
    """A step of the funnel. `share`: its share of the previous step, from 0 to 1.

    None for the first step, and if the previous step counted nothing or less: a crawl also tries infohashes of earlier
    runs.
    """

    name: str
    number: int
    share: float | None


class ChartSeries(NamedTuple):
    """A line of a chart."""

    name: str
    value: Callable[[CrawlSnapshot, CrawlRates], float]


class ChartPlan(NamedTuple):
    """A chart of up to two lines. `show` formats its numbers."""

    title: str
    series: Sequence[ChartSeries]
    show: Callable[[float], str]


class DrawnChart(NamedTuple):
    """A chart with the latest value of each of its lines."""

    title: str
    chart: LineChart
    legend: list[tuple[str, str]]
    top: str


def show_number(value: float) -> str:
    """Format a number: with one decimal if it is below 10 and not whole."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def show_traffic(value: float) -> str:
    """Format bytes per second."""
    return f"{format_size(value)}/s"


CHARTS = (
    ChartPlan("Discovered a minute", [ChartSeries("discovered", lambda _, r: r.discovered)], show_number),
    ChartPlan(
        "Tries a minute",
        [ChartSeries("tried", lambda _, r: r.tried), ChartSeries("fetched", lambda _, r: r.fetched)],
        show_number,
    ),
    ChartPlan("Stored a minute", [ChartSeries("stored", lambda _, r: r.stored)], show_number),
    ChartPlan(
        "Queue",
        [ChartSeries("queued", lambda s, _: s.queued), ChartSeries("to try later", lambda s, _: s.delayed)],
        show_number,
    ),
    ChartPlan("Good contacts", [ChartSeries("contacts", lambda s, _: s.good_contacts)], show_number),
    ChartPlan(
        "Traffic of the node",
        [ChartSeries("out", lambda _, r: r.bytes_out_per_s), ChartSeries("in", lambda _, r: r.bytes_in_per_s)],
        show_traffic,
    ),
)


def funnel_rows(now: CrawlSnapshot) -> list[FunnelRow]:
    """Return the steps from discovery to the store."""
    steps = [
        ("Discovered", now.discovered),
        ("New", now.total(CrawlOutcome.NEW)),
        ("Tried", now.tried),
        ("Peers found", now.peers_found),
        ("Fetched", now.fetched),
        ("Stored", now.stored),
    ]
    rows = [FunnelRow(*steps[0], None)]
    for (_, before), (name, count) in pairwise(steps):
        rows.append(FunnelRow(name, count, count / before if count <= before and before else None))
    return rows


def draw_charts(history: CrawlHistory) -> list[DrawnChart]:
    """Return the charts of a run."""
    points = history.rates()
    times = [snapshot.at for snapshot, _ in points]
    drawn = []
    for plan in CHARTS:
        values = [[series.value(*point) for point in points] for series in plan.series]
        chart = line_chart(times, values)
        last = [plan.show(each[-1]) if each else "\N{EN DASH}" for each in values]
        names = [series.name for series in plan.series]
        drawn.append(DrawnChart(plan.title, chart, list(zip(names, last, strict=True)), plan.show(chart.top)))
    return drawn


class CrawlPage:
    """The page. `name` is shown beside its title."""

    def __init__(self, monitor: CrawlMonitor, name: str) -> None:
        self._monitor, self._name = monitor, name
        templates = page_templates(TEMPLATES)
        templates.filters.update(n="{:,}".format, rate=show_number, duration=format_duration)
        self._template = templates.get_template("crawl.html")

    async def respond(self, query: str) -> ServerResponse:
        view = await self._monitor.look()
        html = self.render(view, self._monitor.history, refreshes=parse_qs(query).get("refresh") != ["off"])
        fields = {"content-type": "text/html; charset=utf-8", "cache-control": "no-store", **HEADERS}
        return ServerResponse(200, html.encode(), fields)

    def render(self, view: TorrentCrawlView, history: CrawlHistory, *, refreshes: bool) -> str:
        now = view.snapshot
        nodes = [("IPv4" if family(endpoint) == IPV4 else "IPv6", status) for endpoint, status in view.nodes]
        return self._template.render(
            name=self._name,
            now=now,
            view=view,
            rates=view.rates,
            funnel=funnel_rows(now),
            outcomes=[
                (OUTCOME_TEXTS.get(each, each.name.lower().replace("_", " ")), now.total(each))
                for each in CrawlOutcome
                if now.total(each)
            ],
            charts=draw_charts(history),
            chart_span_s=history.points[-1].at - history.points[1].at if len(history.points) > 1 else 0.0,
            reachable=REACHABILITY_TEXTS[now.reachability],
            reachability={each: text for each, (text, _) in REACHABILITY_TEXTS.items()},
            nodes=nodes,
            refresh_s=REFRESH_S if refreshes else 0,
        )


def crawl_pages(monitor: CrawlMonitor, name: str) -> Pages:
    """Return the page, the metrics and the style sheets by path."""
    metrics = metrics_pages(crawl_metrics_page(monitor))
    return {"/": CrawlPage(monitor, name).respond, **metrics, **static_pages(*STYLES)}


def crawl_metrics_page(monitor: CrawlMonitor) -> Callable[[], Awaitable[bytes]]:
    """Return a function that renders the metrics as text."""

    async def metrics() -> bytes:
        return exposition(crawl_metrics(await monitor.look()))

    return metrics
