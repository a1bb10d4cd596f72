"""Owner and worker processes of a crawl (C5, F8): their messages, and the counts and changes that the owner applies."""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lycosa.core.errors import StateError
from lycosa.crawl.engine.verdict import CloseCrawl, Deferred, Failed
from lycosa.crawl.engine.visit import Completed
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.workers import messages
from lycosa.crawl.workers.counts import WorkerCounts, WorkerStatsCollector, add_stats
from lycosa.crawl.workers.messages import LIMITS, OWNER_METHODS, HostAccess, KeyStored, WorkerStats, send_outcome
from lycosa.crawl.workers.remote import (
    CookieBroadcast,
    RemoteAddresses,
    RemoteFrontier,
    RemoteLogHandler,
    RemoteStore,
)
from lycosa.crawl.workers.request_pacer import RequestPacer
from lycosa.crawl.workers.visits import VisitRunner
from lycosa.crawl.workers.worker import WorkerHandle
from lycosa.crawl.workers.worker_pool import ALONE_DEATHS_MAX, DEATHS_MAX, WORKER_DIED_REPEATEDLY, WorkerPool
from lycosa.frontier.core.model import Extras, HostFacts, Lease, UrlRecord
from lycosa.frontier.core.recent_fingerprints import RecentFingerprints
from lycosa.frontier.ports import VisitFrontier
from lycosa.http.core.model import Validators
from lycosa.infra.rpc.connection import Connection, Message, encode
from lycosa.infra.rpc.methods import Service
from lycosa.storage.keystore.sqlite import SqliteKeyStore
from tests.storage.memory_keystore import MemoryKeyStore

HOST = "http://a.example:80"
RECORD = UrlRecord(1, 2**64 - 1, f"{HOST}/é", HOST, "day", 3, extras=Extras("POST", body=b"\0\xff", meta={"a": [1]}))
OUTCOMES = [
    Completed("200", [[b"{}", b"{}"]], [RECORD], page=True, bytes=7, validators=Validators("e", "", 1.5), closing="x"),
    Completed("robots", contacted=False),
    Failed("timeout", 12.5, 13.5),
    Failed("dead", contacted=False),
    Failed("dead", cause=ValueError("of the errback alone")),
    Deferred(99.5),
    CloseCrawl("enough"),
]
ENDED = msgspec.msgpack.Decoder(messages.VisitEnded)


class RecordingConnection:
    """A connection that records the messages sent."""

    def __init__(self, frame_max: int = LIMITS.frame_max) -> None:
        self.messages: list[Any] = []
        self._frame_max = frame_max

    def send(self, message: Message) -> None:
        if len(encode(message)) > self._frame_max:
            raise ValueError(f"{len(encode(message)):,} bytes")
        self.messages.append(message)

    def flush(self) -> None:
        pass

    def handle(self, handlers: Any) -> None:
        pass


def sent_outcome(outcome: Any, frame_max: int = LIMITS.frame_max) -> Any:
    connection: Any = RecordingConnection(frame_max)
    send_outcome(connection, 7, outcome)
    (message,) = connection.messages
    ended = ENDED.decode(encode(message))
    assert ended.token == 7
    return ended.outcome


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_outcomes_are_encoded_and_decoded_unchanged(outcome: Any) -> None:
    found = sent_outcome(outcome)
    assert type(found) is type(outcome)
    without_cause = outcome._replace(cause=None) if isinstance(outcome, Failed) else outcome
    assert [list(each) if isinstance(each, (list, tuple)) else each for each in found] == [
        list(each) if isinstance(each, (list, tuple)) else each for each in without_cause
    ]


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [(Completed("200", [[b"x" * 2000]]), "2,0"), (Completed("200", [["half \udc80"]]), "codec can't encode")],
    ids=["too long", "half a character"],
)
def test_results_that_cannot_be_sent_are_a_failure_of_their_page(outcome: Completed, reason: str) -> None:
    found = sent_outcome(outcome, 1000)
    assert isinstance(found, Failed)
    assert found.retry_at is None
    assert "its results cannot be sent to the owner process: " in found.reason
    assert reason in found.reason


CRAWL: Any = SimpleNamespace(
    addresses=SimpleNamespace(lookup_error=lambda _: ""), engine=SimpleNamespace(stopping=False, wake=lambda: None)
)
EVENTS: Any = SimpleNamespace(outcome_of_death=lambda *_, **__: Deferred(1.0), on_change=lambda: None)


def test_a_visit_that_is_cancelled_after_its_worker_died_ends() -> None:
    """The worker cannot report the cancellation any more."""

    async def run() -> bool:
        worker = WorkerHandle(CRAWL, RequestPacer(lambda: 100.0), EVENTS, lambda: None)
        visiting = asyncio.create_task(worker.visit(Lease(1, RECORD, 0.0), None))
        await asyncio.sleep(0)
        worker.lose()
        visiting.cancel()
        await asyncio.wait([visiting], timeout=60.0)
        return visiting.cancelled()

    assert asyncio.run(run())


