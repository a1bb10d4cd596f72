"""The contract of the queue port (C4): our queues behave like Python's `queue.Queue`, on disk, on Redis and in
memory.

The first part also runs on `queue.Queue` itself, the oracle: a test that fails there is wrong. `two_handles` puts
through one handle of a queue and gets through another, as two processes do. `stored` queues are in a folder or on a
Redis server.
"""

from __future__ import annotations

import pickle
import queue
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import chain
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from lycosa.core.errors import StorageError, UsageError
from lycosa.queue import Empty, Full, LifoQueue, MemoryQueue, PriorityQueue, Queue, ShutDown
from lycosa.queues.blocking import BlockingQueue
from lycosa.queues.order import Order, sort_key

SHORT_S = 0.02
LONG_S = 20.0
KINDS = {Order.FIFO: Queue, Order.LIFO: LifoQueue, Order.PRIORITY: PriorityQueue}
PORT = [name for name in dir(MemoryQueue) if not name.startswith("_")]


class TwoHandles:
    """One queue with two handles: items are put through one, all other calls go through the other."""

    def __init__(self, kind: type[Queue], path, maxsize: int, **options: Any) -> None:
        self._putter, self._getter = kind(path, maxsize, **options), kind(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._putter if name.startswith("put") else self._getter, name)

    def close(self) -> None:
        self._putter.close()
        self._getter.close()


def oracle(order: Order, path, maxsize: int) -> Any:
    return getattr(queue, order.value)(maxsize)


def in_memory(order: Order, path, maxsize: int, **options: Any) -> Any:
    return MemoryQueue(maxsize, order=order, **options)


def embedded(order: Order, path, maxsize: int, **options: Any) -> Any:
    return KINDS[order](path, maxsize, **options)


def two_handles(order: Order, path, maxsize: int, **options: Any) -> Any:
    return TwoHandles(KINDS[order], path, maxsize, **options)


def on_redis(order: Order, path, maxsize: int, **options: Any) -> Any:
    return KINDS[order](path, maxsize, **options)


def two_on_redis(order: Order, path, maxsize: int, **options: Any) -> Any:
    return TwoHandles(KINDS[order], path, maxsize, **options)


def on_valkey(order: Order, path, maxsize: int, **options: Any) -> Any:
    return KINDS[order](path, maxsize, **options)


def on_a_cluster(order: Order, path, maxsize: int, **options: Any) -> Any:
    return KINDS[order](path, maxsize, **options)


REDIS = [
    *(pytest.param(each, marks=pytest.mark.redis) for each in (on_redis, two_on_redis)),
    pytest.param(on_valkey, marks=pytest.mark.valkey),
    pytest.param(on_a_cluster, marks=[pytest.mark.redis, pytest.mark.prove]),
]
OURS = [in_memory, embedded, two_handles, *REDIS]


@pytest.fixture
def make(request, tmp_path):
    """Create queues, each in its own folder or under its own name, and close them afterwards."""
    queues = []
    servers = {on_redis: "redis", two_on_redis: "redis", on_valkey: "valkey", on_a_cluster: "cluster"}
    server = request.getfixturevalue(servers[request.param]) if request.param in servers else None

    def make_one(maxsize: int = 0, order: Order = Order.FIFO, **options: Any) -> Any:
        path = new_url(server) if server else tmp_path / f"queue {len(queues)}"
        queues.append(request.param(order, path, maxsize, **options))
        return queues[-1]

    yield make_one
    for each in queues:
        if hasattr(each, "close"):
            each.close()


every = pytest.mark.parametrize("make", [oracle, *OURS], indirect=True)
ours = pytest.mark.parametrize("make", OURS, indirect=True)
stored = pytest.mark.parametrize("make", [embedded, two_handles, *REDIS], indirect=True)


def new_url(server) -> str:
    return f"{server.url}?queue={uuid4().hex}"


