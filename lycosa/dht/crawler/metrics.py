"""The metrics of a crawl, for Prometheus, beside those of its nodes. No address and no infohash is in them."""

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
            "Infohashes by outcome; one that is tried again counts again.",
            [({"outcome": each.name.lower()}, now.total(each)) for each in CrawlOutcome],
        ),
        _gauge(
            "queue",
            "Infohashes of all runs by state; done ones are stored, refused, or no torrent.",
            [
                ({"state": "queued"}, now.queued),
                ({"state": "in_work"}, now.in_work),
                ({"state": "delayed"}, now.delayed),
                ({"state": "done"}, now.done),
            ],
        ),
        _gauge("coverage_ratio", "The part of the key space that this sweep has covered.", [({}, now.coverage)]),
        _gauge("known_ratio", "Estimated part of the network's infohashes that are known.", [({}, now.known_share)]),
        _counter("sweeps", "Complete sweeps over the key space.", [({}, now.sweeps)]),
        _gauge("connections", "Open connections to peers.", [({}, now.connections)]),
        _gauge("connections_max", "Maximum of open connections to peers.", [({}, now.connections_max)]),
        _gauge("store_waiting", "Torrents that wait for the store.", [({}, now.store_waiting)]),
        _counter("store_busy_seconds", "How long the store has worked.", [({}, now.store_busy_s)]),
        _counter(
            "query_waits",
            "How often a query had to wait for a limit.",
            [({"limit": each.name.lower()}, now.waits.get(each, 0)) for each in QueryLimit],
        ),
        _gauge(
            "brake",
            "1 for what holds the crawl back now.",
            [({"brake": each.value}, float(each in brakes)) for each in Brake],
        ),
        *node_metrics([(family(endpoint), status) for endpoint, status in view.nodes]),
    ]


def _gauge(name: str, help_text: str, samples: Samples) -> Metric:
    return Metric(f"{PREFIX}_crawl_{name}", "gauge", help_text, samples)


def _counter(name: str, help_text: str, samples: Samples) -> Metric:
    return Metric(f"{PREFIX}_crawl_{name}_total", "counter", help_text, samples)
