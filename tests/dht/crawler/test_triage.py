"""Triage: which infohashes are queued, and how all are counted."""

from __future__ import annotations

import asyncio
import random

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.endpoints import Contact, pack
from lycosa.dht.crawler.core.hash_records import POLICY, infohash_of
from lycosa.dht.crawler.core.hints import Hint, Hints
from lycosa.dht.crawler.core.sampler_trust import TRIED_MIN
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.triage import Triage
from lycosa.frontier.memory import memory_frontier

HASHES = [random.Random(number).randbytes(20) for number in range(6)]
NODE = Contact(b"n" * 20, pack("20.0.0.1", 6881))
PEER = pack("20.0.0.2", 5000)


class Stage:
    """Triage with an empty queue in memory."""

    def __init__(self) -> None:
        self.queue = HashQueue(memory_frontier(POLICY), lambda: 0.0, lambda: 0.0)
        self.hints, self.funnel = Hints(), Funnel()
        self.triage = Triage(self.queue, self.hints, self.funnel)

    def counts(self) -> dict[str, int]:
        return {outcome.name: count for outcome, count in self.funnel.counts.items() if count}


def test_new_infohashes_are_queued_with_their_sampler() -> None:
    async def run() -> None:
        stage = Stage()
        named = [*HASHES[:3], HASHES[0], bytes(20)]
        assert await stage.triage.take(named, CrawlOutcome.SAMPLED, sampler=NODE) == 3
        assert await stage.triage.take(HASHES[:4], CrawlOutcome.SAMPLED, sampler=NODE) == 1
        assert stage.counts() == {"SAMPLED": 9, "NEW": 4, "KNOWN": 4, "MALFORMED": 1}
        assert sorted(infohash_of(each.record) for each in await stage.queue.lease(10)) == sorted(HASHES[:4])
        assert stage.hints.take(HASHES[3]) == Hint((NODE,))

    asyncio.run(run())


def test_the_peer_of_an_announced_infohash_is_remembered_even_if_the_infohash_is_known() -> None:
    async def run() -> None:
        stage = Stage()
        await stage.triage.take(HASHES[:1], CrawlOutcome.SAMPLED, sampler=NODE)
        assert await stage.triage.take(HASHES[:1], CrawlOutcome.ANNOUNCED, peer=PEER) == 0
        assert stage.hints.take(HASHES[0]) == Hint((NODE,), (PEER,))

    asyncio.run(run())


def test_samples_of_a_distrusted_host_are_ignored() -> None:
    async def run() -> None:
        stage = Stage()
        for _ in range(TRIED_MIN):
            stage.hints.trust.tried(NODE.endpoint, 0.0, fetched=False)
        assert await stage.triage.take(HASHES, CrawlOutcome.SAMPLED, sampler=NODE) == 0
        assert await stage.queue.lease(10) == []
        assert stage.counts() == {"SAMPLED": 6, "DISTRUSTED": 6}

    asyncio.run(run())
