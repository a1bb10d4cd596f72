"""The metrics of a crawl (`core.metrics` formats them).

Label values are bounded: WORKERS_MAX current workers, the states, and STATS_MAX stats. Counters without the label
`worker` include workers that have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lycosa.core.metrics import Metric, Samples
from lycosa.frontier.core.telemetry import COUNTS, STAT_PREFIX, STATES, CrawlView, WorkerReport, WorkerView

WORKERS_MAX = 200
STATS_MAX = 500

COUNTED = {
    "pages": ("pages_total", "Fetched pages."),
    "unchanged": ("pages_unchanged_total", "Pages unchanged since the last fetch; not included in pages."),
    "items": ("items_total", "Written items."),
    "dropped": ("items_dropped_total", "Items dropped by a pipeline."),
    "bytes": ("received_bytes_total", "Bytes received for pages, before decompression."),
    "failures": ("failures_total", "Failed visits, retried or not."),
    "cpu_ms": ("cpu_seconds_total", "Processor time."),
}

WORKER_GAUGES: Sequence[tuple[str, str, Callable[[WorkerView, WorkerReport], float]]] = (
    ("lycosa_worker_leases", "URLs leased to the worker.", lambda worker, _: worker.leased),
    ("lycosa_worker_requests", "Requests being processed.", lambda _, report: report.under_way),
    ("lycosa_worker_resident_memory_bytes", "Resident memory.", lambda _, report: report.memory_bytes),
    ("lycosa_worker_uptime_seconds", "Time since the worker started.", lambda _, report: report.uptime_s),
    ("lycosa_worker_silent_seconds", "Time since the worker was last heard from.", lambda worker, _: worker.silent_s),
)


def metrics_of(view: CrawlView) -> list[Metric]:
    """Return the metrics of a crawl."""
    crawl = {"crawl": view.name}
    workers = view.workers[:WORKERS_MAX]
    states = dict.fromkeys(STATES, 0)
    for worker in [*view.workers, *view.former_workers]:
        states[worker.state] = states.get(worker.state, 0) + 1
    names = sorted(name for name in view.totals if name.startswith(STAT_PREFIX))[:STATS_MAX]
    stats = {name.removeprefix(STAT_PREFIX): view.totals[name] for name in names}
    return [
        *(_totals(name, view.totals, crawl) for name in COUNTS if view.totals and view.has_count(name)),
        Metric(
            "lycosa_stat_total", "counter", "Stats of the crawl (crawler.stats), by name.", _by(crawl, "stat", stats)
        ),
        Metric("lycosa_frontier_urls", "gauge", "URLs by state.", _by(crawl, "state", view.frontier)),
        Metric(
            "lycosa_workers", "gauge", "Workers by state, including recently ended ones.", _by(crawl, "state", states)
        ),
        *(_by_worker(name, crawl, workers) for name in COUNTS),
        *_of_workers(crawl, workers),
    ]


def _by(crawl: Mapping[str, str], label: str, counts: Mapping[str, int]) -> Samples:
    return [({**crawl, label: value}, count) for value, count in counts.items()]


def _totals(count: str, totals: Mapping[str, int], labels: Mapping[str, str]) -> Metric:
    name, help_text = COUNTED[count]
    samples = [(labels, _value(count, totals))]
    return Metric(f"lycosa_{name}", "counter", f"{help_text} Counted for the whole crawl.", samples)


def _by_worker(count: str, crawl: Mapping[str, str], workers: Sequence[WorkerView]) -> Metric:
    name, help_text = COUNTED[count]
    counting = [each for each in workers if each.report and each.has_count(count)]
    samples = [(_labels(crawl, each), _value(count, each.report.counts)) for each in counting if each.report]
    return Metric(f"lycosa_worker_{name}", "counter", f"{help_text} Counted for each worker.", samples)


def _of_workers(crawl: Mapping[str, str], workers: Sequence[WorkerView]) -> list[Metric]:
    reported = [(_labels(crawl, each), each, each.report) for each in workers if each.report]
    info = [({**labels, "machine": report.machine, "version": report.version}, 1.0) for labels, _, report in reported]
    return [
        Metric("lycosa_worker_info", "gauge", "Machine and version of the worker.", info),
        *(
            Metric(name, "gauge", text, [(labels, value(each, report)) for labels, each, report in reported])
            for name, text, value in WORKER_GAUGES
        ),
    ]


def _labels(crawl: Mapping[str, str], worker: WorkerView) -> dict[str, str]:
    return {**crawl, "worker": worker.name}


def _value(count: str, counts: Mapping[str, int]) -> float:
    value = counts.get(count, 0)
    return value / 1000 if count == "cpu_ms" else value
