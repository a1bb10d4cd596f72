"""The stages of a crawl between real nodes and peers on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lycosa import dht
from lycosa.app.dht_crawl import node_settings
from lycosa.core.errors import StorageUnavailable
from lycosa.dht.core import transactions
from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.endpoints import Contact, pack, text
from lycosa.dht.core.events import PeerAnnounced
from lycosa.dht.crawler import metadata as metadata_module
from lycosa.dht.crawler.core.hash_records import POLICY
from lycosa.dht.crawler.core.hints import Hints
from lycosa.dht.crawler.core.profiles import SERVER
from lycosa.dht.crawler.core.sweep import LANES_BITS, PROGRESS_BITS, Sweep
from lycosa.dht.crawler.core.torrent_records import to_torrent_record
from lycosa.dht.crawler.crawl import TorrentCrawl
from lycosa.dht.crawler.discover import SweepStage
from lycosa.dht.crawler.popularity import PopularityStage
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.samplers import SamplerQueries
from lycosa.dht.crawler.seen import SeenStage
from lycosa.dht.crawler.store import StoreStage
from lycosa.dht.crawler.triage import Triage
from lycosa.dht.session import DhtSession
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.storage.core.torrents.inspection import Inspection
from lycosa.storage.records.memory import MemoryRecordStore
from tests.dht.e2e.nodes import countable_address
from tests.servers.ports import closed_port
from tests.servers.proxies import new_address
from tests.servers.seeders import canned, seeding
from tests.storage.rules.records import rules_of

NOW = 1_790_000_000.0
METADATA = canned(7, 40_000)
INFOHASH = hashlib.sha1(METADATA).digest()
OTHER = b"other" * 4
WAIT_MAX_S, POLL_S = 60.0, 0.005


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes wait for answers, however slow the machine is: a failed try would never be repeated at a fixed time."""
    for name in ("STALLED_MIN_S", "STALLED_MAX_S", "STALLED_INITIAL_S", "FAILED_S"):
        monkeypatch.setattr(transactions, name, 60.0)


@asynccontextmanager
async def node(join: DhtSession | None = None, host: str = "", **settings: object) -> AsyncIterator[DhtSession]:
    bootstrap = [text(each) for each in join.endpoints] if join else []
    bind = [f"{host or new_address()}:0"]
    async with dht.open_node(bind, bootstrap=bootstrap, allow_private=["127.0.0.0/8"], **settings) as opened:  # type: ignore[arg-type]
        if join:
            await opened.joined()
        yield opened


@asynccontextmanager
async def sharing(join: DhtSession) -> AsyncIterator[DhtSession]:
    """Run a node that announces a peer with the metadata."""
    host = countable_address()
    async with seeding({INFOHASH: METADATA}, host=host) as port, node(join, host) as opened:
        assert (await opened.announce(INFOHASH, port, seed=True)).confirmed
        yield opened


@asynccontextmanager
async def crawling(session: DhtSession, folder: Path) -> AsyncIterator[tuple[TorrentCrawl, MemoryRecordStore]]:
    """Run a crawl while the block runs."""
    store = MemoryRecordStore()
    frontier = embedded_frontier(folder, POLICY, now=NOW)
    rules = rules_of(Inspection)
    crawl = TorrentCrawl(session, frontier, store, lambda: rules, lambda: NOW, random.random, SERVER)
    try:
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(WAIT_MAX_S):
            task = tasks.create_task(crawl.run())
            yield crawl, store
            task.cancel()
    finally:
        await frontier.close()


async def until(happened: Callable[[], object]) -> None:
    """Wait until this is true. A time limit around the caller ends the wait."""
    while not happened():
        assert asyncio.get_running_loop().is_running()
        await asyncio.sleep(POLL_S)


async def stored(crawl: TorrentCrawl) -> None:
    await until(lambda: crawl.funnel.counts[CrawlOutcome.STORED])


@pytest.mark.usefixtures("patience")
def test_the_peers_that_a_sampler_knows_deliver_without_a_lookup(tmp_path: Path) -> None:
    async def run() -> None:
        async with node() as first, sharing(first), node(first, **node_settings(SERVER.name)) as session:
            async with crawling(session, tmp_path) as (crawl, store):
                await stored(crawl)
            [row] = await store.torrents(0, 10)
            assert row.record == to_torrent_record(METADATA, int(NOW))
            assert crawl.funnel.counts[CrawlOutcome.FETCHED_FROM_SAMPLER] == 1
            assert crawl.funnel.counts[CrawlOutcome.FETCHED_AFTER_LOOKUP] == 0
            assert session.fetcher.in_flight_bytes == 0

    asyncio.run(run())


@pytest.mark.usefixtures("patience")
def test_an_infohash_that_others_request_is_looked_up_and_stored(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            node() as first,
            node(first, **node_settings(SERVER.name)) as session,
            sharing(session),
            crawling(session, tmp_path) as (crawl, _),
            node(session) as asking,
        ):
            # One request is not enough for the queue: nodes also look up random targets, but each of them only once.
            for target in (OTHER, INFOHASH, INFOHASH):
                assert bool([peer async for peer in asking.lookup(target)]) is (target == INFOHASH)
            await stored(crawl)
            await until(lambda: crawl.funnel.counts[CrawlOutcome.WANTED] == 1)

    asyncio.run(run())


def test_a_silent_sampler_is_awaited_once_and_briefly() -> None:
    async def run() -> None:
        async with node() as session:
            queries = SamplerQueries(session)
            silent = Contact(b"s" * 20, pack("127.0.0.1", closed_port()))
            assert await asyncio.gather(*(queries.ask(silent, bytes([n]) * 20) for n in range(20))) == [None] * 20
            assert session.status()[0].traffic.queries_out == 1

    asyncio.run(run())


