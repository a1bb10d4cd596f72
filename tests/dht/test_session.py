"""`DhtSession`, the nodes of one process, as programs use it: operations, both address families, saved tables."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from lycosa import dht
from lycosa.core.errors import LycosaError, NoMetadata, StorageError, UsageError
from lycosa.dht import bootstrap
from lycosa.dht import session as session_module
from lycosa.dht.core.endpoints import NONE_ALLOWED, pack, text
from lycosa.dht.core.limits import NodeLimits
from lycosa.dht.session import DhtSession, PeerAddress

ALLOWED = ("127.0.0.0/8", "::1")
INFOHASH = bytes(range(20))
WAIT_MAX_S = 60.0
POLL_S = 0.005


@asynccontextmanager
async def node(*bind: str, join: DhtSession | None = None, **options: object) -> AsyncIterator[DhtSession]:
    bootstrap = [text(each) for each in join.endpoints] if join else []
    limits = NodeLimits(queries_per_s=1000, queries_burst=1000)
    async with dht.open_node(bind, bootstrap=bootstrap, allow_private=ALLOWED, limits=limits, **options) as opened:  # type: ignore[arg-type]
        if join:
            await opened.joined()
        yield opened


async def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_MAX_S
    while not happened():
        assert time.monotonic() < deadline
        await asyncio.sleep(POLL_S)


def test_a_peer_that_one_node_announces_is_found_by_another_in_both_families() -> None:
    async def run() -> None:
        async with (
            node("127.0.0.1:0", "[::1]:0") as first,
            node("127.0.0.2:0", "[::1]:0", join=first) as second,
            node("127.0.0.3:0", "[::1]:0", join=first) as third,
        ):
            announced = await second.announce(INFOHASH, 999, seed=True)
            assert announced.asked == announced.confirmed >= 2, "the first node in both families, or all others"
            peers = [peer async for peer in third.lookup(INFOHASH)]
            assert sorted(peers) == [PeerAddress("127.0.0.2", 999), PeerAddress("::1", 999)]
            assert sorted(map(str, peers)) == ["127.0.0.2:999", "[::1]:999"]
            estimate = await third.scrape(INFOHASH)
            assert (round(estimate.seeds), round(estimate.leechers), estimate.peers) == (2, 0, 2)

    asyncio.run(run())


def test_the_two_swarms_of_a_hybrid_torrent_are_scraped_as_one() -> None:
    async def run() -> None:
        other = INFOHASH[::-1]
        async with (
            node("127.0.0.1:0") as first,
            node("127.0.0.2:0", join=first) as second,
            node("127.0.0.3:0", join=first) as third,
        ):
            for infohash in (INFOHASH, other):
                await second.announce(infohash, 999, seed=True)
            await third.announce(other, 998)
            found: list[str] = []
            estimate = await third.scrape_swarms((INFOHASH, other), lambda peer: found.append(text(peer)))
            assert sorted(found) == ["127.0.0.2:999", "127.0.0.3:998"]
            assert (round(estimate.seeds), round(estimate.leechers), estimate.peers) == (1, 1, 2)

    asyncio.run(run())


def test_a_node_with_an_ipv4_bootstrap_alone_joins_on_ipv6_too() -> None:
    """Its IPv4 contacts return IPv6 nodes (BEP 32)."""

    async def run() -> None:
        async with (
            node("127.0.0.1:0", "[::1]:0") as first,
            node("127.0.0.2:0", "[::1]:0", join=first) as second,
        ):
            # A node is returned to others after it has answered a query.
            await until(lambda: all(status.contacts.good for each in (first, second) for status in each.status()))
            bootstrap = [text(first.endpoints[0])]
            async with dht.open_node(["127.0.0.3:0", "[::1]:0"], bootstrap=bootstrap, allow_private=ALLOWED) as third:
                await until(lambda: all(status.contacts.good for status in third.status()))

    asyncio.run(run())


def test_a_lookup_ends_when_the_caller_leaves_the_loop() -> None:
    async def run() -> None:
        async with node("127.0.0.1:0") as first, node("127.0.0.2:0", join=first) as second:
            await second.announce(INFOHASH, 999)
            async with aclosing(second.lookup(INFOHASH)) as peers:
                async for _ in peers:
                    break
            await until(lambda: second.status()[0].operations == 0)

    asyncio.run(run())


def test_nodes_do_not_keep_a_read_only_node_as_a_contact() -> None:
    async def run() -> None:
        async with node("127.0.0.1:0") as first, node("127.0.0.2:0", join=first, read_only=True) as second:
            assert [each.endpoint for each in second.contacts(INFOHASH)] == first.endpoints
            async with node("127.0.0.3:0", join=first) as third:
                await until(lambda: [each.endpoint for each in first.contacts(INFOHASH)] == third.endpoints)

    asyncio.run(run())


def test_the_node_of_a_peer_enters_the_table_when_it_answers() -> None:
    async def run() -> None:
        async with node("127.0.0.1:0") as first, node("127.0.0.2:0") as second:
            first.start_ping(second.endpoints[0])
            first.start_ping(pack("127.0.0.3", 9))
            first.start_ping(pack("::1", 9))  # this node has no IPv6
            await until(lambda: first.status()[0].contacts.good == 1)

    asyncio.run(run())


def test_the_contacts_are_saved_while_the_node_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "SAVE_INTERVAL_S", 0.01)

    def saved() -> int:
        return len(json.loads((tmp_path / "node.json").read_text())["nodes"][0]["contacts"])

    async def run() -> None:
        async with node("127.0.0.1:0") as first, node("127.0.0.2:0", join=first, state=tmp_path):
            await until(lambda: saved() == 1)

    asyncio.run(run())


def test_peers_are_neither_in_logs_nor_in_the_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def run() -> None:
        async with node("127.0.0.1:0", state=tmp_path / "1") as first:
            # The second node is read-only, so that the first node stores it as a peer and not as a contact.
            async with node("127.0.0.9:0", join=first, state=tmp_path / "2", read_only=True) as second:
                assert (await second.announce(INFOHASH, 999)).confirmed == 1
                assert [peer.host async for peer in second.lookup(INFOHASH)] == ["127.0.0.9"]
                with pytest.raises(NoMetadata):
                    await second.metadata(INFOHASH)
            assert first.status()[0].peers == 1

    asyncio.run(run())
    files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert any(b"7f000001" in content for content in files), "the contact of the second node"
    for written in (caplog.text.encode(), *files):
        for address in (b"127.0.0.9", b"7f000009", b"\x7f\0\0\x09"):
            assert address not in written


def test_a_node_with_saved_contacts_starts_without_a_name_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with node("127.0.0.1:0") as first:
            async with node("127.0.0.2:0", join=first, state=tmp_path):
                pass
            async with dht.open_node(
                ["127.0.0.2:0"], bootstrap=["a..b:9"], allow_private=ALLOWED, state=tmp_path
            ) as second:
                assert await second.joined() == 1
        assert (
            "no usable address; is the name right, and the network up?; joining through the saved contacts"
            in caplog.text
        )

    asyncio.run(run())


def test_public_routers_that_a_name_server_places_on_this_network_are_not_queried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bootstrap, "PUBLIC_ROUTERS", [("127.0.0.1", 6881), ("0.0.0.0", 6881), ("10.0.0.1", 6881)])
    with pytest.raises(LycosaError, match="no public address"):
        asyncio.run(bootstrap.find_routers(NONE_ALLOWED))


def test_a_state_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "node.json.new").mkdir()
        with pytest.raises(StorageError, match=r"node\.json: the contacts cannot be saved: is a directory"):
            async with node("127.0.0.1:0", state=tmp_path):
                pass

    asyncio.run(run())


def test_an_error_of_the_program_is_not_hidden_if_the_state_can_no_longer_be_written(tmp_path: Path) -> None:
    async def run() -> None:
        async with node("127.0.0.1:0", state=tmp_path):
            (tmp_path / "node.json").unlink()
            (tmp_path / "node.json").mkdir()
            raise StorageError("the disk is full")

    with pytest.raises(StorageError, match="the disk is full"):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("bind", "bootstrap", "message"),
    [
        ("[::1]:0", ["127.0.0.1:9"], "--bootstrap 127.0.0.1:9 has an address of the other IP version: add --bind 0.0"),
        (
            "127.0.0.1:0",
            ["[::1]:9"],
            r"--bootstrap \[::1\]:9 has an address of the other IP version: add --bind \[::\]",
        ),
        ("127.0.0.1:0", ["192.0.2.1:9"], r"--bootstrap 192\.0\.2\.1:9: 192\.0\.2\.1:9 is not public"),
        ("127.0.0.1:0", ["1.1.1.1:9"], r"--bind 127\.0\.0\.1 is loopback, and cannot reach --bootstrap 1\.1\.1\.1:9"),
        ("x", [], r"--bind x: write ADDRESS:PORT"),
        ("127.0.0.1:0", ["x"], "--bootstrap x: write HOST:PORT such as"),
        ("127.0.0.1:0", ["x:0"], "--bootstrap x:0: write HOST:PORT such as"),
        ("127.0.0.1:0", ["x:" + "9" * 5000], "--bootstrap x:9+: write HOST:PORT such as"),
        ("127.0.0.1:" + "9" * 5000, [], "--bind 127.0.0.1:9+: write ADDRESS:PORT"),
    ],
)
def test_a_mistake_in_bind_or_bootstrap_is_a_usage_error(bind: str, bootstrap: list[str], message: str) -> None:
    async def run() -> None:
        with pytest.raises(UsageError, match=message):
            async with dht.open_node([bind], bootstrap=bootstrap, allow_private=ALLOWED):
                pass

    asyncio.run(run())


def test_a_bootstrap_name_without_an_address_raises_an_error_with_a_message() -> None:
    async def run() -> None:
        with pytest.raises(LycosaError, match=r"--bootstrap a\.\.b:9: no usable address"):
            async with dht.open_node(["127.0.0.1:0"], bootstrap=["a..b:9"]):
                pass

    asyncio.run(run())


def test_importing_the_package_loads_neither_the_session_nor_the_socket_module() -> None:
    code = "import sys, lycosa.dht.core.magnet; print('lycosa.dht.session' in sys.modules, 'socket' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
