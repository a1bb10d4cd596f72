"""A crawl as metrics (`core.metrics` writes them).

A label takes few values: workers that take part now, no more than WORKERS_MAX, states, and STATS_MAX stats. The
counters without the label `worker` are those of the whole crawl, also of workers that have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lycosa.core.metrics import Metric, Samples
from lycosa.frontier.core.telemetry import COUNTS, STAT, STATES, CrawlView, WorkerView

WORKERS_MAX = 200
STATS_MAX = 500

COUNTED = {
    "pages": ("pages_total", "Pages that were fetched."),
    "unchanged": ("pages_unchanged_total", "Pages that had not changed since the last fetch, not among the others."),
    "items": ("items_total", "Items that were written."),
    "dropped": ("items_dropped_total", "Items that a pipeline dropped."),
    "bytes": ("received_bytes_total", "Bytes of pages, as transferred."),
    "failures": ("failures_total", "Visits that failed, whether they are tried again or not."),
    "cpu_ms": ("cpu_seconds_total", "Processor time."),
}


def metrics_of(view: CrawlView) -> list[Metric]:
    """Return the metrics of a crawl."""
    crawl = {"crawl": view.name}
    workers = view.workers[:WORKERS_MAX]
    states = dict.fromkeys(STATES, 0)
    for worker in [*view.workers, *view.gone]:
        states[worker.state] = states.get(worker.state, 0) + 1
    stats = [(name.removeprefix(STAT), count) for name, count in sorted(view.totals.items()) if name.startswith(STAT)]
    return [
        *(_totals(name, view.totals, crawl) for name in COUNTS if view.totals and view.tells(name)),
        Metric(
            "lycosa_stat_total",
            "counter",
            "Stats of the crawl (crawler.stats), by name.",
            [({**crawl, "stat": name}, count) for name, count in stats[:STATS_MAX]],
        ),
        Metric(
            "lycosa_frontier_urls",
            "gauge",
            "URLs by state.",
            [({**crawl, "state": state}, count) for state, count in view.frontier.items()],
        ),
        Metric(
            "lycosa_workers",
            "gauge",
            "Workers by state; those that have ended are known for a while.",
            [({**crawl, "state": state}, count) for state, count in states.items()],
        ),
        *(_by_worker(name, crawl, workers) for name in COUNTS),
        *_of_workers(crawl, workers),
    ]


def _totals(count: str, totals: Mapping[str, int], labels: Mapping[str, str]) -> Metric:
    name, said = COUNTED[count]
    return Metric(f"lycosa_{name}", "counter", f"{said} The whole crawl.", [(labels, _value(count, totals))])


def _by_worker(count: str, crawl: Mapping[str, str], workers: Sequence[WorkerView]) -> Metric:
    name, said = COUNTED[count]
    told = [each for each in workers if each.report and each.tells(count)]
    samples = [(_named(crawl, each), _value(count, each.report.counts)) for each in told if each.report]
    return Metric(f"lycosa_worker_{name}", "counter", f"{said} Of one worker.", samples)


def _of_workers(crawl: Mapping[str, str], workers: Sequence[WorkerView]) -> list[Metric]:
    told = [(_named(crawl, each), each, each.report) for each in workers if each.report]
    gauges: dict[str, tuple[str, Samples]] = {
        "leases": ("URLs it was lent.", [(labels, each.leased) for labels, each, _ in told]),
        "requests": ("Requests in work.", [(labels, report.under_way) for labels, _, report in told]),
        "resident_memory_bytes": ("Memory.", [(labels, report.memory_bytes) for labels, _, report in told]),
        "uptime_seconds": ("Since it began.", [(labels, report.uptime_s) for labels, _, report in told]),
        "silent_seconds": ("Since it was heard.", [(labels, each.silent_s) for labels, each, _ in told]),
    }
    info = [({**labels, "machine": report.machine, "version": report.version}, 1.0) for labels, _, report in told]
    return [
        Metric("lycosa_worker_info", "gauge", "Where it runs.", info),
        *(Metric(f"lycosa_worker_{name}", "gauge", said, samples) for name, (said, samples) in gauges.items()),
    ]


def _named(crawl: Mapping[str, str], worker: WorkerView) -> dict[str, str]:
    return {**crawl, "worker": worker.name}


def _value(count: str, counts: Mapping[str, int]) -> float:
    value = counts.get(count, 0)
    return value / 1000 if count == "cpu_ms" else value
