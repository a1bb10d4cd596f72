"""Format a crawl and its workers as a table, as plain text or as JSON.

On a narrow terminal some columns are omitted. Control characters in names and URLs are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lycosa.cli.exit_codes import one_line
from lycosa.core.units import format_count, format_duration, format_rough_duration, format_size
from lycosa.frontier.core.model import HostView
from lycosa.frontier.core.telemetry import (
    COUNTS,
    LOST,
    PAUSED,
    STAT_PREFIX,
    CrawlView,
    Rates,
    WorkerView,
    page_count,
    remaining_s,
)

WIDTH = 120
"""Width of the table in characters if there is no terminal."""

FORMER_SHOWN = 5
STYLES = {"crawling": "green", PAUSED: "yellow", LOST: "red", "ending": "cyan"}
URLS = ("queued", "leased", "delayed", "done", "dead")


class Column(NamedTuple):
    """A column of the worker table, shown if the terminal is at least `from_width` characters wide."""

    name: str
    from_width: int
    cell: Callable[[WorkerView, Mapping[str, float]], str]
    right: bool = True


def _count(name: str) -> Callable[[WorkerView, Mapping[str, float]], str]:
    return lambda worker, _: f"{worker.report.counts[name]:,}" if worker.report and worker.has_count(name) else "-"


def _cpu(worker: WorkerView, rates: Mapping[str, float]) -> str:
    return f"{rates['cpu_ms'] / 10:.0f}%" if rates and worker.has_count("cpu_ms") else "-"


def _machine(worker: WorkerView, _: Mapping[str, float]) -> str:
    if worker.report is None:
        return "-"
    # The first label of a host name is enough; an IP address is shown in full.
    first = worker.report.machine.partition(".")[0]
    return one_line(f"{worker.report.machine if first.isdecimal() else first}:{worker.report.pid}")


def _state(worker: WorkerView, _: Mapping[str, float]) -> str:
    why = worker.report.why if worker.report else ""
    return one_line(f"{worker.state} ({why})" if why and worker.state != LOST else worker.state)


COLUMNS = (
    Column("worker", 0, lambda worker, _: one_line(worker.name), right=False),
    Column("machine", 100, _machine, right=False),
    Column("up", 0, lambda worker, _: format_rough_duration(worker.report.uptime_s) if worker.report else "-"),
    Column("pages", 0, lambda worker, _: f"{page_count(worker.report.counts):,.0f}" if worker.report else "-"),
    Column("/s", 0, lambda _, rates: f"{page_count(rates):,.0f}" if rates else "-"),
    Column("items", 0, _count("items")),
    Column("failed", 0, _count("failures")),
    Column("leased", 0, lambda worker, _: f"{worker.leased:,}"),
    Column("CPU", 100, _cpu),
    Column("memory", 0, lambda worker, _: format_size(worker.report.memory_bytes) if worker.report else "-"),
    Column("state", 0, _state, right=False),
)


def table(view: CrawlView, rates: Rates, width: int, height: int = 0) -> RenderableType:
    """Return the crawl as a table for a terminal of this width and height (0: unlimited)."""
    hosts = _hosts(view) if view.hosts else Text()
    # 9: the head (3), two table headers, two empty lines, the line with the number of hidden workers, a spare line.
    room = max(1, height - len(view.hosts) - 9) if height else len(view.workers) + FORMER_SHOWN
    return Group(*_head(view, rates), Text(), _workers(view, rates, width, room), Text(), hosts)


def plain(view: CrawlView, rates: Rates, width: int = WIDTH) -> list[str]:
    """Return the crawl as lines of plain text."""
    console = Console(width=width, color_system=None, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table(view, rates, width))
    return [line.rstrip() for line in capture.get().rstrip().splitlines()]


def as_json(view: CrawlView, rates: Rates) -> dict[str, Any]:
    """Return the crawl for `--json`, with null for unknown values. A worker without a report has fewer fields."""
    return {
        "crawl": view.name,
        "at": view.at,
        "unfinished": view.unfinished,
        "urls": view.frontier,
        "totals": {name: view.totals.get(name, 0) if view.has_count(name) else None for name in COUNTS},
        "rates": _rounded(rates.total()),
        "remaining_s": remaining_s(view, rates.total()),
        "workers": [_worker_json(worker, rates.of(worker.name)) for worker in view.workers],
        "former_workers": [_worker_json(worker, {}) for worker in view.former_workers],
        "hosts": [_host_json(host, view.at) for host in view.hosts],
        "stats": {
            name.removeprefix(STAT_PREFIX): count for name, count in view.totals.items() if name.startswith(STAT_PREFIX)
        },
    }


def _worker_json(worker: WorkerView, rates: Mapping[str, float]) -> dict[str, Any]:
    report = worker.report
    fields = {"worker": worker.name, "state": worker.state, "silent_s": worker.silent_s, "leased": worker.leased}
    if report is None:
        return fields
    return fields | {
        "why": report.why or None,
        "machine": report.machine,
        "pid": report.pid,
        "version": report.version,
        "uptime_s": report.uptime_s,
        "under_way": report.under_way,
        "concurrency": report.concurrency,
        "memory_bytes": report.memory_bytes,
        **{name: report.counts.get(name) for name in COUNTS},
        "rates": _rounded(rates),
    }


def _rounded(rates: Mapping[str, float]) -> dict[str, float] | None:
    return {name: round(rate, 3) for name, rate in rates.items()} or None


def _host_json(host: HostView, now: float) -> dict[str, Any]:
    ready_in_s = max(0.0, host.ready_at - now)
    return {
        "host": host.host,
        "queued": host.queued,
        "in_flight": host.in_flight,
        "ready_in_s": ready_in_s,
        "delay_s": host.delay_s,
    }


def _head(view: CrawlView, rates: Rates) -> list[Text]:
    rate, totals = rates.total(), view.totals
    output = [
        format_count(int(page_count(totals)), "page"),
        f"{page_count(rate):,.0f}/s" if rate else "",
        format_count(totals.get("items", 0), "item") if view.has_count("items") else "",
        f"{totals.get('failures', 0):,} failed",
        format_size(totals.get("bytes", 0)) if view.has_count("bytes") else "",
        f"{format_size(rate.get('bytes', 0))}/s" if rate and view.has_count("bytes") else "",
    ]
    left = remaining_s(view, rate)
    urls = [f"{view.frontier.get(name, 0):,} {name}" for name in URLS]
    urls.append(f"{view.frontier['outgoing']:,} outgoing" if view.frontier.get("outgoing") else "")
    urls.append(f"{format_duration(left)} left for known URLs" if left is not None else "")
    workers = format_count(len(view.workers), "worker")
    return [
        Text(f"{one_line(view.name)}: {workers}" + ("" if view.unfinished else ", nothing to do"), style="bold"),
        Text("  " + ", ".join(part for part in output if part)),
        Text("  " + ", ".join(part for part in urls if part)),
    ]


def _workers(view: CrawlView, rates: Rates, width: int, room: int) -> Table:
    columns = [column for column in COLUMNS if width >= column.from_width]
    grid = _grid(*[(column.name, column.right) for column in columns], narrow=width < WIDTH)
    shown = [*view.workers[:room], *view.former_workers[: min(FORMER_SHOWN, max(0, room - len(view.workers)))]]
    for worker in shown:
        own = rates.of(worker.name)
        grid.add_row(*(_text(column.cell(worker, own)) for column in columns), style=STYLES.get(worker.state))
    if len(view.workers) > room:
        grid.add_row(Text(f"+ {len(view.workers) - room:,}"))
    return grid


def _hosts(view: CrawlView) -> Table:
    grid = _grid(("busiest hosts", False), ("queued", True), ("in flight", True), ("ready", True), ("delay", True))
    for host in view.hosts:
        grid.add_row(
            _text(one_line(host.host)),
            f"{host.queued:,}",
            f"{host.in_flight:,}",
            f"in {format_duration(host.ready_at - view.at)}" if host.ready_at > view.at else "now",
            f"{host.delay_s:g} s" if host.delay_s else "-",
        )
    return grid


def _grid(*columns: tuple[str, bool], narrow: bool = False) -> Table:
    """Return a table. If space is short, text columns are truncated, but never numbers."""
    grid = Table(box=None, padding=(0, 1 if narrow else 2, 0, 0), header_style="bold", pad_edge=False)
    for name, right in columns:
        grid.add_column(name, justify="right" if right else "left", no_wrap=right, min_width=len(name))
    return grid


def _text(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")
