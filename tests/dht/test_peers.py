"""Metadata over real connections on loopback: honest peers, hostile peers, and the limits for all fetches together."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import resource
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Self

import pytest

from lycosa.core.errors import NoMetadata
from lycosa.dht.core.endpoints import AllowedNetworks, pack
from lycosa.dht.core.metadata.conversation import StageLimits
from lycosa.dht.core.metadata.failures import PeerFailure
from lycosa.dht.peers import PEERS_MAX, FetchLimits, MetadataFetch, MetadataFetcher, PeerConnection
from tests.conftest import PROVE
from tests.loops import LOOPS, run_on
from tests.servers.ports import closed_port
from tests.servers.proxies import new_address
from tests.servers.seeders import Behaviour, Log, canned, message, seeding

METADATA = canned(1, 40_000)
V1, V2 = hashlib.sha1(METADATA).digest(), hashlib.sha256(METADATA).digest()
BOTH = {V1: METADATA, V2: METADATA}
LOOPBACK = AllowedNetworks(["127.0.0.0/8"])
PATIENT = StageLimits(connect_s=60, handshake_s=60, piece_s=60, total_s=60)
"""For tests that must not depend on the speed of the machine."""
HASTY = StageLimits(connect_s=60, handshake_s=1, piece_s=1, total_s=60)
"""For peers that have to run into a deadline."""


ON_UVLOOP = pytest.mark.parametrize("run", [LOOPS["uvloop"]], indirect=True, ids=["uvloop"])
"""For tests that take long: they run only on the event loop that the commands use."""


@pytest.fixture(params=LOOPS.values(), ids=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[Any]], Any]:
    """Run a coroutine on both event loops."""
    return partial(run_on, request.param)


def fetcher(*, stages: StageLimits = PATIENT, allowed: AllowedNetworks = LOOPBACK, **options: Any) -> MetadataFetcher:
    limits = {key: options.pop(key) for key in list(options) if key in FetchLimits.__slots__}
    return MetadataFetcher(os.urandom, limits=FetchLimits(stages=stages, **limits), allowed=allowed, **options)


class Swarm:
    """Seeders, each on another address."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.log = Log()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def add(self, behaviour: Behaviour = Behaviour.HONEST, torrents: Any = None, **options: Any) -> bytes:
        """Return the endpoint of a new seeder."""
        host = new_address()
        options.setdefault("log", self.log)
        started = seeding(torrents or BOTH, behaviour, host=host, **options)
        return pack(host, await self._stack.enter_async_context(started))


async def failures_of(fetches: MetadataFetcher, *endpoints: bytes, infohash: bytes = V1) -> dict[PeerFailure, int]:
    """Fetch from peers that all fail. Return the failures."""
    fetch = fetches.start(infohash)
    for endpoint in endpoints:
        fetch.add_peer(endpoint)
    fetch.no_more_peers()
    with pytest.raises(NoMetadata):
        await fetch.result()
    assert fetches.connection_count == fetches.in_flight_bytes == 0
    return dict(fetch.failures)


@pytest.mark.parametrize("infohash", [V1, V2, V2[:20]], ids=["version 1", "version 2", "version 2 truncated"])
def test_metadata_come_from_a_peer(run, infohash):
    async def main() -> None:
        async with Swarm() as swarm, fetcher() as fetches:
            assert await fetches.fetch(infohash, [await swarm.add()]) == METADATA
            assert fetches.connection_count == fetches.in_flight_bytes == 0

    run(main())


@pytest.mark.parametrize("size", [200, 16_384, 16_385, 32_768, 300_000])
def test_metadata_of_any_size_are_fetched(run, size):
    async def main() -> None:
        metadata = canned(2, size)
        assert len(metadata) == size
        infohash = hashlib.sha1(metadata).digest()
        async with Swarm() as swarm, fetcher() as fetches:
            assert await fetches.fetch(infohash, [await swarm.add(torrents={infohash: metadata})]) == metadata

    run(main())


