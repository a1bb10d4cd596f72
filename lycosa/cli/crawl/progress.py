"""The output of a crawl on standard error: progress while it runs, a summary at the end.

Progress is a live line on a terminal, elsewhere a line every PLAIN_EVERY_S seconds of the crawl's elapsed time.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from lycosa.cli.exit_codes import DEAD, DONE, FAILED, INTERRUPTED, one_line, printable
from lycosa.config import STANDARD_OUTPUT, Settings
from lycosa.core.units import format_count, format_duration, format_rough_duration, format_size
from lycosa.crawl.diagnostics.bug_log import Bug
from lycosa.crawl.events.stats import Snapshot, Summary
from lycosa.frontier.core.telemetry import page_count, pages_done
from lycosa.proxies.core.pool.outage import NO_PROXY
from lycosa.storage.core.output import parse_outputs

LIVE_EVERY_S = 0.25
PLAIN_EVERY_S = 5.0
LEAST_SHOWN_S = 5.0
"""The minimum remaining time, which follows from the delays of hosts, is shown only if it is at least this long."""

REASONS_MAX = 12
BUGS_SHOWN = 20

EXCEPTION_IN = re.compile(r"([A-Za-z_]\w* in \w+): ")
"""The start of the reason of a dead page if the user's code failed: `ValueError in parse: ...`."""

ROBOTS_URL = re.compile(r"(?<=^cannot fetch )\S+/(?=robots\.txt: )")
"""Matches the host in the reason of a page whose robots.txt cannot be fetched. Reasons are counted without it."""

Observe = Callable[[Snapshot], None]


@contextmanager
def show_progress(settings: Settings) -> Iterator[Observe | None]:
    """Yield a function that shows snapshots, as `rate_limited` describes; None with `quiet`."""
    if settings.quiet or sys.stderr is None:
        yield None
    elif _has_live_line(settings):
        with _live_line(settings) as draw:
            yield rate_limited(LIVE_EVERY_S, draw, first=0.0)
    else:
        yield rate_limited(PLAIN_EVERY_S, lambda snapshot: write([progress_line(snapshot, settings.max_pages)]))


def rate_limited(seconds: float, show: Observe, *, first: float | None = None) -> Observe:
    """Pass one snapshot to `show` every `seconds` of the crawl's elapsed time, the first after `first` seconds.

    A snapshot of a waiting or paused crawl is passed at once, since the next one may be much later.
    """
    due = seconds if first is None else first

    def observe(snapshot: Snapshot) -> None:
        nonlocal due
        if snapshot.elapsed_s >= due or snapshot.waiting_until or snapshot.paused:
            due = snapshot.elapsed_s + seconds
            show(snapshot)

    return observe


def progress_line(snapshot: Snapshot, max_pages: int | None = None) -> str:
    """Describe the crawl in one line, the most important numbers first."""
    parts = [
        f"{format_duration(snapshot.elapsed_s)}: {_pages(snapshot)}",
        _pace(snapshot),
        f"{snapshot.queued:,} queued",
        f"{snapshot.leased:,} leased",
        f"{snapshot.delayed:,} delayed" if snapshot.delayed else "",
        f"{snapshot.dead:,} failed",
        format_count(snapshot.hosts, "host") if snapshot.hosts else "",
        format_size(snapshot.bytes),
        _eta(snapshot, max_pages),
    ]
    return ", ".join(part for part in parts if part)


def summary_lines(summary: Summary) -> list[str]:
    """Say how the crawl ended, what happened to its URLs, and where the items and the state are."""
    now = summary.snapshot
    here, ever = (" in this run", " in all runs") if summary.resumed else ("", "")
    lines = [_headline(summary) + ("" if summary.nothing_to_do else here)]
    if not summary.nothing_to_do:
        lines += _request_rows(summary, here)
        lines.append(_row("done", f"{now.done:,}{ever}{format_counts(summary.reasons)}"))
        if summary.skipped:
            skipped = format_count(sum(summary.skipped.values()), "link")
            lines.append(_row("skipped", f"{skipped}{here}{format_counts(summary.skipped)}"))
    if now.dead:
        lines += _dead_rows(summary, ever)
    lines += _bug_rows(summary.bugs)
    if proxies := _proxies(summary.stats):
        lines.append(_row("proxies", proxies))
    if summary.shared:
        lines.append(_row("shared", _shared(summary.shared, summary.reasons)))
    items = "standard output" if summary.items_path == STANDARD_OUTPUT else summary.items_path
    lines += [_row(name, path) for name, path in (("items", items), ("state", summary.state_path)) if path]
    lines += [f"hint: {note}" for note in summary.notes]
    if summary.idle_until:
        lines.append(f"next due at {date(summary.idle_until)}{_from_now(summary)}; {_again(summary)} then")
    if summary.interrupted:
        lines.append(f"the state is saved: {_again(summary)} the crawl")
    return lines


