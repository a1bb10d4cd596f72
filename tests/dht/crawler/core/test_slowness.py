"""Why a crawl is slow: each cause alone, none while nothing limits the crawl, and the most likely one first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.core.events import Reachability
from lycosa.dht.core.limits import QueryLimit
from lycosa.dht.crawler.core.slowness import RULES, Brake, why_slow
from lycosa.dht.crawler.core.snapshot import CrawlSnapshot

BEFORE = CrawlSnapshot(1000.0)
FREE = CrawlSnapshot(
    1060.0,
    {
        CrawlOutcome.SAMPLED: 1000,
        CrawlOutcome.KNOWN: 400,
        CrawlOutcome.TRIED: 100,
        CrawlOutcome.FETCHED_AFTER_LOOKUP: 60,
        CrawlOutcome.NO_PEERS: 20,
        CrawlOutcome.NO_METADATA: 20,
        CrawlOutcome.STORED: 60,
    },
    queued=5000,
    queued_max=10_000,
    in_work=300,
    coverage=0.3,
    good_contacts=200,
    reachability=Reachability.REACHABLE,
    queries_out=1000,
    answers_in=600,
    unanswered=400,
    connections=100,
    connections_max=500,
    store_waiting=3,
    store_waiting_max=256,
    store_busy_s=2.0,
    cpu_s=20.0,
    disk_free_bytes=50_000_000_000,
)
"""A minute later. Nothing limited the crawl in that minute."""


def counting(**counts: int) -> dict[CrawlOutcome, int]:
    return {**FREE.counts, **{CrawlOutcome[name]: number for name, number in counts.items()}}


SLOW = {
    Brake.DISK: (
        replace(FREE, disk_free_bytes=400_000_000),
        "the disk of the state folder has only 400 MB left: when it is full, nothing can be stored",
    ),
    Brake.STORE: (
        replace(FREE, store_busy_s=57.0, store_waiting=250),
        "the store cannot keep up: it is busy 95% of the time, and 250 torrents wait for it",
    ),
    Brake.PROCESSOR: (
        replace(FREE, cpu_s=59.0),
        "the crawl uses 98% of a processor core, and cannot use more than one",
    ),
    Brake.CONTACTS: (
        replace(FREE, good_contacts=3),
        "the node has only 3 good contacts: the network is small, or most responses are lost",
    ),
    Brake.SILENCE: (
        replace(FREE, answers_in=100, unanswered=900),
        "90% of the queries get no answer: the line or the router loses packets, or contacts are stale",
    ),
    Brake.UNREACHABLE: (
        replace(FREE, reachability=Reachability.UNREACHABLE),
        (
            "other nodes cannot reach this one, so no peer announces to it: open its UDP port in the firewall, and"
            " forward it in the router"
        ),
    ),
    Brake.LIMIT: (
        replace(FREE, waiting_queries=120, waits={QueryLimit.HOST: 5, QueryLimit.NEW_ADDRESSES: 500}),
        "120 queries waiting for the limit of new addresses per minute (see --profile)",
    ),
    Brake.BACKLOG: (
        replace(FREE, queued=10_001),
        "the queue is full (10,001 of 10,000): the sweep rests until it is shorter",
    ),
    Brake.CONNECTIONS: (
        replace(FREE, connections=498),
        "498 of 500 connections to peers are open: fetches wait for them",
    ),
    Brake.LOOKUPS: (
        replace(FREE, all_lookups_used=True),
        "the maximum number of lookups, at a time or per minute, is reached: other tries wait or are postponed",
    ),
    Brake.NO_PEERS: (
        replace(FREE, counts=counting(FETCHED_AFTER_LOOKUP=10, NO_PEERS=80, NO_METADATA=10)),
        "80% of the tried infohashes have no peers now: they will be tried again later",
    ),
    Brake.PEERS: (
        replace(FREE, counts=counting(FETCHED_AFTER_LOOKUP=10, NO_PEERS=10, NO_METADATA=80)),
        (
            "the peers of 80% of the tried infohashes do not deliver: they are offline, behind routers, or require"
            " encryption"
        ),
    ),
    Brake.KNOWN: (
        replace(FREE, counts=counting(KNOWN=970)),
        "97% of the discovered infohashes are known: these nodes return little that is new",
    ),
    Brake.SWEEP: (
        replace(FREE, counts=counting(SAMPLED=0), sweeps=1, coverage=0.0),
        "the sweep is complete: the next one starts when the nodes may be queried again (6 hours at most, BEP 51)",
    ),
    Brake.QUEUE: (
        replace(FREE, queued=0, in_work=0, delayed=1234),
        "no infohash is due: 1,234 will be tried again later",
    ),
}


def test_a_crawl_that_runs_freely_has_no_brake() -> None:
    assert why_slow(BEFORE, FREE) == []


@pytest.mark.parametrize("brake", SLOW, ids=str)
def test_each_cause_is_found_alone(brake: Brake) -> None:
    now, text = SLOW[brake]
    assert why_slow(BEFORE, now) == [(brake, text)]


def test_every_cause_has_a_rule_and_a_test() -> None:
    assert [brake for brake, _ in RULES] == list(Brake) == list(SLOW)


def test_a_store_that_does_not_answer_is_not_reported_as_slow() -> None:
    [finding] = why_slow(BEFORE, replace(FREE, counts=counting(STORED=0), store_busy_s=60.0, store_waiting=256))
    assert finding == (Brake.STORE, "the store has not answered for 1 min: it is down, locked or full")


@pytest.mark.parametrize("brake", [Brake.NO_PEERS, Brake.KNOWN, Brake.SILENCE, Brake.LIMIT], ids=str)
def test_counts_reached_before_the_first_snapshot_do_not_explain_slowness(brake: Brake) -> None:
    now, _ = SLOW[brake]
    assert brake not in [each.brake for each in why_slow(replace(now, at=BEFORE.at), now)]


def test_shares_of_too_few_infohashes_and_queries_are_ignored() -> None:
    counts = {CrawlOutcome.SAMPLED: 50, CrawlOutcome.KNOWN: 50, CrawlOutcome.NO_PEERS: 10}
    assert why_slow(BEFORE, replace(FREE, counts=counts, answers_in=0, unanswered=40)) == []


def test_tries_postponed_for_want_of_lookups_are_a_brake_even_if_lookups_are_free_again() -> None:
    now = replace(FREE, counts=counting(NO_LOOKUP=60))
    text = "60 tries postponed, because the lookups of the minute are used up"
    assert why_slow(BEFORE, now) == [(Brake.LOOKUPS, text)]
    assert why_slow(replace(now, at=BEFORE.at), now) == []
    assert why_slow(BEFORE, replace(FREE, counts=counting(NO_LOOKUP=19))) == []


def test_a_crawl_that_has_just_started_is_not_slow() -> None:
    assert why_slow(BEFORE, CrawlSnapshot(1001.0)) == []


def test_slowness_in_the_first_seconds_is_explained_by_the_counts_so_far() -> None:
    now = CrawlSnapshot(1003.0, {CrawlOutcome.TRIED: 68, CrawlOutcome.NO_LOOKUP: 65})
    assert [each.brake for each in why_slow(BEFORE, now)] == [Brake.LOOKUPS]


def test_the_first_cause_explains_the_others() -> None:
    alone = why_slow(BEFORE, replace(FREE, good_contacts=0, queued=0, in_work=0, unanswered=900, answers_in=0))
    assert [each.brake for each in alone] == [Brake.CONTACTS, Brake.SILENCE, Brake.QUEUE]
    assert alone[0].text == "no node answers: check --bootstrap, and that the firewall lets UDP through"
    assert alone[-1].text == "no infohash is due"
