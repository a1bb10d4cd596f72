"""The output of `lycosa dht crawl`: live lines on a terminal, otherwise a line at intervals; a summary at the end."""

from __future__ import annotations

import json
from textwrap import wrap
from typing import Any

from lycosa.core.units import format_count, format_duration, format_size
from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.core.events import Reachability

PLAIN_EVERY_S, PLAIN_LATER_EVERY_S = 10.0, 60.0
LATER_S = 600.0
"""Seconds after which only one line per minute is logged: a crawl may run for months, and even this is 100 MB a
year."""
SAY_AGAIN_S = 3600.0
"""Minimum seconds between two reports of the same brake (a cause that limits the crawl): it may come and go with every
line."""
REFUSED = (CrawlOutcome.FORBIDDEN, CrawlOutcome.REFUSED_BY_RULES, CrawlOutcome.REFUSED)
POSTPONED = (CrawlOutcome.POSTPONED, CrawlOutcome.NO_LOOKUP)
FAILED = (CrawlOutcome.NO_PEERS, CrawlOutcome.NO_METADATA, CrawlOutcome.BAD_INFO, *POSTPONED)


def live_lines(view: Any, width: int = 200) -> list[str]:
    """Describe a crawl in a block of lines. The texts about brakes are wrapped at `width`."""
    now, rates = view.snapshot, view.rates
    findings = [wrap(f"held back: {each.text}", width, subsequent_indent="  ") for each in view.findings]
    reachable = {Reachability.REACHABLE: ", reachable", Reachability.UNREACHABLE: ", not reachable"}
    return [
        (
            f"{format_duration(view.elapsed_s)}: {format_count(now.stored, 'torrent')} stored ({_rate(rates.stored)}),"
            f"{_evicted(now)} sweep {now.sweeps + 1:,} at {now.coverage:.1%}"
        ),
        (
            f"discovered {now.discovered:,} ({_rate(rates.discovered)}): {now.total(CrawlOutcome.NEW):,} new,"
            f" {now.total(CrawlOutcome.KNOWN):,} known; about {now.known_share:.0%} of the network known"
        ),
        (
            f"tried {now.tried:,} ({_rate(rates.tried)}): {now.fetched:,} fetched,"
            f" {now.total(CrawlOutcome.NO_PEERS):,} without peers,"
            f" {now.total(CrawlOutcome.NO_METADATA):,} whose peers failed"
        ),
        f"queue {now.queued:,}, {now.in_work:,} in progress, {now.delayed:,} to try later",
        (
            f"node {format_count(now.good_contacts, 'good contact')}{reachable.get(now.reachability, '')},"
            f" out {rates.queries_out_per_s:,.0f} queries/s {format_size(rates.bytes_out_per_s)}/s,"
            f" in {format_size(rates.bytes_in_per_s)}/s,"
            f" {now.connections:,} of {now.connections_max:,} connections"
        ),
        *[line for lines in findings for line in lines],
    ]


class PlainReport:
    """Lines for a log: the figures, and the brakes, which limit the crawl. A brake is reported at once, then hourly."""

    def __init__(self) -> None:
        self.every_s = PLAIN_EVERY_S
        self._said_at: dict[Any, float] = {}

    def lines(self, view: Any) -> list[str]:
        now, rates = view.snapshot, view.rates
        line = (
            f"{format_duration(view.elapsed_s)}: {format_count(now.stored, 'torrent')} stored ({_rate(rates.stored)}),"
            f"{_evicted(now)} {now.discovered:,} discovered ({_rate(rates.discovered)}),"
            f" {now.total(CrawlOutcome.KNOWN):,} known,"
            f" {now.tried:,} tried ({_rate(rates.tried)}), {now.in_work:,} in progress, {now.queued:,} queued,"
            f" {now.delayed:,} to try later, sweep {now.sweeps + 1:,} at {now.coverage:.1%}"
        )
        if view.elapsed_s >= LATER_S:
            self.every_s = PLAIN_LATER_EVERY_S
        due_before = view.elapsed_s - SAY_AGAIN_S
        due = [each for each in view.findings if self._said_at.get(each.brake, -SAY_AGAIN_S) <= due_before]
        self._said_at |= {each.brake: view.elapsed_s for each in due}
        return [line, *[f"held back: {each.text}" for each in due]]


def summary_lines(view: Any) -> list[str]:
    """Return the outcomes of the infohashes by stage, and what limited the crawl."""
    now = view.snapshot
    evicted = now.total(CrawlOutcome.EVICTED)
    return [
        f"{format_count(now.stored, 'torrent')} stored in {format_duration(view.elapsed_s)}",
        (
            f"discovered: {now.total(CrawlOutcome.SAMPLED):,} in samples, {now.total(CrawlOutcome.ANNOUNCED):,} by"
            f" announces; {now.total(CrawlOutcome.NEW):,} new, {now.total(CrawlOutcome.KNOWN):,} known"
        ),
        (
            f"tried: {now.tried:,}; fetched: {now.total(CrawlOutcome.FETCHED_FROM_SAMPLER):,} without a lookup,"
            f" {now.total(CrawlOutcome.FETCHED_AFTER_LOOKUP):,} after a lookup; failed: {now.total(*FAILED):,}"
            f" ({now.total(CrawlOutcome.NO_PEERS):,} without peers, {now.total(CrawlOutcome.NO_METADATA):,} whose"
            f" peers failed, {now.total(*POSTPONED):,} postponed by our limits,"
            f" {now.total(CrawlOutcome.BAD_INFO):,} with invalid metadata)"
        ),
        (
            f"already stored: {now.total(CrawlOutcome.ALREADY_STORED, CrawlOutcome.STORED_BEFORE):,};"
            f" refused: {now.total(*REFUSED):,}"
        ),
        *([f"removed to keep the store within its maximum size: {evicted:,}"] if evicted else []),
        (
            f"queue: {now.done:,} done, {now.queued + now.in_work:,} queued, {now.delayed:,} to try later;"
            f" sweep {now.sweeps + 1:,} at {now.coverage:.1%}"
        ),
        *[f"held back: {each.text}" for each in view.findings],
    ]


def summary_json(view: Any) -> str:
    """Return the summary for programs. The names of outcomes and brakes are stable."""
    now, rates = view.snapshot, view.rates
    return json.dumps(
        {
            "stored": now.stored,
            "discovered": now.discovered,
            "tried": now.tried,
            "fetched": now.fetched,
            "elapsed_s": round(view.elapsed_s, 3),
            "stored_per_minute": round(rates.stored, 3),
            "outcomes": {each.name.lower(): now.total(each) for each in CrawlOutcome},
            "queue": {"queued": now.queued + now.in_work, "delayed": now.delayed, "done": now.done},
            "sweeps": now.sweeps,
            "coverage": round(now.coverage, 6),
            "known_share": round(now.known_share, 6),
            "good_contacts": now.good_contacts,
            "reachable": now.reachability.value,
            "held_back_by": [{"brake": each.brake.value, "text": each.text} for each in view.findings],
        }
    )


def _evicted(now: Any) -> str:
    evicted = now.total(CrawlOutcome.EVICTED)
    return f" {evicted:,} removed," if evicted else ""


def _rate(per_minute: float) -> str:
    return f"{per_minute:,.0f}/min"