def test_nothing_of_a_fetch_stays_in_memory(run):
    """Also without the garbage collector, which runs late when many fetches end."""

    async def main() -> None:
        async with Swarm() as swarm, fetcher() as fetches:
            peers = [await swarm.add()]
            gc.collect()
            gc.disable()
            try:
                assert await fetches.fetch(V1, peers) == METADATA
                await swarm.log.until(open=0)
                left = [each for each in gc.get_objects() if isinstance(each, PeerConnection | MetadataFetch)]
                assert left == []
            finally:
                gc.enable()

    run(main())


def test_several_peers_share_the_work(run):
    async def main() -> None:
        metadata = canned(3, 2_000_000)
        infohash = hashlib.sha1(metadata).digest()
        logs = [Log() for _ in range(3)]
        async with Swarm() as swarm, fetcher() as fetches:
            peers = [await swarm.add(torrents={infohash: metadata}, log=log) for log in logs]
            assert await fetches.fetch(infohash, peers) == metadata
        assert sum(log.ids[103] for log in logs) >= 123
        assert all(log.ids[103] > 8 for log in logs), "each had more than one turn"

    run(main())


@ON_UVLOOP
def test_only_extended_messages_and_port_messages_are_ever_sent(run):
    """To seeders of all kinds. 9 is the port message; 100 and 103 are extended messages: handshakes and metadata."""

    async def main() -> None:
        async with (
            Swarm() as swarm,
            fetcher(stages=HASTY, dht_port=6881) as hasty,
            fetcher(dht_port=6881) as patient,
        ):
            request = message(20, b"\1d8:msg_typei0e5:piecei0ee") + message(1)
            peers = [await swarm.add(behaviour, extra=request) for behaviour in Behaviour]
            fetches = [patient if each is Behaviour.HONEST else hasty for each in Behaviour]
            waiting = [each.fetch(V1, [peer]) for each, peer in zip(fetches, peers, strict=True)]
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert [isinstance(each, NoMetadata) for each in results] == [
                each is not Behaviour.HONEST for each in Behaviour
            ]
        assert set(swarm.log.ids) == {9, 100, 103}
        assert swarm.log.ports == {6881}

    run(main())


def test_the_dht_nodes_of_peers_are_reported(run):
    async def main() -> None:
        nodes: list[bytes] = []
        async with Swarm() as swarm, fetcher(on_dht_node=nodes.append) as fetches:
            peer = await swarm.add(extra=message(9, b"\x1a\xe2") + message(9, b"\0\0"))
            await fetches.fetch(V1, [peer])
            assert nodes == [peer[:4] + b"\x1a\xe2"], "port 0 is no node"

    run(main())


FAILURES = {
    Behaviour.WRONG_HASH: PeerFailure.WRONG_HASH,
    Behaviour.WRONG_SIZE: PeerFailure.WRONG_HASH,
    Behaviour.SHORT_PIECE: PeerFailure.PROTOCOL,
    Behaviour.HUGE_PREFIX: PeerFailure.PROTOCOL,
    Behaviour.REJECTS: PeerFailure.NO_METADATA,
    Behaviour.FLOODS_KEEP_ALIVES: PeerFailure.FLOOD,
    Behaviour.FLOODS_BITFIELDS: PeerFailure.FLOOD,
    Behaviour.CLOSES: PeerFailure.CLOSED,
    Behaviour.OTHER_INFOHASH: PeerFailure.OTHER_INFOHASH,
    Behaviour.NO_EXTENSIONS: PeerFailure.NO_EXTENSIONS,
    Behaviour.NO_METADATA: PeerFailure.NO_METADATA,
}
SLOW = (Behaviour.DRIPS, Behaviour.ENDLESS_HANDSHAKE, Behaviour.SILENT)


@pytest.mark.parametrize("behaviour", FAILURES)
def test_a_hostile_peer_fails_alone_and_others_deliver(run, behaviour):

    async def main() -> None:
        async with Swarm() as swarm, fetcher() as fetches:
            assert await failures_of(fetches, await swarm.add(behaviour)) == {FAILURES[behaviour]: 1}
        async with Swarm() as swarm, fetcher() as fetches:
            hostile = [await swarm.add(behaviour) for _ in range(2)]
            assert await fetches.fetch(V1, [*hostile, await swarm.add()]) == METADATA

    run(main())