def test_a_page_is_dead_only_if_it_was_the_only_page_of_a_worker_that_died() -> None:
    class Crawl:
        cookies = CookieBroadcast()

        class clock:  # noqa: N801
            @staticmethod
            def now() -> float:
                return 1.0

    async def run() -> None:
        pool = WorkerPool(Crawl(), lambda _: None)  # type: ignore[arg-type]
        lease = Lease(1, RECORD, 0.0)
        for _ in range(DEATHS_MAX + ALONE_DEATHS_MAX + 5):
            assert pool.outcome_of_death(lease, alone=False) == Deferred(1.0)
        assert pool.outcome_of_death(lease, alone=True) == Failed(WORKER_DIED_REPEATEDLY)

    asyncio.run(run())


# -------------------------------------------------------------------------------------------------------------- counts


def test_stats_of_workers_are_merged_by_their_kind() -> None:
    total, run = StatsCollector(), RunStats(0.0)
    for number in (1, 2):
        stats = WorkerStatsCollector()
        counts = WorkerCounts(stats, RunStats(0.0), lambda: 0)
        stats.inc_value("sum", number)
        stats.inc_value("from a start", number, start=100)
        stats.max_value("most", number)
        stats.min_value("least", number)
        stats.set_value("last", number)
        stats.set_value("set", number)
        stats.inc_value("set", 5)
        stats.set_value("peak", number)
        stats.max_value("peak", 9)
        add_stats(counts.take(), total, run)
        stats.inc_value("sum", 10)
        stats.inc_value("from a start", 10, start=100)
        add_stats(counts.take(), total, run)
        add_stats(counts.take(), total, run)
    assert total.get_stats() == {
        "sum": 23, "from a start": 123, "most": 2, "least": 1, "last": 2, "set": 7, "peak": 9
    }  # fmt: skip


def test_skipped_links_dropped_items_and_hints_are_sent_once() -> None:
    stats = RunStats(0.0)
    counts = WorkerCounts(WorkerStatsCollector(), stats, lambda: 7)
    stats.skip("scope")
    stats.dropped, stats.known_links = 2, 3
    stats.note("a hint")
    assert counts.take() == WorkerStats(
        skipped={"scope": 1}, dropped=2, known_links=3, notes=["a hint"], memory_bytes=7
    )
    stats.note("a hint")
    assert counts.take() == WorkerStats(memory_bytes=7)


def test_stats_with_keys_of_any_type_are_sent() -> None:
    stats = WorkerStats(sums={404: (1, 0), None: (2, 0), ("a", 1): (3, 7), "text": (4.5, 0)})
    assert msgspec.msgpack.decode(encode(stats), type=WorkerStats) == stats


@pytest.mark.parametrize(("name", "value"), [("many", 1 << 70), ("half \udc80", 1)])
def test_stats_that_cannot_be_sent_are_lost_and_logged(caplog: pytest.LogCaptureFixture, name: str, value: int) -> None:
    async def run() -> None:
        stats, connection = WorkerStatsCollector(), Connection(LIMITS, OWNER_METHODS)
        frontier = RemoteFrontier(connection, RemoteAddresses())
        visits = VisitRunner(connection, frontier, RecentFingerprints(), RunStats(0.0), CookieBroadcast())
        visits.begin(None, [], WorkerCounts(stats, RunStats(0.0), lambda: 0))  # type: ignore[arg-type]
        stats.set_value(name, value)
        visits.report_counts()

    asyncio.run(run())
    assert "these stats cannot be sent to the owner of the crawl, and are lost: " in caplog.text


def test_a_log_line_with_half_a_character_is_sent() -> None:
    async def run() -> list[Any]:
        sent: list[Any] = []
        handler = RemoteLogHandler(sent.append)
        fields = {"url": "http://a/\udc80", "status": 200, "huge": 1 << 70, "thing": object}
        handler.emit(logging.makeLogRecord({"name": "spider", "levelno": 30, "msg": "half \udc80", **fields}))
        await asyncio.sleep(0)
        return sent

    (line,) = asyncio.run(run())
    received = msgspec.msgpack.decode(encode(line), type=messages.LogLine)
    assert received.text == "half ?"
    assert received.fields == {"url": "http://a/?", "status": 200, "huge": str(1 << 70), "thing": "<class 'object'>"}


# -------------------------------------------------------------------------------------------------------- remote parts


def test_the_remote_frontier_has_every_method_of_its_port_with_the_same_parameters() -> None:
    names = [name for name in vars(VisitFrontier) if not name.startswith("_")]
    assert "claim" in names
    for name in names:
        port, method = getattr(VisitFrontier, name), getattr(RemoteFrontier, name)
        assert list(inspect.signature(method).parameters) == list(inspect.signature(port).parameters), name


