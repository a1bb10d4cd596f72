"""Our node among nodes of libtorrent, aria2 and rtorrent on loopback: each method that they support, both ways."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lycosa.dht.core.bencode import encode
from lycosa.dht.core.endpoints import Contact, parse, text
from lycosa.dht.core.events import InfohashesSampled, QueryFinished
from lycosa.dht.core.limits import NodeLimits
from lycosa.dht.session import AnnounceResult, DhtSession, open_node
from tests.conftest import need
from tests.dht.e2e.nodes import countable_address
from tests.servers.dht_clients import RTORRENT, Aria2Node, ClientNode, RtorrentNode, find_rtorrent, libtorrent_nodes

libtorrent = pytest.importorskip("libtorrent", reason="needs libtorrent: pip install 'lycosa[dev]'")

WAIT_MAX_S = 60.0
POLL_S = 0.01
FAST = NodeLimits(queries_per_s=1000, queries_burst=1000)
INFOHASH = hashlib.sha1(b"theirs").digest()
OURS = hashlib.sha1(b"ours").digest()
INFO = {b"length": 16384, b"name": b"a", b"piece length": 16384, b"pieces": b"x" * 20}


def lt_hash(infohash: bytes) -> Any:
    return libtorrent.sha1_hash(infohash)


@asynccontextmanager
async def our_node(host: str = "", **options: Any) -> AsyncIterator[tuple[DhtSession, str]]:
    """Open a node on loopback. Yield it with its address."""
    address = host or countable_address()
    bind = f"[{address}]:0" if ":" in address else f"{address}:0"
    async with open_node([bind], allow_private=["127.0.0.0/8", "::1"], **options) as node:
        yield node, text(node.endpoints[0])
        # The kernel sends nothing from a loopback address to other networks: such a datagram would be counted here.
        assert [shell.dropped_count for shell in node.shells] == [0]


async def until(happened: Callable[[], bool], poll_s: float = POLL_S) -> None:
    deadline = time.monotonic() + WAIT_MAX_S
    while not happened():
        assert time.monotonic() < deadline
        await asyncio.sleep(poll_s)


async def alert(node: Any, kind: type, wanted: Callable[[Any], bool] = lambda _: True) -> Any:
    return await asyncio.to_thread(node.alert, kind, wanted)


async def found_by(node: Any, infohash: bytes) -> list[tuple[str, int]]:
    """Return the first peers that a libtorrent session finds.

    The lookup is repeated until it finds some, because the table of the session may still grow.
    """
    found: list[tuple[str, int]] = []

    def look() -> bool:
        node.session.dht_get_peers(lt_hash(infohash))
        replies = (each for each in node.session.pop_alerts() if isinstance(each, libtorrent.dht_get_peers_reply_alert))
        found.extend(peer for each in replies for peer in each.peers())
        return bool(found)

    await until(look, poll_s=0.2)
    return sorted(set(found))


def test_libtorrent_sessions_join_through_our_node_and_store_its_announces() -> None:
    async def run() -> None:
        with libtorrent_nodes(12) as theirs:
            async with our_node() as (ours, place):
                for node in theirs:
                    node.add(place)
                await until(lambda: ours.status()[0].contacts.good >= 8)
                async with asyncio.timeout(WAIT_MAX_S):
                    # Late answers are not awaited.
                    while (await ours.announce(OURS, 777)) != AnnounceResult(8, 8):  # noqa: ASYNC110
                        await asyncio.sleep(POLL_S)
                assert await found_by(theirs[0], OURS) == [(place.rpartition(":")[0], 777)]
                assert [str(peer) async for peer in ours.lookup(OURS)] == [f"{place.rpartition(':')[0]}:777"]

    asyncio.run(run())


@pytest.mark.parametrize("host", ["", "::1"])
def test_libtorrent_announces_finds_and_samples_through_our_node_alone(host: str) -> None:
    """Over IPv4, and with the host `::1` over IPv6."""

    async def run() -> None:
        with libtorrent_nodes(2, host=host) as (first, second):
            async with our_node(host) as (ours, place):
                first.add(place)
                await until(lambda: ours.status()[0].contacts.good == 1)

                def announced() -> bool:
                    first.session.dht_announce(lt_hash(INFOHASH), 4242, 0)
                    return ours.status()[0].peers == 1

                await until(announced, poll_s=0.2)

                second.add(place)
                assert await found_by(second, INFOHASH) == [(first.host, 4242)]

                address = (place.rpartition(":")[0].strip("[]"), int(place.rpartition(":")[2]))
                if host:  # libtorrent requests no samples over IPv6
                    return
                second.session.dht_sample_infohashes(address, lt_hash(OURS))
                sampled = await alert(second, libtorrent.dht_sample_infohashes_alert)
                assert [each.to_bytes() for each in sampled.samples] == [INFOHASH]
                assert (sampled.num_infohashes, sampled.interval.total_seconds()) == (1, 1800)

    asyncio.run(run())


@pytest.mark.parametrize("host", ["", "::1"])
def test_libtorrent_answers_all_of_our_queries(host: str) -> None:
    async def run() -> None:
        with libtorrent_nodes(1, host=host) as [theirs]:
            async with our_node(host, bootstrap=[theirs.place], limits=FAST) as (ours, place):
                assert await ours.joined() == 1
                pong = await ours.ping(parse(theirs.place))
                assert pong.node_id is not None, pong.error
                contact = Contact(pong.node_id, parse(theirs.place))
                assert await ours.find_node(OURS) == [contact]
                assert (await ours.announce(OURS, 777, seed=True)).confirmed == 1
                assert [str(peer) async for peer in ours.lookup(OURS)] == [f"{place.rpartition(':')[0]}:777"]
                estimate = await ours.scrape(OURS)
                assert (round(estimate.seeds), round(estimate.leechers)) == (1, 0)
                sample = await ours.sample_infohashes(contact, OURS)
                assert isinstance(sample, InfohashesSampled), sample
                assert (sample.samples, sample.infohashes, sample.interval_s) == ((OURS,), 1, 1)

    asyncio.run(run())


def test_libtorrent_with_its_own_limits_does_not_ban_us() -> None:
    """An address is banned by libtorrent if it sends more than 50 messages within 10 seconds.

    A hundred concurrent lookups would send more, but our own limits slow them down.
    """

    async def run() -> None:
        with libtorrent_nodes(1, dht_block_ratelimit=5) as [theirs]:
            async with our_node(bootstrap=[theirs.place]) as (ours, _):
                await ours.joined()
                lookups = [asyncio.ensure_future(ours.find_node(bytes([n]) * 20)) for n in range(100)]
                sent = ours.shells[0].node.traffic
                await until(lambda: sent.queries_out >= 7)  # our limit allows that after three seconds
                for lookup in lookups:
                    lookup.cancel()
                await asyncio.wait(lookups)
                assert not (await ours.ping(parse(theirs.place))).error

    asyncio.run(run())


def rtorrent(entry: str) -> RtorrentNode:
    need(RTORRENT, find_rtorrent())
    return RtorrentNode(entry, hashlib.sha1(encode(INFO)).digest(), encode({b"info": INFO}))


def aria2(entry: str) -> Aria2Node:
    need("aria2 (apt-get install aria2)", shutil.which("aria2c") is not None)
    return Aria2Node(entry, INFOHASH)


def test_clients_join_and_announce_through_our_node_and_answer_it() -> None:
    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            for client in (aria2, rtorrent):
                tasks.create_task(meet(client))

    asyncio.run(run())


async def meet(client: Callable[[str], ClientNode]) -> None:
    async with our_node(limits=FAST) as (ours, place):
        theirs = client(place)
        await asyncio.to_thread(theirs.__enter__)
        try:
            await until(lambda: ours.status()[0].peers == 1)
            await talk(ours, theirs)
        finally:
            await asyncio.to_thread(theirs.stop)


async def talk(ours: DhtSession, theirs: ClientNode) -> None:
    assert [str(peer) async for peer in ours.lookup(theirs.infohash)] == [theirs.place]
    pong = await ours.ping(parse(theirs.place))
    assert pong.node_id is not None, pong.error
    contact = Contact(pong.node_id, parse(theirs.place))
    assert await ours.find_node(OURS) == [contact]
    assert (await ours.announce(OURS, 0x0909)).confirmed == 1
    assert [peer.port async for peer in ours.lookup(OURS)] == [0x0909]
    if isinstance(theirs, RtorrentNode):
        asked = await ours.sample_infohashes(contact, OURS)
        assert isinstance(asked, QueryFinished)
        assert asked.error == "error 204: Unknown query type."