@ON_UVLOOP
def test_slow_peers_run_into_a_deadline_and_others_deliver(run):
    """Three are tried at a time, and the honest one is the fourth."""

    async def fetch_from(swarm: Swarm, fetches: MetadataFetcher, behaviour: Behaviour) -> None:
        fetch = fetches.start(V1)
        for peer in [await swarm.add(behaviour) for _ in range(3)] + [await swarm.add()]:
            fetch.add_peer(peer)
        assert await fetch.result() == METADATA
        assert set(fetch.failures) == {PeerFailure.TIMEOUT}
        assert fetch.failures[PeerFailure.TIMEOUT] >= 1

    async def main() -> None:
        async with Swarm() as swarm, fetcher(stages=replace(HASTY, handshake_s=4, piece_s=4)) as fetches:
            await asyncio.gather(*(fetch_from(swarm, fetches, behaviour) for behaviour in SLOW))

    run(main())


def test_a_host_that_sent_a_wrong_hash_is_not_contacted_again(run):
    async def main() -> None:
        async with Swarm() as swarm, fetcher() as fetches:
            liar = await swarm.add(Behaviour.WRONG_HASH)
            assert await failures_of(fetches, liar) == {PeerFailure.WRONG_HASH: 1}
            assert await failures_of(fetches, liar) == {PeerFailure.PAUSED: 1}
            assert swarm.log.connections == 1

    run(main())


def test_closed_ports_fail_and_are_paused(run):
    async def main() -> None:
        async with fetcher() as fetches:
            peer = pack("127.0.0.1", closed_port())
            assert await failures_of(fetches, peer) == {PeerFailure.UNREACHABLE: 1}
            assert await failures_of(fetches, peer) == {PeerFailure.PAUSED: 1}

    run(main())


def test_private_addresses_are_not_contacted_unless_allowed(run):
    async def main() -> None:
        async with Swarm() as swarm, fetcher(allowed=AllowedNetworks(["10.0.0.0/8"])) as fetches:
            assert await failures_of(fetches, await swarm.add()) == {PeerFailure.NOT_PUBLIC: 1}
            assert swarm.log.connections == 0

    run(main())


def test_a_host_gets_one_connection_at_a_time_and_a_few_in_a_minute(run):
    """Forged announces have the address of one victim, with any port, for many infohashes."""

    async def main() -> None:
        metadata = [canned(number, 500) for number in range(50)]
        torrents = {hashlib.sha1(each).digest(): each for each in metadata}
        async with Swarm() as swarm, fetcher() as fetches:
            victim = await swarm.add(torrents=torrents)
            waiting = [fetches.fetch(infohash, [victim]) for infohash in torrents]
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert 5 <= swarm.log.connections <= 10
            assert swarm.log.open_max == 1
            assert sum(isinstance(each, bytes) for each in results) == swarm.log.connections
            assert not fetches._waiting_for_host

    run(main())


def test_connections_are_bounded_for_one_fetch_and_for_all_fetches_together(run):
    async def main() -> None:
        metadata = [canned(number, 500) for number in range(40)]
        torrents = {hashlib.sha1(each).digest(): each for each in metadata}
        async with Swarm() as swarm, fetcher(connections_max=7, connections_per_fetch=2) as fetches:
            peers = [await swarm.add(torrents=torrents) for _ in range(40)]
            waiting = [fetches.fetch(infohash, [peer]) for infohash, peer in zip(torrents, peers, strict=True)]
            assert await asyncio.gather(*waiting) == metadata
            assert swarm.log.open_max <= 8, "one may close while the next one opens"
            alone = fetches.start(bytes(20))
            for peer in peers:
                alone.add_peer(peer)
            assert (len(alone.connections), fetches.connection_count) == (2, 2)

    run(main())