def _again(summary: Summary) -> str:
    """Say how to resume. With -O the same command would start afresh, so -o must replace it."""
    return "the same command with -o instead of -O resumes" if summary.overwritten else "the same command resumes"


def _request_rows(summary: Summary, here: str) -> list[str]:
    sent, duplicates = (summary.stats.get(name, 0) for name in ("downloader/request_count", "dupefilter/filtered"))
    if not sent:
        return []
    succeeded = summary.snapshot.pages + summary.snapshot.unchanged
    not_sent = f", {format_count(duplicates, 'duplicate')} not sent" if duplicates else ""
    return [_row("sent", f"{format_count(sent, 'request')}{here} ({succeeded:,} successful){not_sent}")]


def _dead_rows(summary: Summary, ever: str) -> list[str]:
    """Rows for the dead URLs. For each bug, only the first URL is listed."""
    causes: Counter[str] = Counter()
    for reason, number in summary.dead_reasons.items():
        causes[_cause(reason)] += number
    rows = [_row("dead", f"{summary.snapshot.dead:,}{ever}{format_counts(causes)}")]
    bugs, listed = {bug.reason for bug in summary.bugs}, set[str]()
    for url, reason in summary.dead:
        is_bug = reason in bugs or EXCEPTION_IN.match(reason)
        if not is_bug or _cause(reason) not in listed:
            rows.append(_row("", f"{url}  {reason}"))
        listed.add(_cause(reason))
    more = summary.snapshot.dead - len(rows) + 1
    return [*rows, _row("", f"... and {more:,} more")] if more > 0 else rows


def _cause(reason: str) -> str:
    """Drop messages and URLs, so that pages with the same cause have the same reason."""
    exception = EXCEPTION_IN.match(reason)
    return exception[1] if exception else ROBOTS_URL.sub("", reason)


def _bug_rows(bugs: Sequence[Bug]) -> list[str]:
    rows = [_row("" if number else "bugs", str(bug)) for number, bug in enumerate(bugs[:BUGS_SHOWN])]
    return [*rows, _row("", f"... and {len(bugs) - BUGS_SHOWN:,} more bugs")] if len(bugs) > BUGS_SHOWN else rows


def _proxies(stats: Mapping[str, Any]) -> str:
    outcomes = {
        "banned": stats.get("proxy/outcomes/site", 0),
        "unreachable": stats.get("proxy/outcomes/proxy", 0),
        "failed behind the proxy": stats.get("proxy/outcomes/miss", 0),
        "sent again": stats.get("proxy/sent_again", 0),
        "given up": stats.get("proxy/given_up", 0),
        "waited": stats.get("proxy/waits", 0),
    }
    leases = stats.get("proxy/leases", 0)
    if not leases and not outcomes["waited"]:
        return ""
    return (
        f"{leases:,} leases in this run{format_counts({name: number for name, number in outcomes.items() if number})}"
    )


def _shared(totals: Mapping[str, int], reasons: Mapping[str, int]) -> str:
    # Workers report once a second: the last report of a killed worker may lack pages that the frontier has counted.
    pages = max(page_count(totals), page_count(pages_done(reasons)))
    items, size = format_count(totals.get("items", 0), "item"), format_size(totals.get("bytes", 0))
    return f"{format_count(int(pages), 'page')}, {items}, {size} by all workers so far"


def _headline(summary: Summary) -> str:
    now = summary.snapshot
    if summary.nothing_to_do:
        afresh = "another --crawl-name, --state and -o start one afresh" if summary.shared else "-O starts afresh"
        retry = "--retry-dead queues the dead URLs again, " if now.dead else ""
        advice = "" if summary.closed else f"; {retry}{afresh}"
        why = summary.closed or "the crawl is finished"
        return f"nothing to do: {why} ({now.done:,} done, {now.dead:,} dead){advice}"
    rate = (now.pages + now.unchanged) / now.elapsed_s if now.elapsed_s > 0 else 0.0
    how = "interrupted" if summary.interrupted else "finished" if summary.finished else "stopped"
    how = f"closed ({summary.closing})" if summary.closing else "idle" if summary.idle_until else how
    dropped = f" ({now.dropped:,} dropped)" if now.dropped else ""
    done = f"{_pages(now)}, {format_count(now.items, 'item')}{dropped}"
    return f"{how}: {done} in {format_duration(now.elapsed_s)} ({rate:,.0f} pages/s, {format_size(now.bytes)})"