class Owner:
    """Serves the methods of the owner; the test grants or refuses claims."""

    def __init__(self) -> None:
        self.claims: dict[int, tuple[str, int, asyncio.Future[HostAccess]]] = {}
        self.released: list[int] = []

    async def claim(self, claim: int, host: str, token: int) -> HostAccess:
        granted: asyncio.Future[HostAccess] = asyncio.get_running_loop().create_future()
        self.claims[claim] = host, token, granted
        return await granted

    async def host_facts(self, host: str) -> HostFacts | None:
        if host != HOST:
            raise StateError("no disk")
        return HostFacts(b"x")

    async def push(self, records: list[UrlRecord]) -> int:
        assert records == [RECORD]
        return 1


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Owner, RemoteFrontier, RemoteAddresses]]:
    owner_socket, worker_socket = socket.socketpair()
    owner, addresses = Owner(), RemoteAddresses()
    serving = Connection(LIMITS, service=Service(OWNER_METHODS, owner))
    serving.handle({messages.ClaimReleased: lambda released: owner.released.append(released.claim)})
    connection = Connection(LIMITS, OWNER_METHODS)
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: serving, sock=owner_socket)
    await loop.create_connection(lambda: connection, sock=worker_socket)
    try:
        async with asyncio.timeout(30):
            yield owner, RemoteFrontier(connection, addresses), addresses
    finally:
        serving.abort()
        connection.abort()
        await asyncio.sleep(0)


async def until(is_met: Callable[[], object]) -> None:
    while not is_met():  # noqa: ASYNC110  the test's owner sends no event
        await asyncio.sleep(0.001)


def test_a_claim_is_granted_or_refused_by_the_owner() -> None:
    async def run() -> None:
        async with connected() as (owner, frontier, addresses):
            woken: list[int] = []
            first = await frontier.claim(HOST, lambda: woken.append(1), 0.0, Lease(5, RECORD, 0.0))
            second = await frontier.claim(HOST, lambda: woken.append(2), 0.0)
            await until(lambda: len(owner.claims) == 2)
            assert [claim[:2] for claim in owner.claims.values()] == [(HOST, 5), (HOST, 0)]
            assert await frontier.try_start(first, 0.0) == float("inf")
            owner.claims[1][2].set_result(HostAccess("192.0.2.1", is_paced=True, error="no address"))
            owner.claims[2][2].set_exception(StateError("too many"))
            await until(lambda: len(woken) == 2)
            assert (await frontier.try_start(first, 0.0), first.address) == (0.0, "192.0.2.1")
            assert frontier.is_paced(HOST)
            assert addresses.lookup_error(HOST + "/") == "no address"
            with pytest.raises(StateError, match="too many"):
                await frontier.try_start(second, 0.0)
            for claim in (first, first, second):
                await frontier.release_claim(claim, 0.0)
            await until(lambda: owner.released)
            assert owner.released == [1], "a refused claim needs no release"

    asyncio.run(run())


def test_a_waiting_claim_can_be_released() -> None:
    async def run() -> None:
        async with connected() as (owner, frontier, _):
            claim = await frontier.claim(HOST, lambda: None, 0.0)
            await frontier.release_claim(claim, 0.0)
            await until(lambda: owner.released)

    asyncio.run(run())


def test_a_call_returns_the_result_or_error_of_the_owner() -> None:
    async def run() -> None:
        async with connected() as (_, frontier, _):
            facts = asyncio.gather(frontier.host_facts(HOST), frontier.host_facts("other"), return_exceptions=True)
            assert await frontier.push([RECORD]) == 1
            found, error = await facts
            assert found == HostFacts(b"x")
            assert (type(error), str(error)) == (StateError, "no disk")

    asyncio.run(run())


def test_own_writes_of_a_worker_are_read_back_and_sent_to_the_owner() -> None:
    sent: list[Message] = []
    committed = MemoryKeyStore()
    committed.put("t", "a", b"1")
    committed.put("t", "b", b"2")
    store = RemoteStore(committed, sent.append)
    store.put("t", "b", None)
    store.put("t", "c", b"3")
    assert (store.get("t", "a"), store.get("t", "b"), store.get("t", "c")) == (b"1", None, b"3")
    assert list(store.items("t")) == [("a", b"1"), ("c", b"3")]
    assert sent == [KeyStored("t", "b", None), KeyStored("t", "c", b"3")]


def test_a_read_only_store_reads_what_another_process_has_flushed(tmp_path):
    async def run():
        writer, reader = SqliteKeyStore(tmp_path / "r"), SqliteKeyStore(tmp_path / "r", read_only=True)
        assert reader.get("t", "a") is None
        (tmp_path / "r").touch()
        assert reader.get("t", "a") is None, "the table does not exist yet"
        writer.put("t", "a", b"1")
        await writer.flush()
        assert (reader.get("t", "a"), list(reader.items("t"))) == (b"1", [("a", b"1")])
        await reader.close()
        await writer.close()

    asyncio.run(run())