def test_the_bytes_in_flight_are_bounded(run):
    """Twenty fetches of 15 pieces with room for 40 pieces: they take turns, and all end."""

    async def main() -> None:
        metadata = [canned(number, 240_000) for number in range(20)]
        torrents = {hashlib.sha1(each).digest(): each for each in metadata}
        room = 40 * 16_384
        limits = {"in_flight_bytes_max": room, "metadata_bytes_max": 240_000, "connections_per_fetch": 1}
        async with Swarm() as swarm, fetcher(**limits) as fetches:
            highest = 0
            count = fetches._count_bytes

            def watch(fetch: Any) -> None:
                nonlocal highest
                count(fetch)
                highest = max(highest, fetches.in_flight_bytes)

            fetches._count_bytes = watch  # type: ignore[method-assign]
            peers = [await swarm.add(torrents=torrents) for _ in range(20)]
            waiting = [fetches.fetch(infohash, [peer]) for infohash, peer in zip(torrents, peers, strict=True)]
            assert await asyncio.gather(*waiting) == metadata
            assert room - 240_000 < highest <= room
            assert (fetches.in_flight_bytes, fetches._waiting_for_bytes) == (0, {})

    run(main())


@ON_UVLOOP
def test_metadata_that_are_not_used_yet_count_as_in_flight(run):
    async def main() -> None:
        async with Swarm() as swarm, fetcher() as fetches:
            fetch = fetches.start(V1, holds=True)
            fetch.add_peer(await swarm.add())
            assert await fetch.result() == METADATA
            assert fetches.in_flight_bytes == len(METADATA)
            fetch.release()
            assert fetches.in_flight_bytes == 0

    run(main())


def test_a_connection_waits_until_a_new_address_may_be_contacted(run):
    async def main() -> None:
        answers = iter([False, False, True])
        async with Swarm() as swarm, fetcher(may_connect=lambda endpoint, now: next(answers)) as fetches:
            assert await fetches.fetch(V1, [await swarm.add()]) == METADATA
        assert list(answers) == []

    run(main())


def test_an_address_paused_after_a_failure_does_not_count_as_a_new_address(run):
    async def main() -> None:
        asked: list[bytes] = []
        async with fetcher(may_connect=lambda endpoint, now: not asked.append(endpoint)) as fetches:
            peer = pack("127.0.0.1", closed_port())
            assert await failures_of(fetches, peer) == {PeerFailure.UNREACHABLE: 1}
            assert await failures_of(fetches, peer) == {PeerFailure.PAUSED: 1}
        assert asked == [peer]

    run(main())


def test_a_fetch_connects_to_no_more_peers_than_allowed(run):
    async def main() -> None:
        async with Swarm() as swarm, fetcher() as fetches:
            fetch = fetches.start(V1, peers_max=2)
            for peer in [await swarm.add(Behaviour.CLOSES) for _ in range(4)]:
                fetch.add_peer(peer)
            fetch.no_more_peers()
            with pytest.raises(NoMetadata):
                await fetch.result()
            assert swarm.log.connections == 2

    run(main())


def test_a_fetch_without_peers_does_not_keep_the_reserved_bytes(run):
    """The first fetch may request all its pieces, then loses its peers, while its lookup continues."""

    async def main() -> None:
        metadata = canned(1, 160_000)
        torrents = {hashlib.sha1(metadata).digest(): metadata}
        limits = {"in_flight_bytes_max": 170_000, "metadata_bytes_max": 170_000}
        async with Swarm() as swarm, fetcher(stages=replace(HASTY, handshake_s=5, piece_s=5), **limits) as fetches:
            lost = fetches.start(next(iter(torrents)))
            lost.add_peer(await swarm.add(Behaviour.DRIPS, torrents))
            await swarm.log.until(open=1)
            good = await swarm.add(torrents=torrents)
            assert await fetches.fetch(next(iter(torrents)), [good]) == metadata
            assert not lost.is_done

    run(main())


def test_metadata_come_over_ipv6(run):
    async def main() -> None:
        async with seeding(BOTH, host="::1") as port, fetcher(allowed=AllowedNetworks(["::1/128"])) as fetches:
            assert await fetches.fetch(V1, [pack("::1", port)]) == METADATA

    run(main())


