"""What a crawl shows on a terminal, in a log and at the end, always on standard error."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time

import pytest

from lycosa.cli.crawl.progress import (
    BUGS_SHOWN,
    date,
    exit_code,
    progress_line,
    rate_limited,
    show_progress,
    summary_lines,
    write,
)
from lycosa.config import Settings
from lycosa.crawl.diagnostics.bug_log import Bug
from lycosa.crawl.events.stats import Snapshot, Summary
from tests.conftest import ROOT

NOW = Snapshot(
    pages=4760, items=4700, queued=1204, leased=64, delayed=7, done=5000, dead=3, hosts=12, bytes=162_000_000,
    elapsed_s=12.0, rate=396.4,
)  # fmt: skip
SUMMARY = {
    "finished": True,
    "interrupted": False,
    "nothing_to_do": False,
    "snapshot": NOW,
    "reasons": {"404": 3, "200": 4990, "robots": 7},
    "dead_reasons": {"timeout": 2, "connect": 1},
    "dead": [("http://a/1", "timeout"), ("http://a/2", "connect")],
    "items_path": "items.jsonl",
    "state_path": ".lycosa/a",
}


def test_the_progress_line():
    assert progress_line(NOW) == (
        "12 s: 4,760 pages, 396/s, 1,204 queued, 64 leased, 7 delayed, 3 failed, 12 hosts, 162 MB"
    )


def test_unknown_numbers_of_hosts_are_left_out():
    """A worker of a shared crawl does not know the number."""
    assert "host" not in progress_line(Snapshot(pages=3, elapsed_s=1.0))


@pytest.mark.parametrize(
    ("max_pages", "rate", "expected"),
    [(None, 396.0, ""), (4760 + 792, 396.0, "2.0 s to go"), (10_000, 396.0, ""), (4760, 396.0, ""), (5000, 0.0, "")],
)
def test_the_remaining_time_is_shown_only_if_it_is_known(max_pages, rate, expected):
    line = progress_line(NOW._replace(rate=rate), max_pages)
    assert line.endswith(expected or "MB")


@pytest.mark.parametrize(
    ("times", "max_pages", "expected"),
    [
        ({"eta_s": 90.0}, None, "1 min 30 s to go"),
        ({"eta_s": 90.0, "least_s": 120.0}, None, "2 min to go"),
        ({"least_s": 120.0}, None, "at least 2 min to go"),  # the queue grows
        ({"least_s": 2.0}, None, "MB"),
        ({"eta_s": 90.0}, 100_000, "MB"),  # the page limit is reached later, or never
        ({"blocked_s": 3.0, "free_rate": 396.0, "rate": 9.0}, 4760 + 198, "3.5 s to go"),
        ({"eta_s": 90.0, "paused": "no proxy"}, None, "MB"),
    ],
)
def test_the_remaining_time_follows_from_the_queue_and_the_delays(times, max_pages, expected):
    assert progress_line(NOW._replace(**times), max_pages).endswith(expected)


def test_what_brakes_the_crawl_is_shown():
    assert ", 1/s (delay of 1 s on 1 host), " in progress_line(NOW._replace(rate=1.0, brake="delay of 1 s on 1 host"))


@pytest.mark.parametrize(("first", "passed"), [(None, [5, 10, 15]), (0.0, [0, 5, 10, 15])])
def test_an_observer_passes_on_one_snapshot_per_interval(first, passed):
    seen = []
    observe = rate_limited(5, lambda snapshot: seen.append(snapshot.elapsed_s), first=first)
    for tenth in range(200):
        observe(Snapshot(elapsed_s=tenth / 10))
    assert seen == passed


def test_plain_lines_without_a_terminal(capsys):
    with show_progress(Settings()) as observe:
        for second in range(11):
            observe(Snapshot(pages=second, elapsed_s=second))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split(",")[0] for line in captured.err.splitlines()] == ["5.0 s: 5 pages", "10 s: 10 pages"]


def test_quiet_shows_no_progress(capsys):
    with show_progress(Settings(quiet=True)) as observe:
        assert observe is None
    assert capsys.readouterr() == ("", "")


def test_the_summary_of_a_finished_crawl():
    assert summary_lines(Summary(**SUMMARY)) == [
        "finished: 4,760 pages, 4,700 items in 12 s (397 pages/s, 162 MB)",
        "  done    5,000 (200: 4,990, robots: 7, 404: 3)",
        "  dead    3 (timeout: 2, connect: 1)",
        "          http://a/1  timeout",
        "          http://a/2  connect",
        "          ... and 1 more",
        "  items   items.jsonl",
        "  state   .lycosa/a",
    ]


def test_the_summary_has_requests_duplicates_and_successes():
    stats = {"downloader/request_count": 5100, "dupefilter/filtered": 1200}
    row = summary_lines(Summary(**SUMMARY, stats=stats))[1]
    assert row == "  sent    5,100 requests (4,760 successful), 1,200 duplicates not sent"
    row = summary_lines(Summary(**{**SUMMARY, "resumed": True}, stats={"downloader/request_count": 1}))[1]
    assert row == "  sent    1 request in this run (4,760 successful)"


def test_the_summary_of_an_interrupted_crawl_says_how_to_resume():
    summary = Summary(**{**SUMMARY, "finished": False, "interrupted": True, "notes": ["more memory helps"]})
    lines = summary_lines(summary)
    assert lines[0].startswith("interrupted: 4,760 pages")
    assert lines[-2:] == ["hint: more memory helps", "the state is saved: the same command resumes the crawl"]


def test_after_a_fresh_start_the_command_with_o_resumes_the_crawl():
    summary = Summary(**{**SUMMARY, "finished": False, "interrupted": True, "overwritten": True})
    assert summary_lines(summary)[-1] == (
        "the state is saved: the same command with -o instead of -O resumes the crawl"
    )


def test_the_summary_of_a_resumed_crawl_tells_counts_of_this_run_and_of_all_runs_apart():
    lines = summary_lines(Summary(**{**SUMMARY, "resumed": True, "skipped": {"scope": 9}}))
    assert lines[:4] == [
        "finished: 4,760 pages, 4,700 items in 12 s (397 pages/s, 162 MB) in this run",
        "  done    5,000 in all runs (200: 4,990, robots: 7, 404: 3)",
        "  skipped 9 links in this run (scope: 9)",
        "  dead    3 in all runs (timeout: 2, connect: 1)",
    ]


def test_the_summary_when_there_was_nothing_to_do():
    summary = Summary(**{**SUMMARY, "nothing_to_do": True, "snapshot": Snapshot(done=120)})
    assert summary_lines(summary)[0] == "nothing to do: the crawl is finished (120 done, 0 dead); -O starts afresh"


def test_the_summary_when_there_was_nothing_to_do_says_how_to_retry_failed_urls():
    summary = Summary(**{**SUMMARY, "nothing_to_do": True, "resumed": True, "snapshot": Snapshot(done=6, dead=3)})
    assert summary_lines(summary)[:4] == [
        (
            "nothing to do: the crawl is finished (6 done, 3 dead); "
            "--retry-dead queues the dead URLs again, -O starts afresh"
        ),
        "  dead    3 in all runs (timeout: 2, connect: 1)",
        "          http://a/1  timeout",
        "          http://a/2  connect",
    ]


def test_a_shared_crawl_has_no_hint_to_start_afresh_with_a_flag():
    summary = Summary(**{**SUMMARY, "nothing_to_do": True, "snapshot": Snapshot(done=120), "shared": {"pages": 120}})
    assert summary_lines(summary)[0].endswith("; another --crawl-name, --state and -o start one afresh")


def test_the_summary_when_the_segment_is_closed():
    summary = Summary(**{**SUMMARY, "nothing_to_do": True, "closed": "segment a was dropped", "snapshot": Snapshot()})
    assert summary_lines(summary)[0] == "nothing to do: segment a was dropped (0 done, 0 dead)"


def test_rare_reasons_are_summed_up():
    reasons = {f"r{n:02}": 100 - n for n in range(20)}
    line = summary_lines(Summary(**{**SUMMARY, "reasons": reasons}))[1]
    assert line.endswith(f"r11: 89, others: {sum(100 - n for n in range(12, 20))})")


def test_text_from_the_network_cannot_send_control_characters_to_the_terminal(capsys):
    write(["http://a/\x1b[2J", "b"])
    assert capsys.readouterr().err == "http://a/?[2J\nb\n"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"snapshot": Snapshot(done=3)}, 0),
        ({}, 1),
        ({"finished": False, "interrupted": True}, 130),
        ({"nothing_to_do": True, "snapshot": Snapshot(done=3)}, 0),
        ({"finished": False, "snapshot": Snapshot(done=3)}, 0),
    ],
)
def test_exit_code(change, code):
    assert exit_code(Summary(**{**SUMMARY, **change})) == code


SHOW = """
import os, sys, logging
from lycosa.cli.crawl.crawl import set_up_log
from lycosa.cli.crawl.progress import show_progress
from lycosa.config import Settings
from lycosa.crawl.diagnostics.bug_log import Bug
from lycosa.crawl.events.stats import Snapshot
settings = Settings(output=sys.argv[1] or None)
set_up_log(settings)
with show_progress(settings) as observe:
    for n in range(100):
        observe(Snapshot(pages=n, dead=n, elapsed_s=n / 10))
        os.write(1, b"item\\n")
    print("printed", flush=True)
    logging.getLogger("x").warning("careful")