def _pages(now: Snapshot) -> str:
    if not now.unchanged:
        return format_count(now.pages, "page")
    if not now.pages:
        return f"{format_count(now.unchanged, 'page')} unchanged"
    return f"{format_count(now.pages, 'page')}, {now.unchanged:,} more unchanged"


def exit_code(summary: Summary) -> int:
    """Return the exit code of a crawl."""
    if summary.interrupted:
        return INTERRUPTED
    if summary.closing == NO_PROXY:
        return FAILED
    return DEAD if summary.snapshot.dead else DONE


def write(lines: Sequence[str]) -> None:
    """Write lines to standard error. Errors are ignored: they must not stop the crawl."""
    try:
        print(*map(printable, lines), sep="\n", file=sys.stderr, flush=True)
    except OSError:
        return


def date(at: float) -> str:
    """Format a unix time as local time."""
    try:
        return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"  # noqa: DTZ006  local time is meant
    except (OverflowError, ValueError, OSError):
        return f"unix second {at:.0f}"


def _pace(snapshot: Snapshot) -> str:
    if snapshot.paused:
        return f"paused ({snapshot.paused})"
    if snapshot.waiting_until:
        return f"waiting, next due at {date(snapshot.waiting_until)}"
    return f"{snapshot.rate:,.0f}/s" + (f" ({snapshot.brake})" if snapshot.brake else "")


def _from_now(summary: Summary) -> str:
    return f" (in {format_rough_duration(summary.idle_until - summary.ended_at)})" if summary.ended_at else ""


def _eta(snapshot: Snapshot, max_pages: int | None) -> str:
    if snapshot.paused or snapshot.waiting_until:
        return ""
    unfinished = snapshot.queued + snapshot.leased + snapshot.delayed
    rate = snapshot.free_rate if snapshot.blocked_s else snapshot.rate
    if max_pages is not None and rate > 0 and 0 < max_pages - snapshot.pages <= unfinished:
        return f"{format_duration(snapshot.blocked_s + (max_pages - snapshot.pages) / rate)} to go"
    if snapshot.eta_s and max_pages is None:
        return f"{format_duration(max(snapshot.eta_s, snapshot.least_s))} to go"
    is_bound = snapshot.least_s >= LEAST_SHOWN_S and max_pages is None
    return f"at least {format_duration(snapshot.least_s)} to go" if is_bound else ""


def format_counts(reasons: Mapping[str, int], shown_max: int = REASONS_MAX) -> str:
    """Format the most frequent reasons: " (200: 120, 404: 3)"."""
    ranked = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
    shown = [f"{one_line(reason)}: {number:,}" for reason, number in ranked[:shown_max]]
    rest = sum(number for _, number in ranked[shown_max:])
    return f" ({', '.join([*shown, *([f'others: {rest:,}'] if rest else [])])})" if shown else ""


def _row(name: str, text: str) -> str:
    return f"  {name:<8}{text}"


def _has_live_line(settings: Settings) -> bool:
    """Return whether to show a live line, which must not overwrite items on the same terminal."""
    items_to_stdout = not all(each.text for each in parse_outputs(settings.output))
    return (
        sys.stderr.isatty()
        and not (items_to_stdout and sys.stdout and sys.stdout.isatty())
        and os.environ.get("TERM", "dumb") != "dumb"
    )


@contextmanager
def _live_line(settings: Settings) -> Iterator[Observe]:
    """Yield a function that redraws one line, which disappears at the end. rich obeys NO_COLOR."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=sys.stderr)
    live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)

    def draw(snapshot: Snapshot) -> None:
        text = Text(printable(progress_line(snapshot, settings.max_pages)), no_wrap=True, overflow="ellipsis")
        text.highlight_regex(r"[\d,.]+ pages?", "bold green")
        if snapshot.dead:
            text.highlight_regex(r"[\d,]+ failed", "bold red")
        live.update(text, refresh=True)

    with live:
        yield draw
