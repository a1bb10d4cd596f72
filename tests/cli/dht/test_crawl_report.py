"""The output of `lycosa dht crawl`: on a terminal, in a log, at the end, and for programs."""

from __future__ import annotations

import json

from lycosa.cli.dht.crawl_report import PlainReport, live_lines, summary_json, summary_lines
from lycosa.dht.core.crawl_funnel import CrawlOutcome
from tests.dht.crawler.views import view

LIMIT = "held back: 120 queries waiting for the limit of new addresses per minute (see --profile)"


def test_a_terminal_shows_the_stages_the_node_and_what_limits_the_crawl() -> None:
    assert live_lines(view(600)) == [
        "10 min: 3,000 torrents stored (300/min), sweep 1 at 6.0%",
        "discovered 78,000 (7,800/min): 48,000 new, 30,000 known; about 40% of the network known",
        "tried 12,000 (1,200/min): 3,000 fetched, 6,000 without peers, 3,000 whose peers failed",
        "queue 36,000, 300 in progress, 6,000 to try later",
        "node 1,200 good contacts, reachable, out 90 queries/s 9.0 kB/s, in 20 kB/s, 180 of 500 connections",
        LIMIT,
        "held back: 50% of the tried infohashes have no peers now: they will be tried again later",
    ]


def test_a_narrow_terminal_shows_whole_sentences() -> None:
    *_, last = live_lines(view(600), 50)
    assert last == "  peers now: they will be tried again later"


def test_a_log_gets_a_line_per_report_and_what_limits_the_crawl_only_once_an_hour() -> None:
    report = PlainReport()
    assert report.lines(view(300))[1:] == live_lines(view(300))[-2:]
    assert report.every_s == 10.0
    assert report.lines(view(610)) == [
        (
            "10 min 10 s: 3,050 torrents stored (300/min), 79,300 discovered (7,800/min), 30,500 known, 12,200 tried"
            " (1,200/min), 300 in progress, 36,600 queued, 6,100 to try later, sweep 1 at 6.1%"
        )
    ]
    assert report.every_s == 60.0
    assert len(report.lines(view(3890))) == 1
    assert len(report.lines(view(3900))) == 3


def test_the_summary_has_the_outcomes_of_the_infohashes() -> None:
    lines = summary_lines(view(600))
    assert lines[0] == "3,000 torrents stored in 10 min"
    assert lines[4] == "queue: 3,000 done, 36,300 queued, 6,000 to try later; sweep 1 at 6.0%"
    assert lines[5] == LIMIT


def test_the_summary_counts_failed_tries_by_reason() -> None:
    found = view(600)
    found.snapshot.counts.update({CrawlOutcome.POSTPONED: 20, CrawlOutcome.NO_LOOKUP: 2, CrawlOutcome.BAD_INFO: 1})
    assert summary_lines(found)[2].endswith(
        "failed: 9,023 (6,000 without peers, 3,000 whose peers failed, 22 postponed by our limits,"
        " 1 with invalid metadata)"
    )


def test_removed_torrents_are_counted_everywhere() -> None:
    found = view(600)
    found.snapshot.counts.update({CrawlOutcome.EVICTED: 1234})
    assert live_lines(found)[0] == "10 min: 3,000 torrents stored (300/min), 1,234 removed, sweep 1 at 6.0%"
    assert "stored (300/min), 1,234 removed, 78,000 discovered" in PlainReport().lines(found)[0]
    assert "removed to keep the store within its maximum size: 1,234" in summary_lines(found)
    assert json.loads(summary_json(found))["outcomes"]["evicted"] == 1234


def test_the_summary_for_programs_has_every_outcome() -> None:
    summary = json.loads(summary_json(view(600)))
    assert set(summary["outcomes"]) == {each.name.lower() for each in CrawlOutcome}
    assert summary["stored"] == summary["outcomes"]["stored"] == 3000
    assert summary["queue"] == {"queued": 36_300, "delayed": 6_000, "done": 3_000}
    assert [each["brake"] for each in summary["held_back_by"]] == ["limit", "no_peers"]
