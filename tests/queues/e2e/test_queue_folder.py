"""A queue shared by processes (C4): kill -9 at random, wake-ups, forks, damaged folders, a full disk.

The first tests run on folders and on Redis; more tests of Redis are in test_queue_redis.py.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from lycosa.core.errors import ForeignState, NewerState, StateError, StorageError
from lycosa.queue import Queue
from lycosa.queues.folder import store as folder_of_a_queue
from tests.cli.command import environment
from tests.conftest import PROVE, ROOT, need
from tests.queues.e2e.members import LONG_S, members, wait_until
from tests.queues.e2e.queue_members import KINDS

PROMPT_S = 10.0
"""Maximum time until a returned item is taken, on a busy machine. Measured: a few milliseconds, and less than two
seconds on Redis, where a killed process is only detected by its silence."""


@pytest.fixture
def start(tmp_path) -> Iterator:
    with members(tmp_path / "logs") as start_one:
        yield start_one


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "queue"


@pytest.fixture(params=["folder", pytest.param("redis", marks=pytest.mark.redis)])
def address(request, tmp_path) -> Iterator[Path | str]:
    """The address of a queue: a folder or a URL."""
    server = request.getfixturevalue("redis") if request.param == "redis" else None
    return f"{server.url}?queue={uuid4().hex}" if server else tmp_path / "queue"


def waiting_members(queue: Queue) -> int:
    """Return the number of members that wait."""
    if not isinstance(queue, Queue):
        server, (*_, items, room, done, _bell) = queue._server, queue._server._keys
        return server._client.zcard(items) + server._client.zcard(room) + server._client.scard(done)
    with queue._folder.change() as (_, state):
        return sum(bool(member.waits) for member in state.members.values())


# ------------------------------------------------------------------------------------------------------ kill -9


@pytest.mark.parametrize("kind", range(3))
def test_random_kills_lose_no_item_and_ack_none_twice(address, start, rng, kind):
    """An item whose put returned is not lost; none is acked twice; only items leased by a killed consumer are leased
    twice.
    """
    kills = 150 if PROVE else 8 if isinstance(address, Path) else 4 if kind == 0 else 1
    roles = ["produce", "consume", "produce", "consume"]
    processes = [start(role, address, f"{number}", kind) for number, role in enumerate(roles)]
    running = list(processes)
    for number in range(len(roles), len(roles) + kills):
        index = rng.randrange(len(roles))
        running[index].wait_for({"produce": "put", "consume": "taken"}[roles[index]])
        time.sleep(rng.uniform(0, 0.05))
        running[index].kill()
        processes.append(start(roles[index], address, f"{number}", kind))
        running[index] = processes[-1]
    wait_until(lambda: all(len(member.lines()) > 60 for member in running))
    for member in running:
        member.kill()
    log_lines = [line for member in processes for line in member.lines()]
    put = [item for word, *items in log_lines if word == "put" for item in items]
    leased = Counter(words[1] for words in log_lines if words[0] == "taken")
    acked = Counter(words[1] for words in log_lines if words[0] == "acked")
    with KINDS[kind](address) as queue:
        wait_until(lambda: queue.qsize() == queue.unfinished_tasks)
        size = queue.qsize()
        remaining = queue.get_many(size) if size else []
    assert len(put) > 100
    assert len(acked) > 10
    assert max(acked.values()) == 1
    assert len(remaining) == len(set(remaining))
    assert not set(remaining) & set(acked)
    assert set(put) <= set(remaining) | set(acked) | {item for item in leased if item not in acked}
    # A killed consumer had at most one lease, whose ack may have been committed but not logged.
    unlogged = set(put) - set(remaining) - set(acked)
    assert len(unlogged) <= kills + len(roles)
    repeated = [item for item, count in leased.items() if count > 1]
    # A member that was paused for too long has lost its leases, and says so if it acks one.
    late = sum(words[0] == "late" for words in log_lines)
    assert len(repeated) <= kills + len(roles) + late
    print(f"{len(put)} put, {len(acked)} acked, {len(remaining)} left, {len(repeated)} twice, {len(unlogged)} unlogged")


def test_the_lease_of_a_killed_consumer_goes_to_a_waiting_one_at_once(address, start):
    with Queue(address) as queue:
        queue.put_many(["held", "got"])
        holder = start("hold", address)
        assert holder.wait_for("holds") == ["holds", "held", "got"]
        waiter = start("wait", address, "get")
        waiter.wait_for("waits")
        wait_until(lambda: waiting_members(queue) == 1)
        killed_at = time.monotonic_ns()
        holder.kill()
        _, taken_at, _, item = waiter.wait_for("got")
        took_s = (int(taken_at) - killed_at) / 1e9
        print(f"{took_s * 1000:.1f} ms")
        assert (item, took_s < PROMPT_S) == ("held", True)
        assert waiter.end() == 0
        queue.join()


def test_the_lease_of_a_killed_consumer_goes_to_the_next_one(address, start):
    with Queue(address) as queue:
        queue.put_many(["held", "got", "third"])
        holder = start("hold", address)
        holder.wait_for("holds")
        assert (queue.qsize(), queue.unfinished_tasks) == (1, 3)
        holder.kill()
        if isinstance(queue, Queue):
            assert queue.unfinished_tasks == 2
        else:
            wait_until(lambda: queue.unfinished_tasks == 2)
        lease = queue.lease()
        assert (lease.item, lease.attempts) == ("held", 1)
        lease.ack()
        assert queue.get() == "third"


def test_join_ends_when_the_consumer_it_waits_for_is_killed(address, start):
    with Queue(address) as queue:
        queue.put_many(["held", "got"])
        holder = start("hold", address)
        holder.wait_for("holds")
        waiter = start("wait", address, "join")
        waiter.wait_for("waits")
        wait_until(lambda: waiting_members(queue) == 1)
        holder.kill()
        with queue.lease():
            wait_until(lambda: waiting_members(queue) == 1)
        assert waiter.end() == 0
        assert waiter.wait_for("got")


# ------------------------------------------------------------------------------------------------------ wake-ups


def test_no_wake_up_is_lost(address, start):
    """Two processes per queue move balls around a circle of three queues with room for one: a lost wake-up would
    stop them.
    """
    moves = (5000 if isinstance(address, Path) else 1000) if PROVE else 200
    paths = [f"{address}-{number}" for number in range(3)]
    queues = [Queue(path, 1) for path in paths]
    for queue in queues:
        queue.put("ball")
    movers = [start("pass_on", path, target, moves) for path, target in pairwise([*paths, paths[0]]) for _ in "ab"]
    assert [member.end() for member in movers] == [0] * len(movers)
    assert [queue.get_many(9) for queue in queues] == [["ball"]] * len(queues)
    for queue in queues:
        queue.close()


@pytest.mark.parametrize("call", ["get", "put", "join"])
def test_a_blocked_call_uses_no_cpu_and_wakes_at_once(address, start, call):
    with Queue(address, 1) as queue:
        if call != "get":
            queue.put("first")
        waiter = start("wait", address, call)
        waiter.wait_for("waits")
        wait_until(lambda: waiting_members(queue) == 1)
        time.sleep(0.5)
        called_at = time.monotonic_ns()
        if call == "get":
            queue.put("item")
        elif call == "put":
            queue.get()
        else:
            queue.task_done()
        _, woken_at, cpu_s, *_ = waiter.wait_for("got")
        print(f"woke after {(int(woken_at) - called_at) / 1e6:.2f} ms, {float(cpu_s) * 1000:.2f} ms of CPU")
        assert int(woken_at) - called_at < PROMPT_S * 1e9
        assert float(cpu_s) < 0.3, "a busy loop would use all of the time"


@pytest.mark.parametrize("call", ["get", "put", "join"])
def test_ctrl_c_interrupts_a_waiting_call(address, start, call):
    with Queue(address, 1) as queue:
        if call != "get":
            queue.put("first")
        waiter = start("wait", address, call)
        waiter.wait_for("waits")
        wait_until(lambda: waiting_members(queue) == 1)
        waiter.interrupt()
        assert waiter.end() == 0


# ------------------------------------------------------------------------------------------------------ fork


def test_a_fork_while_threads_use_the_queue_loses_and_repeats_no_item(address, start):
    member = start("fork", address)
    assert member.wait_for("codes")[1:] == ["0"] * 6
    items = member.wait_for("items")[1:]
    assert member.end() == 0
    expected = [f"{child}.{item}" for child in range(6) for item in range(20)] + ["ball", "last"]
    assert items == sorted(expected)


def test_the_number_of_open_handles_is_bounded(path, monkeypatch):
    monkeypatch.setattr(folder_of_a_queue, "MEMBERS_MAX", 2)
    with Queue(path), Queue(path), pytest.raises(StateError, match="already open 2 times"):
        Queue(path)
    with Queue(path) as queue:
        queue.put("a")


# ------------------------------------------------------------------------------------------------------ hostile folders


@pytest.fixture
def used_folders(path, start) -> list[Path]:
    """A folder of a queue as a killed process leaves it, with SQLite's log, and one as the last close leaves it."""
    killed = path.with_name("killed")
    with Queue(path) as queue:
        queue.put_many([number, "x" * (number % 50) * 100] for number in range(300))
        queue.get_many(20)
        holder = start("hold", path)
        holder.wait_for("holds")
        shutil.copytree(path, killed, ignore=lambda *_: ["bells"])
        holder.kill()
    return [killed, path]


