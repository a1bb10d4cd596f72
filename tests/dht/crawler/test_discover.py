"""The infohashes that other nodes announce to our node, and request from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.endpoints import pack
from lycosa.dht.core.events import Event, PeerAnnounced, PeersWanted
from lycosa.dht.core.limits import NodeLimits
from lycosa.dht.crawler.core.hash_records import POLICY
from lycosa.dht.crawler.core.hints import Hints
from lycosa.dht.crawler.core.profiles import HOME
from lycosa.dht.crawler.discover import ANNOUNCES_BURST, HarvestStage
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.triage import Triage
from lycosa.dht.session import DhtSession
from lycosa.frontier.lsm.frontier import embedded_frontier
from tests.dht.crawler.test_stages import WAIT_MAX_S, until
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
NODE: Any = None
Receive = Callable[[Event], None]


def harvest(folder: Path, scenario: Callable[[Receive, Funnel], Awaitable[None]]) -> None:
    async def run() -> None:
        frontier = embedded_frontier(folder, POLICY, now=NOW)
        session, funnel = DhtSession(NodeLimits()), Funnel()
        queue = HashQueue(frontier, lambda: NOW, lambda: 0.0)
        stage = HarvestStage(session, Triage(queue, Hints(), funnel), funnel, HOME)
        running = asyncio.create_task(stage.run())
        await asyncio.sleep(0)
        await scenario(lambda event: session.listeners[0](NODE, event), funnel)
        running.cancel()
        await asyncio.wait([running])
        await frontier.close()

    asyncio.run(run())


def infohash(number: int) -> bytes:
    return torrent(number).keys[0]


def test_a_host_that_announces_countless_infohashes_gets_few_into_the_queue(tmp_path: Path) -> None:
    async def scenario(receive: Receive, funnel: Funnel) -> None:
        for number in range(ANNOUNCES_BURST + 30):  # from changing ports
            receive(PeerAnnounced(infohash(number), pack("203.0.113.7", 1000 + number), seed=False))
        receive(PeerAnnounced(infohash(1000), pack("203.0.113.8", 1000), seed=False))
        async with asyncio.timeout(WAIT_MAX_S):
            await until(lambda: funnel.counts[CrawlOutcome.NEW] == ANNOUNCES_BURST + 1)
        assert funnel.counts[CrawlOutcome.DROPPED] == 30

    harvest(tmp_path, scenario)


def test_an_infohash_whose_requests_exceeded_the_limit_gets_another_chance(tmp_path: Path) -> None:
    async def scenario(receive: Receive, funnel: Funnel) -> None:
        number = 0
        while not funnel.counts[CrawlOutcome.DROPPED]:
            number += 1
            receive(PeersWanted(infohash(number)))
            receive(PeersWanted(infohash(number)))
        receive(PeersWanted(infohash(number)))
        assert funnel.counts[CrawlOutcome.DROPPED] == 2, "considered again, but the limit still holds"
        receive(PeersWanted(infohash(number + 1)))
        assert funnel.counts[CrawlOutcome.DROPPED] == 2, "requested only once, so neither considered nor dropped"

    harvest(tmp_path, scenario)
