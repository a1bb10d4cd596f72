"""The view of a shared crawl: on terminals of different widths, with hostile names, as JSON (F8)."""

from __future__ import annotations

import io
import json

import msgspec
import pytest
from rich.console import Console

from lycosa.cli.frontier.crawlview import as_json, plain, table
from lycosa.frontier.core.model import HostView
from lycosa.frontier.core.telemetry import CrawlView, Rates, WorkerReport, WorkerView

HOSTS = [
    HostView("https://www.a-shop-with-a-name-that-is-very-long.example.com:443", 1_234_567, 8, 1000.5, delay_s=0.5),
    HostView("https://b.example:443", 99, 0, 0.0),
]


def report(number: int, state: str, reason: str, after_s: float) -> WorkerReport:
    counts = {
        "pages": 1_234_567 * number + int(300 * after_s),
        "items": 123_456 * number,
        "bytes": 0,
        "failures": 12,
        "cpu_ms": 950,
    }
    machine = f"crawler-{number:02}.example.internal"
    return WorkerReport(
        machine, 10_000 + number, "1.0", 3600.0 * number + after_s, state, reason, 60, 64, 10**8, counts
    )


def crawl(after_s: float = 0.0) -> CrawlView:
    states = [(1, "crawling", ""), (2, "paused", "less than 512 MB are free on /data"), (14, "ending", "interrupted")]
    workers = [WorkerView(f"3521c88c#{n}", s, 0.1, 64, report(n, s, why, after_s)) for n, s, why in states]
    workers.append(WorkerView("\x1b[31mevil\n#17", "waiting"))
    former = [WorkerView("9999aaaa#4", "lost", 30.0, 0, report(4, "crawling", "", 0.0))]
    urls = {"queued": 12_345_678, "leased": 256, "delayed": 120, "done": 98_765_432, "dead": 1234, "outgoing": 12}
    return CrawlView("shop", 1000.0 + after_s, workers, former, {"pages": 98_765_432, "stats/x": 3}, urls, HOSTS)


def view_and_rates() -> tuple[CrawlView, Rates]:
    rates = Rates()
    for after_s in (0.0, 2.0):
        rates.add(crawl(after_s).workers)
    return crawl(2.0), rates


def render(width: int, height: int = 0) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(table(*view_and_rates(), width, height))
    return capture.get().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_no_number_is_truncated_at_usual_terminal_widths(width):
    lines = render(width)
    assert all(len(line) <= width for line in lines)
    first = next(line for line in lines if line.startswith("3521c88c#1 "))
    for number in ("1,235,167", "300", "123,456", "12", "64", "100 MB", "crawling"):
        assert number in first.split() or number in first
    assert any("1,234,567" in line and "0.5 s" in line for line in lines)
    assert ("crawler-01:10001" in first) == (width >= 120) or width == 100


def test_rows_that_do_not_fit_are_counted():
    lines = render(80, height=14)
    assert len(lines) <= 14
    assert any(line.startswith("+ 1") for line in lines)


def test_control_characters_in_names_are_replaced():
    assert not any("\x1b" in line for line in render(120))
    assert any("?[31mevil #17" in line for line in render(120))


def test_plain_text():
    lines = plain(*view_and_rates())
    assert lines[0] == "shop: 4 workers"
    assert lines[1] == "  98,765,432 pages, 900/s, 0 items, 0 failed, 0 B, 0 B/s"
    assert lines[2].startswith("  12,345,678 queued, 256 leased, 120 delayed, 98,765,432 done, 1,234 dead, 12 outgoing")
    assert any(line.startswith("9999aaaa#4") and line.endswith("lost") for line in lines)
    assert any("paused (less than 512" in line for line in lines)


def test_missing_counts_are_shown_as_unknown():
    """For example those of a crawl on one machine, read through its socket."""
    report = WorkerReport("machine", 7, "1.0", 5.0, "crawling", counts={"pages": 84, "failures": 0})
    view = CrawlView("state", 0.0, [WorkerView("7", "crawling", report=report)], [], report.counts, {"queued": 3})
    lines = plain(view, Rates())
    assert lines[1] == "  84 pages, 0 failed"
    assert lines[5].split()[:8] == ["7", "machine:7", "5", "s", "84", "-", "-", "0"]
    shown = as_json(view, Rates())
    assert (shown["totals"]["pages"], shown["totals"]["items"], shown["workers"][0]["items"]) == (84, None, None)


def test_crawl_without_workers_has_nothing_to_do():
    assert plain(CrawlView("shop", 0.0), Rates())[0] == "shop: 0 workers, nothing to do"


def test_json():
    view = json.loads(msgspec.json.encode(as_json(*view_and_rates())))
    assert view["rates"]["pages"] == 900.0
    assert view["remaining_s"] == pytest.approx(12_346_066 / 900)
    assert view["workers"][0]["rates"]["pages"] == 300.0
    assert view["workers"][1]["why"] == "less than 512 MB are free on /data"
    assert view["workers"][3] == {"worker": "\x1b[31mevil\n#17", "state": "waiting", "silent_s": 0.0, "leased": 0}
    assert view["former_workers"][0]["rates"] is None
    assert view["hosts"][1] == {
        "host": "https://b.example:443", "queued": 99, "in_flight": 0, "ready_in_s": 0.0, "delay_s": 0.0,
    }  # fmt: skip
    assert view["stats"] == {"x": 3}
    assert json.loads(msgspec.json.encode(as_json(CrawlView("shop", 0.0), Rates())))["rates"] is None
