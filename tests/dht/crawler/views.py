"""Views of a crawl, as its monitor makes them, for tests of the page and the reports."""

from __future__ import annotations

from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.core.endpoints import pack
from lycosa.dht.core.events import NodeStatus, Reachability, Traffic
from lycosa.dht.core.limits import QueryLimit
from lycosa.dht.core.routing.table import TableCounts
from lycosa.dht.crawler.core.slowness import why_slow
from lycosa.dht.crawler.core.snapshot import CrawlHistory, CrawlSnapshot, rates_between
from lycosa.dht.crawler.monitor import TorrentCrawlView

NODE = NodeStatus(
    node_id=bytes(20),
    external_ip=b"",
    reachability=Reachability.REACHABLE,
    contacts=TableCounts(1200, 30, 1, 9),
    peers=1,
    infohashes=2,
    outstanding=4,
    waiting=120,
    operations=5,
    round_trip_s=None,
    traffic=Traffic(queries_out=9000, answers_in=6000, failed=3000, bytes_out=900_000, bytes_in=2_000_000),
)


def snapshot_at(at: float) -> CrawlSnapshot:
    """Return the snapshot of a crawl that has run for this many seconds."""
    tenths = int(at * 10)
    counts = {
        CrawlOutcome.SAMPLED: 12 * tenths,
        CrawlOutcome.ANNOUNCED: tenths,
        CrawlOutcome.NEW: 8 * tenths,
        CrawlOutcome.KNOWN: 5 * tenths,
        CrawlOutcome.TRIED: 2 * tenths,
        CrawlOutcome.FETCHED_FROM_SAMPLER: tenths // 4,
        CrawlOutcome.FETCHED_AFTER_LOOKUP: tenths // 4,
        CrawlOutcome.NO_PEERS: tenths,
        CrawlOutcome.NO_METADATA: tenths // 2,
        CrawlOutcome.STORED: tenths // 2,
    }
    return CrawlSnapshot(
        at,
        counts,
        queued=6 * tenths,
        delayed=tenths,
        done=tenths // 2,
        in_work=300,
        coverage=min(at / 10_000, 1.0),
        known_share=0.4,
        good_contacts=1200,
        other_contacts=31,
        reachability=Reachability.REACHABLE,
        queries_out=9 * tenths,
        answers_in=6 * tenths,
        unanswered=3 * tenths,
        bytes_out=900 * tenths,
        bytes_in=2000 * tenths,
        waits={QueryLimit.NEW_ADDRESSES: tenths},
        waiting_queries=120,
        connections=180,
        connections_max=500,
        store_waiting=2,
        store_waiting_max=256,
        store_busy_s=at / 50,
        cpu_s=at / 4,
        disk_free_bytes=10**11,
    )


def history(seconds: int) -> CrawlHistory:
    """Return the history of a crawl that has run for this many seconds."""
    found = CrawlHistory()
    for at in range(0, seconds + 1, 5):
        found.add(snapshot_at(float(at)))
    return found


def view(seconds: int) -> TorrentCrawlView:
    """Return the view of a crawl that has run for this many seconds."""
    now = snapshot_at(float(seconds))
    before = history(seconds).minute_ago(now)
    return TorrentCrawlView(
        now, float(seconds), rates_between(before, now), why_slow(before, now), [(pack("0.0.0.0", 6881), NODE)]
    )