def damage(folder: Path, rng: random.Random) -> None:
    """Damage one file."""
    file = rng.choice(sorted(folder.glob("queue.db*")))
    data = bytearray(file.read_bytes())
    page = rng.randrange(0, len(data), 4096)
    match rng.randrange(6):
        case 0:
            for _ in range(rng.choice([1, 10, 1000])):
                data[rng.randrange(len(data))] = rng.randrange(256)
        case 1:
            for _ in range(20):
                data[min(page + rng.randrange(100), len(data) - 1)] = rng.randrange(256)
        case 2:
            data[page : page + 4096] = rng.randbytes(4096)
        case 3:
            del data[rng.randrange(len(data)) :]
        case 4:
            data[page : page + 4096] = bytes(4096)
        case 5:
            data[:] = rng.randbytes(5000)
    file.write_bytes(data)


REFUSALS = ("damaged", "cannot be", "something other", "this Lycosa reads up to", "was made ")


def test_damaged_folders_are_refused_and_never_crash_the_process(tmp_path, used_folders, start, rng):
    folders = tmp_path / "folders"
    for number in range(3000 if PROVE else 150):
        folder = folders / f"{number:05}"
        shutil.copytree(rng.choice(used_folders), folder, ignore=lambda *_: ["bells"])
        damage(folder, rng)
    member = start("survive", folders)
    lines = member.process.communicate(timeout=LONG_S * 10)[0].splitlines()
    assert member.process.returncode == 0, lines[-1]
    refused = [line for line in lines if line.startswith("refused")]
    assert 10 < len(refused) < len(lines)
    assert all(any(text in line for text in REFUSALS) for line in refused), refused


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: path.write_text("hello"), ForeignState),
        (lambda path: (path.mkdir(), (path / "thesis.txt").write_text("hello")), ForeignState),
        (lambda path: (path.mkdir(), (path / "queue.db").write_text("hello" * 5000)), StorageError),
        (lambda path: (path.mkdir(), (path / "queue.db").mkdir()), StorageError),
        (lambda path: (path.mkdir(), os.mkfifo(path / "queue.db")), StorageError),
        (lambda path: (path.mkdir(), (path / "lock").mkdir()), StorageError),
        (lambda path: (path.mkdir(), (path / "lock").symlink_to("elsewhere")), StorageError),
        (lambda path: (path.mkdir(), (path / "bells").write_text("")), StorageError),
        (lambda path: (path.mkdir(), (path / "bells").mkdir(), (path / "bells" / "1").mkdir()), StorageError),
    ],
)
def test_a_folder_that_is_not_a_queue_is_refused(path, make, error):
    make(path)
    with pytest.raises(error, match="queue"):
        Queue(path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ("PRAGMA application_id = 7", ForeignState, "something other than"),
        ("PRAGMA user_version = 9", NewerState, "version 9, this Lycosa reads up to 1"),
        ("DROP TABLE leased", StorageError, "tables of the queue are damaged"),
        ("CREATE TRIGGER t AFTER INSERT ON items BEGIN DELETE FROM items; END", StorageError, "tables of the queue"),
        ("DELETE FROM state", StorageError, "state of the queue is damaged"),
        ("UPDATE state SET value = 'text'", StorageError, "state of the queue is damaged"),
        ("UPDATE state SET value = x'90'", StorageError, "state of the queue is damaged"),
        ("DELETE FROM items", StorageError, "items are missing"),
        ("UPDATE items SET value = x'c1'", StorageError, "item 1 cannot be read"),
        ("UPDATE items SET value = 'text'", StorageError, "item 1 cannot be read"),
        ("UPDATE items SET value = x'd40963'", StorageError, "item 1 cannot be read"),
        ("UPDATE items SET value = CAST(x'b8' AS TEXT)", StorageError, "cannot be used"),
        (
            "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = sql || CAST(x'202d2db8' AS TEXT)",
            StorageError,
            "cannot be used|damaged",
        ),
    ],
)
def test_a_changed_database_is_refused(path, change, error, message):
    with Queue(path) as queue:
        queue.put("a")
    database = sqlite3.connect(path / "queue.db")
    database.executescript(change)
    database.close()
    with pytest.raises(error, match=message), Queue(path) as queue:
        queue.get()


