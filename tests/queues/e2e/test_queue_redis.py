"""A queue on Redis (C4) under failures: the server killed, emptied, paused or full, connections cut, members paused,
a master lost, invalid input. Tests that also run on folders are in test_queue_folder.py.
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
from tests.queues.e2e.members import LONG_S, members, wait_until
from tests.queues.e2e.test_queue_folder import waiting_members
from tests.servers.ports import closed_port
from tests.servers.redis import redis_cluster, redis_server

pytestmark = pytest.mark.redis

EXPIRED_S = 2.0
LONG_BEAT_S = 30.0
ITEMS_MIN = 100


@pytest.fixture
def url(redis) -> str:
    return f"{redis.url}?queue={uuid4().hex}"


@pytest.fixture
def start(tmp_path) -> Iterator:
    with members(tmp_path / "logs") as start_one:
        yield start_one


class Traffic:
    """Threads that put, get and lease until they are stopped, and a record of each item as the callers saw it."""

    def __init__(self, url: str, **options: Any) -> None:
        self.put: list[str] = []
        self.taken: Counter[str] = Counter()
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
        wait_until(lambda: len(self.put) > ITEMS_MIN or bool(self.failed))  # a busy machine takes longer for these
        self._stop.set()
        for thread in self._threads:
            thread.join(LONG_S)
            assert not thread.is_alive()
        remaining = self._queues[0].get_many(10**6) if self._queues[0].qsize() else []
        self.taken.update(remaining)
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
        self.taken.update(queue.get_many(2, timeout=0.2))

    def _lease(self, queue: Queue, _: str) -> None:
        lease = queue.lease(timeout=0.2)
        lease.ack()
        self.taken[lease.item] += 1


def assert_taken_once(traffic: Traffic) -> None:
    assert traffic.failed == []
    assert len(traffic.put) > ITEMS_MIN
    lost, repeated = set(traffic.put) - set(traffic.taken), [item for item, times in traffic.taken.items() if times > 1]
    print(f"{len(traffic.put)} put, {len(lost)} lost, {len(repeated)} repeated")
    assert (lost, repeated) == (set(), [])


# ------------------------------------------------------------------------------------------------------ the server


def test_a_restart_of_a_killed_server_loses_and_repeats_nothing():
    """With an append-only file nothing is lost, and a call whose reply was lost is not executed twice.

    Only with `appendfsync always`: with `everysec` and a busy disk, Redis itself delays writes by up to 2 s.
    """
    with redis_server(append="always") as server:
        traffic = Traffic(f"{server.url}?queue=q")
        for _ in range(20 if PROVE else 2):
            time.sleep(0.4)
            server.kill()
            time.sleep(0.2)
            server.start()
        time.sleep(0.4)
        traffic.stop()
        assert_taken_once(traffic)


def test_cut_connections_lose_and_repeat_nothing():
    with redis_server() as server:
        traffic = Traffic(f"{server.url}?queue=q")
        for _ in range(500 if PROVE else 30):
            time.sleep(0.02)
            server.cli("CLIENT", "KILL", "TYPE", "normal")
        time.sleep(0.1)
        traffic.stop()
        assert_taken_once(traffic)


def test_a_paused_server_expires_no_member():
    with redis_server() as server, Queue(f"{server.url}?queue=q") as owner, Queue(f"{server.url}?queue=q") as other:
        owner.put("a")
        lease = owner.lease()
        time.sleep(0.3)
        server.pause()
        time.sleep(SILENT_MAX_S + 0.4)
        server.resume()
        with pytest.raises(Empty):
            other.get(timeout=0.6)
        lease.ack()


def test_an_ack_that_the_server_lost_is_repeated():
    """As after a power loss: the file of the server ends before the ack."""
    with redis_server(append="everysec") as server, Queue(f"{server.url}?queue=q") as queue:
        queue.put_many("ab")
        lease, unaffected = queue.lease(), queue.lease()
        server.cli("CONFIG", "SET", "appendonly", "no")
        server.cli("CONFIG", "SET", "save", "")
        server.cli("SAVE")
        lease.ack()
        server._options = {**server._options, "appendonly": "no"}
        server.kill()
        server.start()
        repeated = queue.lease(timeout=LONG_S)
        assert (repeated.item, repeated.attempts) == ("a", 1)
        repeated.ack()
        unaffected.ack()
        assert (queue.qsize(), queue.unfinished_tasks) == (0, 0)


def test_an_emptied_server_is_reported_by_every_call():
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
            # Imitate a forked child, which has no heartbeat thread: after_fork does not stop the thread of the parent.
            queue._member._heartbeat.stop()
            queue._member._heartbeat.join(LONG_S)
            queue._member.after_fork()
            with pytest.raises(StorageError, match="gone"):
                queue.get_nowait()
            with Queue(url) as new:
                new.put("c")
                with pytest.raises(StorageError, match="gone"):
                    queue.get()


def test_an_unreachable_server_is_reported_after_the_time_limit():
    with redis_server(append="always") as server, Queue(f"{server.url}?queue=q", reconnect_max_s=0.5) as queue:
        queue.put("a")
        server.kill()
        started = time.monotonic()
        with pytest.raises(StorageError, match=r"the connection was refused|the server ended the connection"):
            queue.get()
        assert 0.5 <= time.monotonic() - started < 20, "not the default of a minute"
        server.start()
        assert queue.get() == "a"


def test_a_full_server_loses_nothing():
    with redis_server(maxmemory="8mb") as server, Queue(f"{server.url}?queue=q") as queue:
        numbers: list[int] = []

        def fill() -> None:
            for number in range(10**6):
                queue.put([number, "x" * 20_000])
                numbers.append(number)

        with pytest.raises(StorageFull, match="maxmemory; nothing is lost"):
            fill()
        assert len(numbers) > 50
        assert queue.lease().item[0] == 0
        assert [item[0] for item in queue.get_many(len(numbers) // 2)] == numbers[1 : len(numbers) // 2 + 1]
        queue.task_done(len(numbers) // 2)
        queue.put("small")
        server.cli("CONFIG", "SET", "maxmemory", "100mb")
        queue.put_many([["x" * 20_000]] * 1000)


# ------------------------------------------------------------------------------------------------------ members


def test_a_paused_member_loses_its_lease_and_continues(url, start):
    with Queue(url) as queue:
        queue.put("held")
        late = start("late", url)
        late.wait_for("holds")
        late.process.send_signal(signal.SIGSTOP)
        second = queue.lease(timeout=LONG_S)
        assert (second.item, second.attempts, queue.unfinished_tasks) == ("held", 1, 1)
        late.process.send_signal(signal.SIGCONT)
        late.process.stdin.write("go\n")
        late.process.stdin.flush()
        late.wait_for("refused")
        second.ack()
        assert queue.get(timeout=LONG_S) == "continued"


def test_a_waiting_call_survives_a_pause_of_its_process(url, start):
    with Queue(url) as queue:
        waiter = start("wait", url, "get")
        waiter.wait_for("waits")
        waiter.process.send_signal(signal.SIGSTOP)
        time.sleep(EXPIRED_S)
        queue.put("late")
        assert queue.qsize() == 1
        waiter.process.send_signal(signal.SIGCONT)
        assert waiter.wait_for("got")[3] == "late"


@pytest.mark.parametrize("call", ["get", "put", "join"])
def test_a_waiting_thread_is_woken_by_the_call_not_by_the_next_heartbeat(url, call, monkeypatch):
    monkeypatch.setattr(member, "BEAT_S", LONG_BEAT_S)
    monkeypatch.setattr(member, "SILENT_MAX_S", LONG_S)
    times_s = []
    with Queue(url, 1) as queue, Queue(url) as other:
        waiting_call = {"get": other.get, "put": lambda: other.put("b"), "join": other.join}[call]
        waking_call = {"get": lambda: queue.put("a"), "put": queue.get, "join": queue.task_done}[call]
        for _ in range(5):
            if call != "get":
                queue.put("a")
            thread = threading.Thread(target=waiting_call)
            thread.start()
            wait_until(lambda: waiting_members(queue) == 1)
            started = time.monotonic()
            waking_call()
            thread.join(LONG_S)
            times_s.append(time.monotonic() - started)
            if call != "get":
                queue.get()
    print(call, [f"{each * 1000:.1f} ms" for each in times_s])
    assert max(times_s) < LONG_BEAT_S / 2


def test_another_thread_is_woken_if_the_first_one_cannot_take_the_item(url, start, monkeypatch):
    """The other thread is woken before the member of the first one has expired."""
    monkeypatch.setattr(member, "SILENT_MAX_S", LONG_S)
    with Queue(url) as queue:
        waiter = start("wait", url, "get")
        waiter.wait_for("waits")
        wait_until(lambda: queue._server._client.zcard(queue._server._keys[-4]) == 1)
        waiter.process.send_signal(signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool, Queue(url) as other:
            getting = pool.submit(other.get)
            wait_until(lambda: queue._server._client.zcard(queue._server._keys[-4]) == 2)
            queue.put("a")
            assert getting.result(LONG_S / 3) == "a"


def test_a_blocked_main_thread_does_not_expire_its_member(url):
    with Queue(url) as queue, Queue(url) as other:
        queue.put("a")
        with queue.lease():
            time.sleep(EXPIRED_S)
            with pytest.raises(Empty):
                other.get_nowait()


def test_items_of_killed_members_return_if_no_member_is_left(url, start):
    with Queue(url) as queue:
        queue.put_many(["held", "got"])
    holder = start("hold", url)
    holder.wait_for("holds")
    holder.kill()
    time.sleep(SILENT_MAX_S)
    with Queue(url) as queue, queue.lease(timeout=LONG_S / 3) as item:
        assert item == "held"
        assert queue.unfinished_tasks == 1


def test_members_that_left_leave_no_keys(url, redis):
    """Leaving sends the member a wake-up, to end the wait of its heartbeat thread. If this thread was not waiting,
    nobody reads the wake-up, and its key expires after 5 s.
    """
    with Queue(url) as queue:
        for number in range(3):
            with Queue(url) as other:
                other.put(number)
                assert other.get() == number
        queue.put("a")
        queue.lease().ack()
    name = url.partition("queue=")[2]
    wait_until(lambda: redis.cli("KEYS", f"*{name}*").split() == [f"lycosa:queue:{{{name}}}:state"])


# ------------------------------------------------------------------------------------------------------ a cluster


def test_a_queue_survives_the_failover_of_a_cluster_master():
    """Replication is asynchronous, so the last puts may be lost; older ones are not, and the queue continues."""
    with redis_cluster() as cluster:
        url = f"{cluster.url}?queue=q"
        with Queue(url) as queue, Queue(url, 5000) as other:
            queue.put_many(range(1000))
            lease = other.lease()
            assert lease.item == 0
            master = cluster.owner("lycosa:queue:{q}:state")
            replica, written = cluster.replica_of(master), master._offset("master_repl_offset")
            wait_until(lambda: replica._offset("slave_repl_offset") >= written)
            master.kill()
            assert queue.get_many(999) == list(range(1, 1000))
            lease.ack()
            queue.put("continued")
            assert (other.get(timeout=LONG_S), other.maxsize) == ("continued", 5000)


# ------------------------------------------------------------------------------------------------------ bad input


@contextmanager
def refused(error: type[Exception], message: str) -> Iterator[None]:
    with pytest.raises(error, match=message) as caught:
        yield
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_wrong_passwords_are_refused():
    with redis_server(password="secret") as server:
        Queue(f"{server.url}?queue=q").close()
        for login in ("", ":secret2@", "ann:secret@"):
            with refused(UsageError, "the server rejects this user and password, or requires them"):
                Queue(f"redis://{login}127.0.0.1:{server.port}?queue=q")


def test_an_unreachable_server_is_reported():
    with refused(StorageError, "the connection was refused: is Redis running there"):
        Queue(f"redis://:secret@127.0.0.1:{closed_port()}?queue=q")
    with refused(StorageError, "the connection was refused|no answer from the server"):
        Queue(f"redis+cluster://:secret@127.0.0.1:{closed_port()}?queue=q")


def test_tls_connections_and_their_errors(redis):
    with redis_server(tls=True, password="secret") as server:
        with Queue(f"{server.url}?queue=q&ca={server.ca}") as queue:
            queue.put("a")
            assert queue.get() == "a"
        with refused(UsageError, "the certificate of the server is not trusted; name its authority with ca=FILE"):
            Queue(f"{server.url}?queue=q")
        with refused(UsageError, "ca=/nowhere is not a file"):
            Queue(f"{server.url}?queue=q&ca=/nowhere")
        with refused(StorageError, "if it requires TLS, write rediss://"):
            Queue(f"redis://127.0.0.1:{server.port}?queue=q")
    with refused(UsageError, "there is no TLS on this port; without TLS write redis://"):
        Queue(f"{redis.url.replace('redis:', 'rediss:')}?queue=q")


def test_a_server_that_may_evict_items_is_refused():
    with redis_server(maxmemory="10mb", policy="volatile-lru") as server:
        for limit in ("10mb", "0"):  # without a limit too: one may be set at any time
            server.cli("CONFIG", "SET", "maxmemory", limit)
            with refused(StorageError, "maxmemory-policy volatile-lru .* set maxmemory-policy to noeviction"):
                Queue(f"{server.url}?queue=q")
        server.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
        Queue(f"{server.url}?queue=q").close()


def test_an_old_server_is_refused():
    server = QueueServer(read_queue_address("redis://host?queue=q"), reconnect_max_s=0.0)
    with refused(StorageError, "Redis 6.2.14; a queue needs 7.0 or later"):
        server.refuse_unfit({"redis_version": "6.2.14"})
    for version in ("7.0.0", "7.2.4", "8.2.1", "10.0.0"):
        server.refuse_unfit({"redis_version": version})


def test_sync_needs_a_server_that_syncs(redis, url):
    with refused(UsageError, "appendonly yes and appendfsync always"):
        Queue(url, sync=True)
    with redis_server(append="always") as server:
        Queue(f"{server.url}?queue=q", sync=True).close()


def test_a_name_with_other_content_is_refused(redis, url):
    name = url.partition("queue=")[2]
    redis.cli("SET", f"lycosa:queue:{{{name}}}:state", "mine")
    with refused(ForeignState, "has other data under this name"):
        Queue(url)
    redis.cli("DEL", f"lycosa:queue:{{{name}}}:state")
    Queue(url).close()
    redis.cli("HSET", f"lycosa:queue:{{{name}}}:state", "version", "9")
    with refused(StateError, "written by a newer Lycosa"):
        Queue(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://host", "name the queue, as in redis://host.queue=NAME"),
        ("redis://:secret@host?queue={a}", "name the queue"),
        ("redis://:secret@host?queue=a&db=7", "unknown option 'db'"),
        ("redis://:secret@host/name?queue=a", "/name is not a database; write a number"),
        ("redis+cluster://host:1/1?queue=a", "a cluster has only one database; leave out /1"),
        ("redis://host:port?queue=a", "'host:port' is not a host"),
        ("redis://?queue=a", "'' is not a host"),
    ],
)
def test_an_invalid_url_is_refused(url, message):
    with refused(UsageError, message):
        Queue(url)


def test_missing_packages_are_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with refused(UsageError, r"needs the packages redis and hiredis: pip install 'lycosa\[redis\]'"):
        Queue("redis://host?queue=a")