def test_a_fetch_takes_a_limited_number_of_peers_each_once(run):
    async def main() -> None:
        async with fetcher(allowed=AllowedNetworks()) as fetches:
            fetch = fetches.start(V1)
            for number in range(1000):
                fetch.add_peer(pack("127.0.0.1", 1 + number // 2))
            assert fetch.failures == {PeerFailure.NOT_PUBLIC: PEERS_MAX}
            fetch.no_more_peers()
            with pytest.raises(NoMetadata, match=f"{V1.hex()}: no peer delivered \\(200 not public\\)"):
                await fetch.result()

    run(main())


def test_without_peers_there_is_no_metadata(run):
    async def main() -> None:
        async with fetcher() as fetches:
            with pytest.raises(NoMetadata, match="no peers"):
                await fetches.fetch(V1, [])

    run(main())


def test_peers_may_be_added_while_others_are_tried(run):
    async def main() -> None:
        async with Swarm() as swarm, fetcher() as fetches:
            fetch = fetches.start(V1)
            fetch.add_peer(await swarm.add(Behaviour.SILENT))
            result = asyncio.ensure_future(fetch.result())
            await asyncio.sleep(0)
            fetch.add_peer(await swarm.add())
            assert await result == METADATA

    run(main())


def test_a_cancelled_fetch_closes_its_connections(run):
    async def main() -> None:
        async with Swarm() as swarm, fetcher() as fetches:
            peer = await swarm.add(Behaviour.SILENT)
            task = asyncio.ensure_future(fetches.fetch(V1, [peer]))
            await swarm.log.until(connections=1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert fetches.connection_count == 0
            await swarm.log.until(open=0)

    run(main())


def test_an_error_inside_the_context_of_a_fetcher_is_raised_unchanged(run):
    async def main() -> None:
        with pytest.raises(NoMetadata):
            async with fetcher() as fetches:
                await fetches.fetch(V1, [])

    run(main())


def test_the_end_of_the_fetcher_ends_all_fetches(run):
    async def main() -> None:
        async with Swarm() as swarm:
            async with fetcher() as fetches:
                fetch = fetches.start(V1)
                fetch.add_peer(await swarm.add(Behaviour.SILENT))
            assert fetch.is_done
            await swarm.log.until(open=0)

    run(main())


def test_an_address_that_drops_packets_runs_into_the_deadline_of_connecting(run):
    """A listening socket whose queue is full drops new connections."""

    async def main() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            address = full.getsockname()
            fillers = [socket.socket() for _ in range(4)]
            for each in fillers:
                each.setblocking(False)
                each.connect_ex(address)
            stages = StageLimits(connect_s=0.3, handshake_s=60, piece_s=60, total_s=60)
            async with fetcher(stages=stages) as fetches:
                assert await failures_of(fetches, pack(*address)) == {PeerFailure.TIMEOUT: 1}
            for each in fillers:
                each.close()

    run(main())


@ON_UVLOOP
def test_hundreds_of_hostile_peers_cost_little_memory_and_time(run):
    """25 peers at once show each kind of misbehaviour, while honest peers deliver."""

    async def main() -> None:
        metadata = [canned(number, 500) for number in range(50)]
        torrents = {hashlib.sha1(each).digest(): each for each in metadata}
        async with Swarm() as swarm, fetcher(stages=replace(HASTY, handshake_s=5, piece_s=5)) as fetches:
            bad = [await swarm.add(each, torrents) for each in (*FAILURES, *SLOW) for _ in range(25)]
            good = [await swarm.add(torrents=torrents) for _ in range(50)]
            before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            started = time.process_time()
            waiting = []
            for number, infohash in enumerate(torrents):
                fetch = fetches.start(infohash)
                for peer in (*bad[number :: len(torrents)], good[number]):
                    fetch.add_peer(peer)
                fetch.no_more_peers()
                waiting.append(fetch.result())
            assert await asyncio.gather(*waiting) == metadata
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before_mb < 200
            assert time.process_time() - started < (20 if PROVE else 200)

    run(main())