@pytest.mark.usefixtures("patience")
def test_large_metadata_are_parsed_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def read(metadata: bytes, now: int) -> object:
        threads.append(threading.current_thread())
        return to_torrent_record(metadata, now)

    monkeypatch.setattr(metadata_module, "to_torrent_record", read)

    async def run() -> None:
        async with (
            node() as first,
            sharing(first),
            node(first, **node_settings(SERVER.name)) as session,
            crawling(session, tmp_path) as (crawl, _),
        ):
            await stored(crawl)

    asyncio.run(run())
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.usefixtures("patience")
def test_the_peers_of_stored_torrents_are_counted_with_the_time() -> None:
    async def run() -> None:
        store, funnel = MemoryRecordStore(), Funnel()
        await store.put([to_torrent_record(METADATA, 1)], NOW)
        async with node() as first, sharing(first), node(first) as session:
            await PopularityStage(session, store, lambda: NOW, funnel, SERVER).count_some()
        row = await store.get(INFOHASH)
        assert row is not None
        assert (row.seeders, row.leechers, row.counted) == (1, 0, int(NOW))
        assert funnel.counts == {CrawlOutcome.COUNTED: 1}

    asyncio.run(run())


def test_without_an_answer_nothing_is_counted_and_other_torrents_follow() -> None:
    async def run() -> None:
        store, funnel = MemoryRecordStore(), Funnel()
        await store.put([to_torrent_record(METADATA, 1)], NOW)
        async with node() as alone:
            stage = PopularityStage(alone, store, lambda: NOW, funnel, SERVER)
            await stage.count_some()
            await store.put([to_torrent_record(canned(8, 200), 1)], NOW)
            await stage.count_some()
        assert funnel.counts == {CrawlOutcome.NOT_COUNTED: 2}
        assert {row.counted for row in await store.torrents(0, 10)} == {None}

    asyncio.run(run())


class HeldTriage(Triage):
    """Takes infohashes when it is released."""

    def __init__(self, queue: HashQueue) -> None:
        super().__init__(queue, Hints(), Funnel())
        self.samplers: list[Contact] = []
        self.entered, self.released = asyncio.Event(), asyncio.Event()

    async def take(self, infohashes: Iterable[bytes], source: CrawlOutcome, **who: Any) -> int:
        self.samplers.append(who["sampler"])
        self.entered.set()
        await self.released.wait()
        return await super().take(infohashes, source, **who)


def test_the_position_of_the_sweep_waits_until_the_infohashes_are_queued(tmp_path: Path) -> None:
    async def run() -> None:
        frontier = embedded_frontier(tmp_path, POLICY, now=NOW)
        queue = HashQueue(frontier, lambda: NOW, random.random)
        async with node() as first, sharing(first), node(first) as session, asyncio.timeout(WAIT_MAX_S):
            triage, sweep = HeldTriage(queue), Sweep(asyncio.get_running_loop().time())
            task = asyncio.create_task(SweepStage(session, sweep, triage, queue, SERVER).run())
            await triage.entered.wait()
            held = sweep.position  # a small network has one lane
            assert held >> LANES_BITS <= int.from_bytes(triage.samplers[0].id) >> (160 - PROGRESS_BITS)
            triage.released.set()
            await until(lambda: sweep.sweeps > 0)
            assert (await queue.stats()).queued == 1
            task.cancel()
            await asyncio.wait([task])
        await frontier.close()

    asyncio.run(run())


def test_stored_torrents_that_are_found_again_are_marked_as_seen_that_day(tmp_path: Path) -> None:
    async def run() -> None:
        day_s = 86_400
        store, queue_at = MemoryRecordStore(), NOW + 2 * day_s
        await store.put([to_torrent_record(METADATA, 1)], NOW)
        frontier = embedded_frontier(tmp_path, POLICY, now=NOW)
        seen = SeenStage(store, lambda: queue_at)
        triage = Triage(HashQueue(frontier, lambda: NOW, random.random), Hints(), Funnel(), seen.add)
        for _ in range(2):  # the first time, the infohash is new to the queue
            await triage.take([INFOHASH, OTHER], CrawlOutcome.SAMPLED)
            await seen.flush()
        row = await store.get(INFOHASH)
        assert row is not None
        assert row.seen == queue_at // day_s * day_s
        await frontier.close()

    asyncio.run(run())


def test_a_crawl_that_ends_while_its_store_fails_keeps_the_last_infohashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lycosa.dht.crawler.queue.COMMIT_EVERY_S", WAIT_MAX_S)

    async def fail(_: StoreStage) -> None:
        raise StorageUnavailable("the server is gone")

    monkeypatch.setattr(StoreStage, "finish", fail)

    async def announce_and_end() -> None:
        async with node() as session, crawling(session, tmp_path) as (crawl, _):
            await until(lambda: session.listeners)
            session.listeners[0](session.shells[0], PeerAnnounced(OTHER, pack("127.0.0.1", 9), seed=True))
            await until(lambda: crawl.funnel.counts[CrawlOutcome.NEW])

    async def unfinished() -> int:
        frontier = embedded_frontier(tmp_path, POLICY, now=NOW)
        stats = await frontier.stats()
        await frontier.close()
        return stats.unfinished  # queued, or delayed if the peer has refused the connection before the crawl ended

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(announce_and_end())
    assert raised.group_contains(StorageUnavailable)
    assert asyncio.run(unfinished()) == 1