def test_a_symlink_in_place_of_a_wakeup_pipe_is_not_written_to(path, tmp_path):
    (tmp_path / "precious").write_text("precious")
    with Queue(path) as queue, Queue(path) as other:
        (path / "bells" / "2").unlink()
        (path / "bells" / "2").symlink_to(tmp_path / "precious")
        with Queue(path):
            assert queue.empty()
        with pytest.raises(StorageError, match="its pipe in bells/ is gone"):
            other.get_nowait()
    assert (tmp_path / "precious").read_text() == "precious"


# ------------------------------------------------------------------------------------------------------ full disk


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A small file system in memory."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "lycosa-test", path]
    mounted = shutil.which("mount") and subprocess.run(command, capture_output=True, check=False).returncode == 0
    need("the right to mount a tmpfs (root)", bool(mounted))
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)


def test_a_full_disk_loses_nothing(disk, start):
    member = start("fill", disk / "queue")
    assert member.wait_for("error")[1] == "StorageFull"
    resize(disk, "2m")
    member.process.stdin.write("go\n")
    member.process.stdin.flush()
    wait_until(lambda: sum(line[0] == "error" for line in member.lines()) == 2)
    member.process.stdin.write("stop\n")
    member.process.stdin.flush()
    assert member.end() == 0
    resize(disk, "16m")
    put = [int(line[1]) for line in member.lines() if line[0] == "put"]
    assert len(put) > 200
    with Queue(disk / "queue") as queue:
        assert [int(item.split()[0]) for item in queue.get_many(10**6)] == put


def test_a_full_disk_is_reported_at_any_step_of_creating_a_queue(disk, start):
    """At every step the full disk raises an error, and never ends the process by a signal."""
    for pages in [*range(1, 40)] if PROVE else [1, 2, 3, 5, 8, 12, 16, 20, 24, 28, 34]:
        resize(disk, str(pages * os.sysconf("SC_PAGESIZE")))
        member = start("fill", disk / "queue")
        member.process.communicate("stop\n", timeout=LONG_S)
        assert (pages, member.process.returncode) == (pages, 0)
        assert member.wait_for("error")[1] == "StorageFull"
    resize(disk, "16m")
    with Queue(disk / "queue") as queue:
        queue.put("a")


def test_the_example_runs(tmp_path):
    command = [sys.executable, ROOT / "examples" / "queue_workers.py", tmp_path / "jobs"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LONG_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(line.partition(": ")[2] for line in done.stdout.splitlines()) == sorted(f"job {n}" for n in range(20))