def start(call, *arguments) -> tuple[threading.Thread, list[Any]]:
    """Run a call in a thread. Return the thread, and a list that will hold the result, or the class of the error."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(call(*arguments))
        except Exception as error:
            outcome.append(type(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def ends(thread: threading.Thread) -> bool:
    thread.join(LONG_S)
    return not thread.is_alive()


def blocks(thread: threading.Thread) -> bool:
    thread.join(0.05)
    return thread.is_alive()


# ------------------------------------------------------------------------------------ behaviour shared with queue.Queue


@every
def test_fifo_queue_returns_the_oldest_item_first(make):
    q = make()
    for number in range(5):
        q.put(number)
    assert [q.get() for _ in range(5)] == [0, 1, 2, 3, 4]


@every
def test_lifo_queue_returns_the_newest_item_first(make):
    q = make(order=Order.LIFO)
    for number in range(3):
        q.put(number)
    assert q.get() == 2
    q.put(9)
    assert [q.get() for _ in range(3)] == [9, 1, 0]


@every
@pytest.mark.parametrize(
    "items",
    [[3, 1.5, 2, -1, 1e300, -(2**62), 0.0], ["b", "a", "ä", ""], [(2, "x"), (1, "z"), (3, "y")], [[2, 1], [1, 2]]],
)
def test_priority_queue_returns_the_lowest_priority_first(make, items):
    q = make(order=Order.PRIORITY)
    for item in items:
        q.put(item)
    assert [q.get() for _ in items] == sorted(items)


@ours
def test_numbers_are_before_texts_in_a_priority_queue(make):
    q = make(order=Order.PRIORITY)
    for item in ("a", 2, "", 1.5):
        q.put(item)
    assert [q.get() for _ in range(4)] == [1.5, 2, "", "a"]


@every
def test_qsize_empty_and_full_follow_the_number_of_items(make):
    q = make(2)
    assert (q.qsize(), q.empty(), q.full(), q.maxsize) == (0, True, False, 2)
    q.put("a")
    assert (q.qsize(), q.empty(), q.full()) == (1, False, False)
    q.put("b")
    assert (q.qsize(), q.empty(), q.full()) == (2, False, True)
    q.get()
    assert (q.qsize(), q.empty(), q.full()) == (1, False, False)


@every
@pytest.mark.parametrize("maxsize", [0, -1])
def test_maxsize_of_zero_or_less_means_no_bound(make, maxsize):
    q = make(maxsize)
    for number in range(20):
        q.put_nowait(number)
    assert not q.full()


@every
def test_get_from_an_empty_queue_raises_empty(make):
    q = make()
    with pytest.raises(queue.Empty):
        q.get_nowait()
    with pytest.raises(queue.Empty):
        q.get(block=False, timeout=-1)
    with pytest.raises(queue.Empty):
        q.get(False)
    started = time.monotonic()
    with pytest.raises(queue.Empty):
        q.get(timeout=SHORT_S)
    assert time.monotonic() - started >= SHORT_S
    with pytest.raises(queue.Empty):
        q.get(timeout=0)


@every
def test_put_into_a_full_queue_raises_full(make):
    q = make(1)
    q.put("a")
    with pytest.raises(queue.Full):
        q.put_nowait("b")
    with pytest.raises(queue.Full):
        q.put("b", block=False, timeout=-1)
    started = time.monotonic()
    with pytest.raises(queue.Full):
        q.put("b", timeout=SHORT_S)
    assert time.monotonic() - started >= SHORT_S
    assert [q.get(), q.qsize()] == ["a", 0]


@every
def test_a_negative_timeout_is_refused_if_the_call_may_wait(make):
    bounded, unbounded = make(1), make()
    with pytest.raises(ValueError, match="'timeout' must be a non-negative number"):
        bounded.put("a", timeout=-1)
    with pytest.raises(ValueError, match="'timeout' must be a non-negative number"):
        bounded.get(timeout=-1)
    assert bounded.qsize() == 0
    unbounded.put("a", timeout=-1)
    assert unbounded.get() == "a"


@every
def test_get_waits_for_an_item(make):
    q = make()
    thread, outcome = start(q.get)
    assert blocks(thread)
    q.put("late")
    assert ends(thread)
    assert outcome == ["late"]


@every
def test_get_with_a_timeout_returns_as_soon_as_there_is_an_item(make):
    q = make()
    thread, outcome = start(q.get, True, LONG_S)
    assert blocks(thread)
    q.put(None)
    assert ends(thread)
    assert outcome == [None]


@every
def test_put_waits_for_space(make):
    q = make(1)
    q.put("first")
    thread, outcome = start(q.put, "second")
    assert blocks(thread)
    assert q.get() == "first"
    assert ends(thread)
    assert (outcome, q.get()) == ([None], "second")


@every
def test_join_waits_for_every_task(make):
    q = make()
    q.join()
    for number in range(3):
        q.put(number)
    thread, _ = start(q.join)
    for _ in range(3):
        assert blocks(thread)
        q.get()
        assert blocks(thread)
        q.task_done()
    assert ends(thread)


@every
def test_too_many_calls_of_task_done_raise(make):
    q = make()
    with pytest.raises(ValueError, match=r"task_done\(\) called too many times"):
        q.task_done()
    q.put("a")
    assert q.unfinished_tasks == 1
    q.task_done()
    with pytest.raises(ValueError, match=r"task_done\(\) called too many times"):
        q.task_done()
    assert (q.get(), q.unfinished_tasks) == ("a", 0)


@every
def test_many_threads_get_each_item_once(make):
    q, count, end = make(10), 400, -1

    def consume() -> list[int]:
        return list(iter(q.get, end))

    def produce(first: int) -> None:
        for number in range(first, count, 4):
            q.put(number)

    with ThreadPoolExecutor(8) as pool:
        consumers = [pool.submit(consume) for _ in range(4)]
        for producer in [pool.submit(produce, first) for first in range(4)]:
            producer.result(LONG_S)
        for _ in consumers:
            q.put(end)
        received = [consumer.result(LONG_S) for consumer in consumers]
    assert Counter(chain.from_iterable(received)) == Counter(range(count))
    for part in received:
        for first in range(4):
            of_producer = [number for number in part if number % 4 == first]
            assert of_producer == sorted(of_producer)


@every
def test_falsy_items_are_returned(make):
    q = make()
    for item in (None, 0, "", False, [], {}):
        q.put(item)
    assert [q.get() for _ in range(6)] == [None, 0, "", False, [], {}]


# ----------------------------------------------------------------------------------------------- shutdown (Python 3.13)

with_shutdown = pytest.mark.parametrize(
    "make", [*([oracle] if sys.version_info >= (3, 13) else []), *OURS], indirect=True
)


@with_shutdown
def test_remaining_items_can_be_taken_after_a_shutdown(make):
    q = make()
    q.put("a")
    q.shutdown()
    q.shutdown()
    with pytest.raises(ShutDown):
        q.put("b")
    with pytest.raises(ShutDown):
        q.put_nowait("b")
    assert q.get() == "a"
    for call in (q.get, q.get_nowait, lambda: q.get(timeout=SHORT_S)):
        with pytest.raises(ShutDown):
            call()
    q.task_done()
    q.join()


@with_shutdown
def test_an_immediate_shutdown_drops_the_items(make):
    q = make()
    for number in range(3):
        q.put(number)
    q.get()
    thread, _ = start(q.join)
    assert blocks(thread)
    q.shutdown(immediate=True)
    assert (q.qsize(), q.unfinished_tasks) == (0, 1)
    q.task_done()
    assert ends(thread)


@with_shutdown
def test_a_shutdown_wakes_waiting_threads(make):
    bounded, empty = make(1), make()
    bounded.put("a")
    putting, put_outcome = start(bounded.put, "b")
    getting, get_outcome = start(empty.get)
    assert blocks(putting)
    assert blocks(getting)
    bounded.shutdown()
    empty.shutdown()
    assert ends(putting)
    assert ends(getting)
    assert (put_outcome, get_outcome) == ([ShutDown], [ShutDown])


# -------------------------------------------------------------------------------------------------------------- batches


@ours
def test_batches_are_put_and_taken(make):
    q = make()
    q.put_many(range(10))
    q.put_many([])
    assert q.get_many(3) == [0, 1, 2]
    assert q.get_many(100) == [3, 4, 5, 6, 7, 8, 9]
    with pytest.raises(Empty):
        q.get_many(1, block=False)
    q.task_done(10)
    with pytest.raises(ValueError, match="too many times"):
        q.task_done()


@ours
@pytest.mark.parametrize("limit", [0, -1])
def test_a_batch_limit_below_one_is_refused(make, limit):
    with pytest.raises(ValueError, match="'limit'"):
        make().get_many(limit)


@ours
def test_a_batch_is_put_completely_or_not_at_all(make):
    q = make(3)
    q.put_many("ab")
    with pytest.raises(Full):
        q.put_many("cd", block=False)
    assert q.qsize() == 2
    thread, _ = start(q.put_many, "cd")
    assert blocks(thread)
    assert q.get() == "a"
    assert ends(thread)
    assert q.get_many(9) == ["b", "c", "d"]
    with pytest.raises(ValueError, match="never fit"):
        q.put_many("efgh")


@ours
def test_a_smaller_put_is_not_blocked_by_a_waiting_larger_one(make):
    q = make(3)
    q.put_many("abc")
    large, _ = start(q.put_many, "xyz")
    small, _ = start(q.put, "d")
    assert blocks(large)
    assert blocks(small)
    q.get()
    assert ends(small)
    assert blocks(large)
    q.get_many(3)
    assert ends(large)


@ours
def test_a_lazy_bound_accepts_a_batch_while_one_place_is_free(make):
    """C4: the bound is exceeded by the rest of a single batch at most, also with several producers."""
    q = make(3, lazy=True)
    q.put_many("abcde")
    assert (q.qsize(), q.full(), q.maxsize) == (5, True, 3)
    with pytest.raises(Full):
        q.put_nowait("f")
    with pytest.raises(Full):
        q.put_many("fg", block=False)
    thread, _ = start(q.put_many, "fghij")
    q.get_many(2)
    assert blocks(thread), "the queue still has three items, its bound"
    assert q.get() == "c"
    assert ends(thread)
    assert q.get_many(9) == ["d", "e", "f", "g", "h", "i", "j"]


@ours
def test_waiting_batches_with_a_lazy_bound_are_put_one_at_a_time(make):
    q = make(2, lazy=True)
    q.put_many("ab")
    waiting = [start(q.put_many, batch)[0] for batch in ("cdef", "ghij")]
    for thread in waiting:
        assert blocks(thread)
    q.get()
    deadline = time.monotonic() + LONG_S
    while all(thread.is_alive() for thread in waiting) and time.monotonic() < deadline:
        time.sleep(SHORT_S)
    assert [blocks(thread) for thread in waiting].count(True) == 1
    assert q.qsize() == 5
    q.get_many(4)
    assert all(ends(thread) for thread in waiting)
    assert q.qsize() == 5


# --------------------------------------------------------------------------------------------------------------- leases


@ours
def test_a_lease_ends_with_an_ack(make):
    q = make()
    q.put("a")
    with q.lease() as item:
        assert (item, q.qsize(), q.unfinished_tasks) == ("a", 0, 1)
    assert (q.qsize(), q.unfinished_tasks) == (0, 0)
    q.join()


@ours
def test_an_exception_returns_the_leased_item_to_its_place(make):
    q = make()
    q.put_many("abc")
    with pytest.raises(KeyError), q.lease():
        raise KeyError
    lease = q.lease()
    assert (lease.item, lease.attempts, q.qsize()) == ("a", 1, 2)
    lease.nack()
    assert q.get_many(9) == ["a", "b", "c"]


@ours
def test_an_ended_lease_cannot_be_ended_again(make):
    q = make()
    q.put("a")
    lease = q.lease()
    lease.nack()
    second = q.lease()
    second.ack()
    for call in (lease.ack, second.ack, second.nack):
        with pytest.raises(ValueError, match="ended"):
            call()
    assert q.qsize() == 0


@ours
def test_a_lease_waits_like_get(make):
    q = make()
    with pytest.raises(Empty):
        q.lease(block=False)
    with pytest.raises(Empty):
        q.lease(timeout=SHORT_S)
    with pytest.raises(ValueError, match="timeout"):
        q.lease(timeout=-1)


@ours
def test_a_returned_item_wakes_a_waiting_thread(make):
    q = make()
    q.put("a")
    lease = q.lease()
    thread, outcome = start(q.get)
    assert blocks(thread)
    lease.nack()
    assert ends(thread)
    assert outcome == ["a"]


@ours
@pytest.mark.parametrize("order", [Order.LIFO, Order.PRIORITY])
def test_a_returned_item_comes_first_again_in_every_order(make, order):
    q = make(order=order)
    q.put_many([3, 1, 2])
    first = q.lease()
    second = q.lease()
    first.nack()
    assert q.get() == first.item
    second.nack()
    assert q.get() == second.item


@ours
def test_items_of_equal_priority_keep_their_order(make):
    q = make(order=Order.PRIORITY)
    q.put_many([(1, "b"), (0, "x"), (1, "a"), (1, {})])
    assert q.get_many(9) == [(0, "x"), (1, "b"), (1, "a"), (1, {})]


@ours
@pytest.mark.parametrize("item", [None, {}, (), (None, 1), float("nan"), 1 << 63, b"x"])
def test_an_item_without_a_priority_is_refused(make, item):
    q = make(order=Order.PRIORITY)
    with pytest.raises(TypeError, match="is not a priority"):
        q.put(item)


def test_sort_keys_have_the_order_of_the_priorities():
    large = 1 << 53
    numbers = [
        0,
        0.5,
        1,
        3.5,
        1e-300,
        1e300,
        float("inf"),
        large,
        large + 1,
        large + 2,
        float(large),
        2**62 + 1,
        2**63 - 1,
    ]
    numbers += [-number for number in numbers]
    texts = ["", "a", "a\0", "a\0b", "ab", "\uffff", "\U0001f577"]
    for kind in (numbers, texts):
        for first in kind:
            for second in kind:
                assert (sort_key(first) < sort_key(second)) == (first < second), (first, second)
                assert (sort_key(first) + b"9" < sort_key(second) + b"1") == (first < second), (first, second)
    assert max(map(sort_key, numbers)) < min(map(sort_key, texts))


# ---------------------------------------------------------------------------------------------------------------- close


@ours
def test_a_closed_queue_refuses_calls_and_does_not_affect_others(make):
    q = make()
    q.put("a")
    thread, outcome = start(make().get)
    q.close()
    q.close()
    for call in (lambda: q.put("b"), q.get, q.lease):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert blocks(thread)
    assert outcome == []


@ours
def test_close_wakes_waiting_threads(make):
    q = make()
    threads = [start(q.get) for _ in range(3)]
    for thread, _ in threads:
        assert blocks(thread)
    q.close()
    for thread, outcome in threads:
        assert ends(thread)
        assert outcome == [ValueError]


@ours
def test_the_context_manager_closes_the_queue(make):
    new = make()
    if hasattr(type(new), "__enter__"):
        with new as q:
            q.put("a")
        with pytest.raises(ValueError, match="closed"):
            q.put("b")


# --------------------------------------------------------------------------------------------------------------- stored


@pytest.fixture(params=["folder", pytest.param("redis", marks=pytest.mark.redis)])
def path(request, tmp_path):
    return tmp_path / "queue" if request.param == "folder" else new_url(request.getfixturevalue("redis"))


def test_items_survive_closing_and_reopening(path):
    with Queue(path) as q:
        q.put_many("abc")
        q.get()
        lease = q.lease()
    with pytest.raises(ValueError, match="closed"):
        lease.ack()
    with Queue(path) as q:
        assert (q.qsize(), q.unfinished_tasks) == (2, 2)
        assert q.get_many(9) == ["b", "c"]


@pytest.mark.parametrize("kind", KINDS.values())
def test_close_returns_leased_items(path, kind):
    with kind(path) as owner, kind(path) as other:
        owner.put(7)
        owner.lease()
        thread, outcome = start(other.get)
        assert blocks(thread)
        owner.close()
        assert ends(thread)
        assert outcome == [7]


def test_items_taken_by_a_closed_handle_no_longer_count_as_tasks(path):
    with Queue(path) as owner, Queue(path) as other:
        owner.put_many("ab")
        assert [owner.get(), other.get()] == ["a", "b"]
        thread, _ = start(other.join)
        other.task_done()
        assert blocks(thread)
        owner.close()
        assert ends(thread)
        with pytest.raises(ValueError, match="too many"):
            other.task_done()


def test_task_done_may_be_called_through_another_handle(path):
    with Queue(path) as owner, Queue(path) as other:
        owner.put_many("ab")
        owner.get()
        other.task_done()
        assert owner.unfinished_tasks == 1
        owner.close()
        assert other.unfinished_tasks == 1


def test_all_handles_share_the_bound(path):
    with Queue(path, 1) as first, Queue(path) as second:
        first.put("a")
        with pytest.raises(Full):
            second.put_nowait("b")
        thread, _ = start(first.put, "b")
        assert blocks(thread)
        second.maxsize = 2
        assert ends(thread)
        assert (first.maxsize, first.full()) == (2, True)
    with Queue(path) as q:
        assert q.maxsize == 2
    with Queue(path, 0) as q:
        assert q.maxsize == 0


def test_a_shutdown_ends_when_all_handles_are_closed(path):
    with Queue(path) as q, Queue(path) as other:
        q.put("a")
        q.shutdown()
        q.close()
        with Queue(path) as third, pytest.raises(ShutDown):
            third.put("b")
        other.close()
    with Queue(path) as q:
        q.put("b")
        assert q.get_many(9) == ["a", "b"]


ITEMS = [
    None,
    True,
    0,
    -(2**63),
    2**64 - 1,
    2**64,
    -(2**63) - 1,
    2**5000,
    1.5,
    float("inf"),
    "",
    "\0 ☃ 𝄞",
    b"\x00\xff",
    [],
    [1, [2, (3, [4])]],
    (),
    (1, "a", (None,)),
    {},
    {"a": {"b": [1]}, 1: 2, None: 3, b"x": 4},
    {(1, 2): "tuple", 2**70: "large", True: "bool"},
    set(),
    {1, "a", (2, 3)},
    datetime(2026, 2, 3, 4, 5, 6, 789),  # noqa: DTZ001  it has to come back like this
    datetime(2026, 2, 3, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
]


def with_types(item: Any) -> Any:
    """Return the item with the types of all its parts."""
    if isinstance(item, list | tuple):
        return type(item), [with_types(each) for each in item]
    if isinstance(item, dict):
        return dict, [(with_types(key), with_types(value)) for key, value in item.items()]
    return type(item), item


@stored
@pytest.mark.parametrize("item", ITEMS, ids=lambda item: type(item).__name__)
def test_items_are_returned_unchanged(make, item):
    q = make()
    q.put(item)
    assert with_types(q.get()) == with_types(item)


@dataclass(frozen=True)
class Job:
    url: str
    found: datetime
    tags: tuple[str, ...] = ()


class Task(msgspec.Struct):
    priority: int
    payload: dict[str, int] = {}


class DictSubclass(dict):
    pass


LOOP: list[Any] = []
LOOP.append(LOOP)


@stored
@pytest.mark.parametrize(
    "item", [Job("u", datetime.now(UTC)), object(), DictSubclass(), [DictSubclass()], 1j, {1: bytearray()}, "\ud800"]
)
def test_an_item_that_cannot_be_stored_is_refused_with_advice(make, item):
    q = make()
    with pytest.raises(TypeError, match=r"type=\.\.\. for a dataclass or Struct, or serializer='pickle'"):
        q.put_many(["before", item])
    assert q.qsize() == 0


@stored
def test_an_item_that_contains_itself_is_refused(make):
    with pytest.raises(TypeError, match="contains itself"):
        make().put(LOOP)


@pytest.mark.parametrize(
    ("type_", "item"), [(Job, Job("u", datetime(2026, 1, 1, tzinfo=UTC), ("a",))), (Task, Task(1)), (int | None, None)]
)
def test_items_of_a_given_type_are_returned_unchanged(path, type_, item):
    with Queue(path, type=type_) as q:
        q.put(item)
        assert q.get() == item


def test_an_item_of_another_type_is_not_taken(path):
    with Queue(path, type=dict) as q:
        q.put({"a": 1})
    with Queue(path, type=Task) as q, pytest.raises(StorageError, match="item 1 cannot be read"):
        q.get()
    with Queue(path, type=dict) as q:
        assert q.get() == {"a": 1}


def test_the_priority_of_a_struct_is_its_first_field(path):
    with PriorityQueue(path, type=Task) as q:
        q.put_many([Task(2), Task(1, {"a": 1})])
        assert q.get() == Task(1, {"a": 1})


def test_pickle_is_available_as_a_serializer(path):
    with Queue(path, serializer="pickle") as q:
        q.put(DictSubclass(a=1j))
        assert q.get() == {"a": 1j}
        with pytest.raises(TypeError, match="cannot store function"):
            q.put(lambda: 1)


@pytest.mark.parametrize("make", [in_memory, embedded, pytest.param(on_redis, marks=pytest.mark.redis)], indirect=True)
@pytest.mark.parametrize("wrong", ["3", 1.5, True, 1 << 63, -(1 << 63)])
def test_an_invalid_bound_is_refused_and_changes_nothing(make, wrong):
    q = make(2)
    with pytest.raises(UsageError, match=r"maxsize=.*: write a whole number, 0 for no limit"):
        q.maxsize = wrong
    with pytest.raises(UsageError, match=r"maxsize=.*: write a whole number, 0 for no limit"):
        make(wrong)
    q.put("a")
    assert (q.maxsize, q.get()) == (2, "a")


@pytest.mark.parametrize("scheme", ["rdis", "http"])
def test_an_unknown_url_scheme_is_not_taken_for_a_folder(tmp_path, monkeypatch, scheme):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"^{scheme}://host/0 is not a queue: give a folder, or redis://"):
        Queue(f"{scheme}://:secret@host/0?queue=jobs")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"serializer": "json"}, {"serializer": "pickle", "type": Task}])
def test_an_unknown_serializer_is_refused(path, options):
    with pytest.raises(UsageError, match="write 'msgpack', or 'pickle'"):
        Queue(path, **options)


@pytest.mark.parametrize(
    ("first", "second"),
    [({}, {"serializer": "pickle"}), ({"serializer": "pickle"}, {}), ({}, {"type": Task}), ({"type": Task}, {})],
)
def test_a_queue_cannot_be_opened_with_another_serializer(path, first, second):
    Queue(path, **first).close()
    with pytest.raises(UsageError, match="was made with serializer"):
        Queue(path, **second)
    Queue(path, **first).close()


def test_a_queue_cannot_be_opened_in_another_order(path):
    PriorityQueue(path).close()
    with pytest.raises(UsageError, match="was made as a PriorityQueue"):
        Queue(path)


def test_a_pickled_queue_opens_the_same_queue(path):
    with Queue(path, 5, lazy=True) as q, pickle.loads(pickle.dumps(q)) as copy:
        q.put("a")
        assert (type(copy), copy.maxsize, copy.lazy, copy.get()) == (type(q), 5, True, "a")


def test_a_dropped_queue_is_closed_with_a_warning(path):
    with Queue(path) as q:
        q.put("a")
        leases = [Queue(path).lease()]
        with pytest.warns(ResourceWarning, match="was not closed"):
            leases.clear()
        assert q.get() == "a"


def test_a_signal_handler_may_use_a_waiting_queue(path):
    """The handler runs in the thread that waits."""

    def on_alarm(action: Callable[[], object]) -> None:
        def handle(*_: object) -> None:
            try:
                action()
            except RuntimeError:  # on a busy machine the thread is not waiting yet, but within its call
                signal.setitimer(signal.ITIMER_REAL, 0.05)

        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.05)

    old_handler = signal.getsignal(signal.SIGALRM)
    with Queue(path) as q:
        on_alarm(lambda: q.put("alarm"))
        assert q.get(timeout=LONG_S) == "alarm"
        on_alarm(q.close)
        with pytest.raises(ValueError, match="closed"):
            q.get(timeout=LONG_S)
    signal.signal(signal.SIGALRM, old_handler)


def test_a_queue_may_be_used_within_its_own_call_before_the_change_starts(tmp_path):
    with Queue(tmp_path / "queue") as q:

        def items():
            yield 1
            q.put(0)

        q.put_many(items())
        assert q.get_many(9) == [0, 1]
        with pytest.raises(RuntimeError, match="inside one of its own calls"), q._folder.change():
            q.put(2)
        assert q.qsize() == 0


def test_the_port_has_exactly_the_methods_of_a_queue_in_memory():
    assert {name for name in dir(BlockingQueue) if not name.startswith("_")} == set(PORT)
