"""A pool in a folder that several processes share (P3, P5): another owner takes over, and no lease is lost."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvloop

from lycosa.core.errors import NoProxy, StateLocked, UsageError
from lycosa.infra.rpc import connection as rpc
from lycosa.infra.rpc.connection import Hello, encode_frame
from lycosa.infra.rpc.server import RpcServer
from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.folder import pool as embedded
from lycosa.proxies.folder import remote, server
from lycosa.proxies.folder.pool import EmbeddedPool, embedded_pool

SITE = "a.example"
LONG_S = 20.0
PROXIES = [Proxy("http", f"10.0.0.{number}", 8080, "ann", "secret") for number in range(1, 6)]


def run(path: Path, scenario: Callable[[EmbeddedPool, EmbeddedPool], Awaitable[None]]) -> None:
    """Run a scenario with two objects of one pool: the first owns the folder, the second is a client of the owner."""

    async def main() -> None:
        owner = await embedded_pool(path, print)
        await owner.add(PROXIES)
        client = await embedded_pool(path, print)
        assert (owner.owns, client.owns) == (True, False)
        try:
            await scenario(owner, client)
        finally:
            await client.close()
            await owner.close()

    asyncio.run(main())


async def until(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not is_met():  # noqa: ASYNC110  the pool has no event for it
            await asyncio.sleep(0.005)


def waiting_at(owner: EmbeddedPool) -> int:
    """Return how many calls wait for a proxy."""
    assert owner._owner is not None
    queue = owner._owner.pool._queues.get(SITE)
    return 0 if queue is None else len(queue)


def clients_of(owner: EmbeddedPool) -> int:
    assert owner._owner is not None
    return len(owner._owner.server.clients)


def test_the_next_owner_takes_over_all_leases(tmp_path: Path) -> None:
    async def scenario(owner: EmbeddedPool, client: EmbeddedPool) -> None:
        (first,) = await owner.acquire(SITE, request=ProxyRequest(session="s"))
        (second,) = await client.acquire(SITE)
        await owner.close()
        (third,) = await client.acquire(SITE)
        assert client.owns
        assert third.token > second.token
        assert len({first.proxy.key, second.proxy.key, third.proxy.key}) == 3
        assert await client.release(first, [Outcome()]), "the owner has ended, but its lease has not"
        (again,) = await client.acquire(SITE, request=ProxyRequest(session="s"))
        assert again.proxy == first.proxy

    run(tmp_path / "pool", scenario)


def test_waiting_calls_continue_with_the_next_owner(tmp_path: Path) -> None:
    async def scenario(owner: EmbeddedPool, client: EmbeddedPool) -> None:
        third = await embedded_pool(tmp_path / "pool", print)
        lease = await owner.acquire(SITE, 5)
        waiting = [asyncio.create_task(each.acquire(SITE, wait_s=LONG_S)) for each in (client, third) for _ in range(2)]
        await until(lambda: waiting_at(owner) == 4)
        await owner.close()
        for each in lease:
            assert await client.release(each)
        assert len({one.proxy.key for each in await asyncio.gather(*waiting) for one in each}) == 4
        assert client.owns != third.owns
        await third.close()

    run(tmp_path / "pool", scenario)


def test_a_cancelled_call_keeps_no_lease(tmp_path: Path) -> None:
    async def scenario(owner: EmbeddedPool, client: EmbeddedPool) -> None:
        for _ in range(20):
            lease = await owner.acquire(SITE, 5)
            waiter = asyncio.create_task(client.acquire(SITE, wait_s=LONG_S))
            await until(lambda: waiting_at(owner) == 1)
            await owner.release(lease[0])  # grants the lease; the caller is cancelled before the result arrives
            await asyncio.sleep(0)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            for each in lease[1:]:
                await owner.release(each)
            for each in await client.acquire(SITE, 5, wait_s=LONG_S):
                await client.release(each)
        assert client._remote is not None
        assert not client._remote.connection.pending, "every call has its answer"

    run(tmp_path / "pool", scenario)


def test_leases_of_a_disconnected_client_are_released_at_once(tmp_path: Path) -> None:
    async def scenario(owner: EmbeddedPool, client: EmbeddedPool) -> None:
        lease = await owner.acquire(SITE, 5)
        waiters = [asyncio.create_task(client.acquire(SITE, wait_s=LONG_S)) for _ in range(5)]
        await until(lambda: waiting_at(owner) == 5)
        assert client._remote is not None
        client._remote.connection.abort()
        for each in lease:
            await owner.release(each)
        assert len(await owner.acquire(SITE, 3, wait_s=LONG_S)) == 3
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)

    run(tmp_path / "pool", scenario)


def test_long_lists_are_sent_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "LIST_PART", 7)
    monkeypatch.setattr(remote, "LIST_PART", 7)

    async def scenario(owner: EmbeddedPool, client: EmbeddedPool) -> None:
        added = [Proxy("http", f"10.1.0.{number}", 1, tags={"country": "de"}, price_gb=2.0) for number in range(50)]
        assert await client.add(added) == 50
        views = await client.proxies()
        assert views == await owner.proxies()
        assert {each.proxy.price_gb for each in views} == {0.0, 2.0}
        assert {str(each.proxy.tags) for each in views} == {"{}", "{'country': 'de'}"}
        assert await client.remove([each.key for each in added]) == 50
        await client.acquire(SITE)
        assert await client.targets() == await owner.targets()

    run(tmp_path / "pool", scenario)


# ------------------------------------------------------------------------------------------- errors, limits, shutdown
#
# The behaviour of RPC connections in general is tested in tests/infra/test_rpc.py.


def test_errors_of_the_pool_keep_their_class_and_message(tmp_path: Path) -> None:
    async def scenario(owner: EmbeddedPool, client: EmbeddedPool) -> None:
        with pytest.raises(UsageError, match="ask for 1 to 1,000"):
            await client.acquire(SITE, 0)
        with pytest.raises(NoProxy, match=r"no 6 proxies for a\.example were free"):
            await client.acquire(SITE, 6)

    run(tmp_path / "pool", scenario)


def test_the_numbers_of_calls_and_clients_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LIMITS", server.LIMITS._replace(calls_max=3, clients_max=2))

    async def scenario(owner: EmbeddedPool, client: EmbeddedPool) -> None:
        await owner.acquire(SITE, 5)
        second = await embedded_pool(tmp_path / "pool", print)
        waits = [asyncio.create_task(second.acquire(SITE, wait_s=LONG_S)) for _ in range(3)]
        await until(lambda: waiting_at(owner) == 3)
        with pytest.raises(UsageError, match="one process can make 3 concurrent calls"):
            await second.acquire(SITE)
        with pytest.raises(StateLocked, match="2 processes already use this pool"):
            await embedded_pool(tmp_path / "pool", print)
        await second.close()
        await asyncio.gather(*waits, return_exceptions=True)
        await until(lambda: clients_of(owner) == 1)
        third = await embedded_pool(tmp_path / "pool", print)
        await third.close()

    run(tmp_path / "pool", scenario)


def test_an_owner_that_hangs_is_reported_and_its_timeout_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ANSWER_TIMEOUT_S", 0.05)
    ticks = itertools.count()  # each reading of the clock is a second later, even on a busy machine
    monkeypatch.setattr(embedded, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    monkeypatch.setattr(embedded, "JOIN_TIMEOUT_S", 8.0)
    monkeypatch.setattr(embedded, "REPORT_AFTER_S", 4.0)

    async def scenario(owner: EmbeddedPool, client: EmbeddedPool) -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(encode_frame(Hello(server.VERSION, 7)))
            await reader.read()
            writer.close()

        path = tmp_path / "pool" / "socket"
        path.unlink()
        reports: list[str] = []
        async with await asyncio.start_unix_server(silent, str(path)):
            third = await embedded_pool(tmp_path / "pool", reports.append)
            with pytest.raises(StateLocked, match=r"process 7 has not answered for 0\.05 s"):
                await third.acquire(SITE)
            await third.close()
        path.unlink(missing_ok=True)
        with pytest.raises(StateLocked, match="the pool is open in process "):
            await embedded_pool(tmp_path / "pool", reports.append)
        assert "waiting for process " in reports[0]

    run(tmp_path / "pool", scenario)


def test_a_cancelled_opening_releases_the_folder(tmp_path: Path) -> None:
    async def scenario() -> None:
        for pause_s in (0.0, 0.001, 0.01):
            opening = asyncio.create_task(embedded_pool(tmp_path / "pool", print))
            await asyncio.sleep(pause_s)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            if not opening.cancelled():
                await opening.result().close()
        async with asyncio.timeout(LONG_S):
            pool = await embedded_pool(tmp_path / "pool", print)
        assert pool.owns
        await pool.close()

    asyncio.run(scenario())


def test_an_opening_cancelled_before_its_server_listens_releases_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        started = asyncio.Event()

        async def start(served: RpcServer) -> None:
            started.set()
            await asyncio.sleep(LONG_S)

        with monkeypatch.context() as patched:
            patched.setattr(RpcServer, "start", start)
            opening = asyncio.create_task(embedded_pool(tmp_path / "pool", print))
            await started.wait()
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        async with asyncio.timeout(LONG_S / 2):
            pool = await embedded_pool(tmp_path / "pool", print)
        assert pool.owns
        await pool.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("steps", range(8))
def test_a_client_accepted_while_the_owner_ends_looks_for_the_next_owner(tmp_path: Path, steps: int) -> None:
    """At any step of the connection: an owner that has ended must not answer that the pool is closed.

    Runs on uvloop: asyncio's loop drops a connection that it accepts while its server closes.
    """

    async def scenario() -> None:
        owner = await embedded_pool(tmp_path / "pool", print)
        await owner.add(PROXIES)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        connection.connect(str(tmp_path / "pool" / "socket"))
        for _ in range(steps):
            await asyncio.sleep(0)
        await owner.close()
        client = remote.RemotePool(tmp_path / "pool" / "socket")
        await asyncio.get_running_loop().create_connection(lambda: client.connection, sock=connection)
        async with asyncio.timeout(LONG_S):
            with pytest.raises(remote.OwnerGone):
                await client.acquire(SITE)
        await client.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