print("the end", file=sys.stderr)
"""


def on_terminal(output: str, *, items_too: bool, **environment: str) -> tuple[str, str]:
    """Run SHOW with standard error on a terminal. Return the output there and on standard output."""
    terminal, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SHOW, output],
        stdout=theirs if items_too else subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "100", **environment},
    )
    os.close(theirs)
    seen = b""
    # On Linux, reading from a terminal whose other side is closed is an I/O error.
    while True:
        try:
            more = os.read(terminal, 65536)
        except OSError:
            break
        if not more:
            break
        seen += more
    items = process.stdout.read() if process.stdout else b""
    if process.stdout:
        process.stdout.close()
    process.wait()
    os.close(terminal)
    return seen.decode(), items.decode()


def test_a_live_line_on_a_terminal():
    seen, items = on_terminal("items.jsonl", items_too=False)
    assert items == "item\n" * 100 + "printed\n"
    drawn = re.findall(r"(\d+)\x1b?\S* pages", seen)
    assert 30 <= len(drawn) <= 42, "four times a second at most, for ten seconds of the crawl"
    assert "\x1b[1;31m" in seen, "what failed is red"
    assert re.search(r"\x1b\[2K[-\d]+ [\d:,]+ WARNING x: careful\r\n", seen), "not behind the live line"
    assert seen.rstrip().endswith("the end")


def test_no_color_is_obeyed():
    seen, _ = on_terminal("items.jsonl", items_too=False, NO_COLOR="1")
    assert "\x1b[1;31m" not in seen
    assert "pages" in seen


@pytest.mark.parametrize("environment", [{}, {"TERM": "dumb"}])
def test_plain_lines_where_a_live_line_is_impossible(environment):
    """Items on the same terminal would be overwritten; a dumb terminal cannot go back."""
    seen, _ = on_terminal("" if not environment else "items.jsonl", items_too=not environment, **environment)
    assert "\x1b" not in seen
    assert seen.count(" pages, ") == 1
    if not environment:
        assert seen.count("item\r\n") == 100


DUE = time.mktime((2026, 11, 22, 0, 0, 0, 0, 0, -1))


def test_a_waiting_crawl_shows_at_once_until_when_it_waits():
    waiting = NOW._replace(waiting_until=DUE)
    assert progress_line(waiting).startswith(
        "12 s: 4,760 pages, waiting, next due at 2026-11-22 00:00:00, 1,204 queued"
    )
    seen = []
    observe = rate_limited(5, seen.append)
    for snapshot in (NOW, NOW, waiting):
        observe(snapshot)
    assert seen == [NOW, waiting]


def test_a_paused_crawl_shows_why():
    paused = NOW._replace(paused="3.0 MB free at /state, 500 MB needed")
    assert ", paused (3.0 MB free at /state, 500 MB needed), 1,204 queued" in progress_line(paused)


def test_unchanged_pages_are_shown():
    some = NOW._replace(unchanged=1500)
    assert progress_line(some).startswith("12 s: 4,760 pages, 1,500 more unchanged, 396/s, ")
    first = summary_lines(Summary(**{**SUMMARY, "snapshot": some}))[0]
    assert first.startswith("finished: 4,760 pages, 1,500 more unchanged, 4,700 items in 12 s (522 pages/s, ")


def test_a_crawl_with_only_unchanged_pages_does_not_show_0_pages():
    none = NOW._replace(pages=0, unchanged=601, items=0)
    assert progress_line(none).startswith("12 s: 601 pages unchanged, 396/s, ")
    first = summary_lines(Summary(**{**SUMMARY, "snapshot": none}))[0]
    assert first == "finished: 601 pages unchanged, 0 items in 12 s (50 pages/s, 162 MB)"
    assert "1 page unchanged, " in progress_line(NOW._replace(pages=0, unchanged=1))
    assert summary_lines(Summary(**{**SUMMARY, "snapshot": Snapshot()}))[0].startswith("finished: 0 pages, 0 items in ")


def test_the_summary_of_an_idle_crawl_says_when_more_is_due():
    idle = {"finished": False, "idle_until": DUE, "ended_at": DUE - 13 * 3600 + 5}
    lines = summary_lines(Summary(**{**SUMMARY, **idle}))
    assert lines[0].startswith("idle: 4,760 pages")
    assert lines[-1] == "next due at 2026-11-22 00:00:00 (in 13 h); the same command resumes then"


def test_a_date_out_of_range_is_shown_as_unix_seconds():
    assert date(1e18) == "unix second 1000000000000000000"


def test_the_summary_of_a_worker_has_the_totals_of_all_workers():
    lines = summary_lines(Summary(**SUMMARY, shared={"pages": 9000, "unchanged": 1, "items": 8000, "bytes": 10**9}))
    assert "  shared  9,001 pages, 8,000 items, 1.0 GB by all workers so far" in lines
    assert not any("shared" in line for line in summary_lines(Summary(**SUMMARY)))
    done = {"200": 9005, "unchanged": 2, "404": 50}  # a worker was killed before it reported its last pages
    lines = summary_lines(Summary(**{**SUMMARY, "reasons": done}, shared={"pages": 9000, "unchanged": 1}))
    assert "  shared  9,007 pages, 0 items, 0 B by all workers so far" in lines


def test_the_summary_counts_the_outcomes_of_pool_proxies():
    stats = {"proxy/leases": 5020, "proxy/outcomes/site": 12, "proxy/outcomes/none": 5000, "proxy/sent_again": 20}
    lines = summary_lines(Summary(**{**SUMMARY, "stats": stats}))
    assert "  proxies 5,020 leases in this run (sent again: 20, banned: 12)" in lines
    none = summary_lines(Summary(**{**SUMMARY, "stats": {"proxy/waits": 3}}))
    assert "  proxies 0 leases in this run (waited: 3)" in none


def test_the_exit_code_of_a_crawl_that_ends_because_no_proxy_works_is_3():
    assert exit_code(Summary(**{**SUMMARY, "closing": "no proxy"})) == 3


def test_one_bug_on_many_pages_is_one_line_and_one_example():
    bug = Bug(
        "key", "parse", "ValueError: no price on page 1", "quotes.py:12", "http://a/1", 98, "ValueError in parse: no"
    )
    explained = Bug("other", "parse", "BadSpider: parse yielded 7", "", "http://a/5", 2, "parse yielded 7")
    reasons = {f"ValueError in parse: no price on page {page}": 1 for page in range(98)} | {"parse yielded 7": 2}
    dead = [(f"http://a/{page}", f"ValueError in parse: no price on page {page}") for page in (1, 2)]
    dead += [(f"http://a/{page}", "parse yielded 7") for page in (5, 6)]
    dead += [(f"http://a/{page}", "500") for page in (7, 8)]
    values = {
        "bugs": [bug, explained],
        "dead": dead,
        "dead_reasons": reasons | {"500": 2},
        "snapshot": Snapshot(dead=102),
    }
    lines = summary_lines(Summary(**{**SUMMARY, **values}))
    at = lines.index("  dead    102 (ValueError in parse: 98, 500: 2, parse yielded 7: 2)")
    assert lines[at + 1 : at + 8] == [
        "          http://a/1  ValueError in parse: no price on page 1",
        "          http://a/5  parse yielded 7",
        "          http://a/7  500",
        "          http://a/8  500",
        "          ... and 98 more",
        "  bugs    parse failed 98 times: ValueError: no price on page 1 (quotes.py:12), first on http://a/1",
        "          parse failed 2 times: BadSpider: parse yielded 7, first on http://a/5",
    ]


def test_the_number_of_bugs_shown_is_bounded():
    bugs = [Bug(str(number), "parse", f"ValueError: {number}", "quotes.py:1") for number in range(BUGS_SHOWN + 5)]
    lines = summary_lines(Summary(**{**SUMMARY, "bugs": bugs}))
    assert sum("failed once" in line for line in lines) == BUGS_SHOWN
    assert "          ... and 5 more bugs" in lines
