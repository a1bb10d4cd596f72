"""The Prometheus metrics of a crawl and its nodes. They contain no addresses and no infohashes."""

from __future__ import annotations

from lycosa.core.metrics import Metric, Samples
from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.core.endpoints import family
from lycosa.dht.core.limits import QueryLimit
from lycosa.dht.crawler.core.slowness import Brake
from lycosa.dht.crawler.monitor import TorrentCrawlView
from lycosa.dht.metrics import PREFIX, node_metrics


def crawl_metrics(view: TorrentCrawlView) -> list[Metric]:
    """Return the metrics of a crawl and of its nodes."""
    now, brakes = view.snapshot, {each.brake for each in view.findings}
    return [
        _counter(
            "infohashes",
            "Infohashes by outcome. A retried infohash counts again.",
            [({"outcome": each.name.lower()}, now.total(each)) for each in CrawlOutcome],
        ),
        _gauge(
            "queue",
            "Infohashes of all runs by state. Done means stored, refused, or not a torrent.",
            [
                ({"state": "queued"}, now.queued),
                ({"state": "in_work"}, now.in_work),
                ({"state": "delayed"}, now.delayed),
                ({"state": "done"}, now.done),
            ],
        ),
        _gauge("coverage_ratio", "Share of the key space that this sweep has covered.", [({}, now.coverage)]),
        _gauge("known_ratio", "Estimated share of the network's infohashes that are known.", [({}, now.known_share)]),
        _counter("sweeps", "Complete sweeps over the key space.", [({}, now.sweeps)]),
        _gauge("connections", "Open connections to peers.", [({}, now.connections)]),
        _gauge("connections_max", "Maximum number of open connections to peers.", [({}, now.connections_max)]),
        _gauge("store_waiting", "Torrents that wait for the store.", [({}, now.store_waiting)]),
        _counter("store_busy_seconds", "Time that the store was busy.", [({}, now.store_busy_s)]),
        _counter(
            "query_waits",
            "Waits of queries and connections for a limit. A query that waits twice counts twice.",
            [({"limit": each.name.lower()}, now.waits.get(each, 0)) for each in QueryLimit],
        ),
        _gauge(
            "brake",
            "1 if this limits the crawl now, else 0.",
            [({"brake": each.value}, float(each in brakes)) for each in Brake],
        ),
        *node_metrics([(family(endpoint), status) for endpoint, status in view.nodes]),
    ]


def _gauge(name: str, help_text: str, samples: Samples) -> Metric:
    return Metric(f"{PREFIX}_crawl_{name}", "gauge", help_text, samples)


def _counter(name: str, help_text: str, samples: Samples) -> Metric:
    return Metric(f"{PREFIX}_crawl_{name}_total", "counter", help_text, samples)
