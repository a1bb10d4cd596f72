"""A queue on Redis (C4) when something goes wrong: the server killed, emptied, paused or full, connections cut, members
paused, a master lost, and what a user may write wrongly. What folders and Redis have in common is in
test_queue_folder.py.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any
from uuid import uuid4

import pytest

from lycosa.core.errors import ForeignState, LycosaError, StateError, StorageError, StorageFull, UsageError
from lycosa.queue import Empty, Queue
from lycosa.queues.redis import member
from lycosa.queues.redis.member import SILENT_MAX_S
from lycosa.queues.redis.server import QueueServer, read_queue_address
from tests.conftest import PROVE
from tests.queues.e2e.members import LONG_S, members, until
from tests.queues.e2e.test_queue_folder import sleepers
from tests.servers.ports import closed_port
from tests.servers.redis import redis_cluster, redis_server

pytestmark = pytest.mark.redis

DEAD_S = 2.0
BEAT_LONG_S = 30.0
ITEMS_MIN = 100


@pytest.fixture
def url(redis) -> str:
    return f"{redis.url}?queue={uuid4().hex}"


@pytest.fixture
def start(tmp_path) -> Iterator:
    with members(tmp_path / "diaries") as start_one:
        yield start_one


class Traffic:
    """Threads that put, get and lease until they are told to stop; what became of each item, as the callers saw it."""

    def __init__(self, url: str, **options: Any) -> None:
        self.put: list[str] = []
        self.out: Counter[str] = Counter()
        self.failed: list[Exception] = []
        self._queues = [Queue(url, **options) for _ in range(2)]
        self._stop = threading.Event()
        calls = [self._put, self._put_many, self._get, self._lease, self._lease]
        self._threads = [
            threading.Thread(target=self._run, args=(call, number)) for number, call in enumerate(calls * 2)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        until(lambda: len(self.put) > ITEMS_MIN or bool(self.failed))  # a busy machine takes longer for them
        self._stop.set()
        for thread in self._threads:
            thread.join(LONG_S)
            assert not thread.is_alive()
        left = self._queues[0].get_many(10**6) if self._queues[0].qsize() else []
        self.out.update(left)
        for queue in self._queues:
            queue.close()

    def _run(self, call: Callable[[Queue, str], None], number: int) -> None:
        numbers = count()
        while not self._stop.is_set():
            try:
                call(self._queues[number % 2], f"{number}.{next(numbers)}")
            except Empty:
                pass
            except Exception as error:
                self.failed.append(error)
                return

    def _put(self, queue: Queue, item: str) -> None:
        queue.put(item)
        self.put.append(item)

    def _put_many(self, queue: Queue, item: str) -> None:
        items = [f"{item}.{each}" for each in range(3)]
        queue.put_many(items)
        self.put += items

    def _get(self, queue: Queue, _: str) -> None:
        self.out.update(queue.get_many(2, timeout=0.2))

    def _lease(self, queue: Queue, _: str) -> None:
        lease = queue.lease(timeout=0.2)
        lease.ack()
        self.out[lease.item] += 1


def once_each(traffic: Traffic) -> None:
    assert traffic.failed == []
    assert len(traffic.put) > ITEMS_MIN
    lost, twice = set(traffic.put) - set(traffic.out), [item for item, times in traffic.out.items() if times > 1]
    print(f"{len(traffic.put)} put, {len(lost)} lost, {len(twice)} twice")
    assert (lost, twice) == (set(), [])


# ------------------------------------------------------------------------------------------------------ the server


@pytest.mark.parametrize("append", ["always", "everysec"])
def test_a_server_that_is_killed_and_started_again(append):
    """With its file nothing is lost and nothing is done twice: a call whose reply was lost is known."""
    with redis_server(append=append) as server:
        traffic = Traffic(f"{server.url}?queue=q")
        for _ in range(20 if PROVE else 2):
            time.sleep(0.4)
            server.kill()
            time.sleep(0.2)
            server.start()
        time.sleep(0.4)
        traffic.stop()
        once_each(traffic)


def test_connections_that_are_cut():
    with redis_server() as server:
        traffic = Traffic(f"{server.url}?queue=q")
        for _ in range(500 if PROVE else 30):
            time.sleep(0.02)
            server.cli("CLIENT", "KILL", "TYPE", "normal")
        time.sleep(0.1)
        traffic.stop()
        once_each(traffic)


def test_a_server_that_stands_still_makes_nobody_dead():
    with redis_server() as server, Queue(f"{server.url}?queue=q") as mine, Queue(f"{server.url}?queue=q") as other:
        mine.put("a")
        lease = mine.lease()
        time.sleep(0.3)
        server.pause()
        time.sleep(SILENT_MAX_S + 0.4)
        server.resume()
        with pytest.raises(Empty):
            other.get(timeout=0.6)
        lease.ack()


def test_an_ack_that_the_server_forgot_is_a_repeat_and_no_leak():
    """As after a power loss: the file of the server ends before the ack."""
    with redis_server(append="everysec") as server, Queue(f"{server.url}?queue=q") as queue:
        queue.put_many("ab")
        lease, held = queue.lease(), queue.lease()
        server.cli("CONFIG", "SET", "appendonly", "no")
        server.cli("CONFIG", "SET", "save", "")
        server.cli("SAVE")
        lease.ack()
        server._options = {**server._options, "appendonly": "no"}
        server.kill()
        server.start()
        again = queue.lease(timeout=LONG_S)
        assert (again.item, again.attempts) == ("a", 1)
        again.ack()
        held.ack()
        assert (queue.qsize(), queue.unfinished_tasks) == (0, 0)


def test_a_server_that_was_emptied_says_so():
    with redis_server() as server:
        url = f"{server.url}?queue=q"
        with Queue(url) as queue, Queue(url) as waiting:
            queue.put("a")
            lease = queue.lease()
            failed: list[Exception] = []

            def wait() -> None:
                try:
                    waiting.get()
                except LycosaError as error:
                    failed.append(error)

            thread = threading.Thread(target=wait)
            thread.start()
            time.sleep(0.1)
            server.kill()
            server.start()
            for call in (lambda: queue.put("b"), queue.qsize, queue.join, lease.ack, lambda: queue.get(timeout=1)):
                with pytest.raises(StorageError, match="the queue is gone: the server was emptied"):
                    call()
            thread.join(LONG_S)
            assert "gone" in str(failed)
            queue._member.after_fork()
            with pytest.raises(StorageError, match="gone"):
                queue.get_nowait()
            with Queue(url) as new:
                new.put("c")
                with pytest.raises(StorageError, match="gone"):
                    queue.get()


def test_a_server_that_stays_away():
    with redis_server(append="always") as server, Queue(f"{server.url}?queue=q", reconnect_max_s=0.5) as queue:
        queue.put("a")
        server.kill()
        began = time.monotonic()
        with pytest.raises(StorageError, match=r"the connection was refused|the server ended the connection"):
            queue.get()
        assert 0.5 <= time.monotonic() - began < 20, "and not the minute of others"
        server.start()
        assert queue.get() == "a"


def test_memory_that_is_full_loses_nothing():
    with redis_server(maxmemory="8mb") as server, Queue(f"{server.url}?queue=q") as queue:
        put: list[int] = []

        def fill() -> None:
            for number in range(10**6):
                queue.put([number, "x" * 20_000])
                put.append(number)

        with pytest.raises(StorageFull, match="maxmemory; nothing is lost"):
            fill()
        assert len(put) > 50
        assert queue.lease().item[0] == 0
        assert [item[0] for item in queue.get_many(len(put) // 2)] == put[1 : len(put) // 2 + 1]
        queue.task_done(len(put) // 2)
        queue.put("small")
        server.cli("CONFIG", "SET", "maxmemory", "100mb")
        queue.put_many([["x" * 20_000]] * 1000)


# ------------------------------------------------------------------------------------------------------ members


def test_a_member_that_was_paused_has_lost_its_lease_and_goes_on(url, start):
    with Queue(url) as queue:
        queue.put("held")
        late = start("late", url)
        late.until("holds")
        late.process.send_signal(signal.SIGSTOP)
        again = queue.lease(timeout=LONG_S)
        assert (again.item, again.attempts, queue.unfinished_tasks) == ("held", 1, 1)
        late.process.send_signal(signal.SIGCONT)
        late.process.stdin.write("go\n")
        late.process.stdin.flush()
        late.until("refused")
        again.ack()
        assert queue.get(timeout=LONG_S) == "on it goes"


def test_one_who_waited_when_it_was_paused_waits_again(url, start):
    with Queue(url) as queue:
        waiter = start("wait", url, "get")
        waiter.until("waits")
        waiter.process.send_signal(signal.SIGSTOP)
        time.sleep(DEAD_S)
        queue.put("late")
        assert queue.qsize() == 1
        waiter.process.send_signal(signal.SIGCONT)
        assert waiter.until("got")[3] == "late"


@pytest.mark.parametrize("call", ["get", "put", "join"])
def test_who_waits_is_woken_by_the_call_and_not_by_the_next_beat(url, call, monkeypatch):
    monkeypatch.setattr(member, "BEAT_S", BEAT_LONG_S)
    monkeypatch.setattr(member, "SILENT_MAX_S", LONG_S)
    took = []
    with Queue(url, 1) as queue, Queue(url) as other:
        waits = {"get": other.get, "put": lambda: other.put("b"), "join": other.join}[call]
        wakes = {"get": lambda: queue.put("a"), "put": queue.get, "join": queue.task_done}[call]
        for _ in range(5):
            if call != "get":
                queue.put("a")
            thread = threading.Thread(target=waits)
            thread.start()
            until(lambda: sleepers(queue) == 1)
            began = time.monotonic()
            wakes()
            thread.join(LONG_S)
            took.append(time.monotonic() - began)
            if call != "get":
                queue.get()
    print(call, [f"{each * 1000:.1f} ms" for each in took])
    assert max(took) < BEAT_LONG_S / 2


def test_when_the_one_that_was_woken_cannot_take_it_another_is(url, start, monkeypatch):
    """And not only when it is found dead."""
    monkeypatch.setattr(member, "SILENT_MAX_S", LONG_S)
    with Queue(url) as queue:
        waiter = start("wait", url, "get")
        waiter.until("waits")
        until(lambda: queue._server._client.zcard(queue._server._keys[-4]) == 1)
        waiter.process.send_signal(signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool, Queue(url) as other:
            getting = pool.submit(other.get)
            until(lambda: queue._server._client.zcard(queue._server._keys[-4]) == 2)
            queue.put("a")
            assert getting.result(LONG_S / 3) == "a"


def test_a_thread_that_blocks_is_no_death(url):
    with Queue(url) as queue, Queue(url) as other:
        queue.put("a")
        with queue.lease():
            time.sleep(DEAD_S)
            with pytest.raises(Empty):
                other.get_nowait()


def test_all_were_killed(url, start):
    with Queue(url) as queue:
        queue.put_many(["held", "got"])
    holder = start("hold", url)
    holder.until("holds")
    holder.kill()
    time.sleep(SILENT_MAX_S)
    with Queue(url) as queue, queue.lease(timeout=LONG_S / 3) as item:
        assert item == "held"
        assert queue.unfinished_tasks == 1


def test_nothing_is_left_of_members_that_left(url, redis):
    with Queue(url) as queue:
        for number in range(3):
            with Queue(url) as other:
                other.put(number)
                assert other.get() == number
        queue.put("a")
        queue.lease().ack()
    name = url.partition("queue=")[2]
    assert redis.cli("KEYS", f"*{name}*").split() == [f"lycosa:queue:{{{name}}}:state"]


# ------------------------------------------------------------------------------------------------------ a cluster


def test_a_cluster_whose_master_is_killed():
    """Replication lags behind, so what was put right before may be gone; what is older is not, and all goes on."""
    with redis_cluster() as cluster:
        url = f"{cluster.url}?queue=q"
        with Queue(url) as queue, Queue(url, 5000) as other:
            queue.put_many(range(1000))
            lease = other.lease()
            assert lease.item == 0
            time.sleep(0.5)
            cluster.owner("lycosa:queue:{q}:state").kill()
            assert queue.get_many(999) == list(range(1, 1000))
            lease.ack()
            queue.put("on it goes")
            assert (other.get(timeout=LONG_S), other.maxsize) == ("on it goes", 5000)


# ------------------------------------------------------------------------------------------------------ bad input


@contextmanager
def refused(error: type[Exception], says: str) -> Iterator[None]:
    with pytest.raises(error, match=says) as caught:
        yield
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_wrong_passwords():
    with redis_server(password="secret") as server:
        Queue(f"{server.url}?queue=q").close()
        for login in ("", ":secret2@", "ann:secret@"):
            with refused(UsageError, "the server refuses this user and password, or none"):
                Queue(f"redis://{login}127.0.0.1:{server.port}?queue=q")


def test_no_server():
    with refused(StorageError, "the connection was refused: is Redis running there"):
        Queue(f"redis://:secret@127.0.0.1:{closed_port()}?queue=q")
    with refused(StorageError, "the connection was refused|no answer from the server"):
        Queue(f"redis+cluster://:secret@127.0.0.1:{closed_port()}?queue=q")


def test_tls(redis):
    with redis_server(tls=True, password="secret") as server:
        with Queue(f"{server.url}?queue=q&ca={server.ca}") as queue:
            queue.put("a")
            assert queue.get() == "a"
        with refused(UsageError, "the certificate of the server is not trusted; name its authority with ca=FILE"):
            Queue(f"{server.url}?queue=q")
        with refused(UsageError, "ca=/nowhere is no file"):
            Queue(f"{server.url}?queue=q&ca=/nowhere")
        with refused(StorageError, "does it want TLS, rediss://"):
            Queue(f"redis://127.0.0.1:{server.port}?queue=q")
    with refused(UsageError, "there is no TLS on this port; without TLS write redis://"):
        Queue(f"{redis.url.replace('redis:', 'rediss:')}?queue=q")


def test_a_server_that_would_drop_items():
    with redis_server(maxmemory="10mb", policy="volatile-lru") as server:
        for limit in ("10mb", "0"):  # it may be given one again at any time
            server.cli("CONFIG", "SET", "maxmemory", limit)
            with refused(StorageError, "maxmemory-policy volatile-lru .* set it to noeviction"):
                Queue(f"{server.url}?queue=q")
        server.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
        Queue(f"{server.url}?queue=q").close()


def test_an_old_server():
    server = QueueServer(read_queue_address("redis://host?queue=q"), reconnect_max_s=0.0)
    with refused(StorageError, "Redis 6.2.14; a queue needs 7.0 or later"):
        server.refuse_unfit({"redis_version": "6.2.14"})
    for version in ("7.0.0", "7.2.4", "8.2.1", "10.0.0"):
        server.refuse_unfit({"redis_version": version})


def test_sync_wants_a_server_that_syncs(redis, url):
    with refused(UsageError, "appendonly yes and appendfsync always"):
        Queue(url, sync=True)
    with redis_server(append="always") as server:
        Queue(f"{server.url}?queue=q", sync=True).close()


def test_a_name_that_holds_something_else(redis, url):
    name = url.partition("queue=")[2]
    redis.cli("SET", f"lycosa:queue:{{{name}}}:state", "mine")
    with refused(ForeignState, "holds something else under this name"):
        Queue(url)
    redis.cli("DEL", f"lycosa:queue:{{{name}}}:state")
    Queue(url).close()
    redis.cli("HSET", f"lycosa:queue:{{{name}}}:state", "version", "9")
    with refused(StateError, "written by a newer Lycosa"):
        Queue(url)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://host", "say which queue, redis://host.queue=NAME"),
        ("redis://:secret@host?queue={a}", "say which queue"),
        ("redis://:secret@host?queue=a&db=7", "unknown option 'db'"),
        ("redis://:secret@host/name?queue=a", "/name is not a database; write a number"),
        ("redis+cluster://host:1/1?queue=a", "/1 is not a database; write none"),
        ("redis://host:port?queue=a", "'host:port' is not a host"),
        ("redis://?queue=a", "'' is not a host"),
    ],
)
def test_a_url_that_is_none(url, says):
    with refused(UsageError, says):
        Queue(url)


def test_without_the_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with refused(UsageError, r"needs the packages redis and hiredis: pip install 'lycosa\[redis\]'"):
        Queue("redis://host?queue=a")
