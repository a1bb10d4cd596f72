"""Processes that share a queue: `python -m tests.queues.e2e.queue_members ROLE FOLDER ...`. Each writes a log of
what it did.

A log line is written with a single `write`, so that it is complete even if the process is killed right afterwards.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from lycosa.core.errors import LycosaError
from lycosa.queue import LifoQueue, PriorityQueue, Queue

KINDS = (Queue, LifoQueue, PriorityQueue)
END = "end"


class Log:
    """The log of this process. Times in it are monotonic nanoseconds, comparable between processes."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, *words: object) -> None:
        os.write(self._handle, (" ".join(map(str, words)) + "\n").encode())


def produce(folder: str, path: str, name: str, kind: str) -> None:
    """Put numbered items for ever, one by one and in batches. Log each put that has returned."""
    log, number = Log(path), 0
    with KINDS[int(kind)](folder) as queue:
        while True:
            size = 1 if number % 3 else 4
            items = [f"{number + each}:{name}" for each in range(size)]
            if size == 1:
                queue.put(items[0])
            else:
                queue.put_many(items)
            log.write("put", *items)
            number += size


def consume(folder: str, path: str, _name: str, kind: str) -> None:
    """Lease items for ever. Log each leased item, and each ack that has returned.

    An ack is refused if this process was paused for so long that the other members took over its lease.
    """
    log = Log(path)
    with KINDS[int(kind)](folder) as queue:
        while True:
            lease = queue.lease()
            log.write("taken", lease.item, lease.attempts)
            try:
                lease.ack()
            except ValueError:
                log.write("late", lease.item)
            else:
                log.write("acked", lease.item)


def pass_on(folder: str, path: str, other: str, count: str) -> None:
    """Move items from one queue to another. A lost wake-up would stop the process."""
    log = Log(path)
    with Queue(folder) as source, Queue(other) as target:
        for _ in range(int(count)):
            target.put(source.get())
        log.write("passed", count)


def hold(folder: str, path: str) -> None:
    """Lease an item, get another one, and sleep."""
    log = Log(path)
    with Queue(folder) as queue:
        lease = queue.lease()
        log.write("holds", lease.item, queue.get())
        signal.pause()


def late(folder: str, path: str) -> None:
    """Lease an item, and end the lease only after a line on standard input, which is too late; then put an item."""
    log = Log(path)
    with Queue(folder) as queue:
        lease = queue.lease()
        log.write("holds", lease.item)
        sys.stdin.readline()
        for end in (lease.ack, lease.nack):
            try:
                end()
            except ValueError:
                log.write("refused")
        queue.put("continued")


def wait(folder: str, path: str, call: str) -> None:
    """Block in a call. Log how it ended, and the CPU seconds it took."""
    log = Log(path)
    with Queue(folder) as queue:
        log.write("waits")
        started = time.process_time()
        try:
            item = getattr(queue, call)(*(["x"] if call == "put" else []))
            log.write("got", time.monotonic_ns(), time.process_time() - started, item)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # it may be sent again
            log.write("interrupted")
        log.write("size", queue.qsize())


def fork(folder: str, path: str) -> None:
    """Fork while other threads use the queue. Parent and children then use the same object."""
    log, stop = Log(path), threading.Event()
    children, each = 6, 20

    def busy() -> None:
        while not stop.is_set():
            queue.put(queue.get())

    with Queue(folder) as queue:
        queue.put("ball")
        lease = queue.lease()
        queue.put("ball")
        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        numbers = []
        for child in range(children):
            number = os.fork()
            if not number:
                try:
                    lease.ack()
                except ValueError:
                    queue.put_many(f"{child}.{item}" for item in range(each))
                os._exit(0)
            numbers.append(number)
        codes = [os.waitpid(number, 0)[1] for number in numbers]
        stop.set()
        queue.put("last")
        for thread in threads:
            thread.join()
        lease.ack()
        log.write("codes", *codes)
        log.write("items", *sorted(queue.get_many(1000)))


def survive(folders: str, _path: str) -> None:
    """Use queues in damaged folders. Only errors of Lycosa may be raised."""
    for folder in sorted(Path(folders).iterdir()):
        print(folder.name, flush=True)
        try:
            with Queue(folder) as queue:
                queue.put({"new": "item"})
                queue.lease(block=False).nack()
                queue.put_many(["x" * 3000] * 5)
                while queue.qsize():
                    queue.get_many(7)
        except LycosaError as error:
            print("refused", type(error).__name__, str(error).replace("\n", " "), flush=True)


def fill(folder: str, path: str) -> None:
    """Put until there is no space, and log that; continue after a line on standard input."""
    log, number = Log(path), 0
    try:
        with Queue(folder) as queue:
            while True:
                try:
                    queue.put(f"{number} " + "x" * 500)
                    log.write("put", number)
                    number += 1
                except LycosaError as error:
                    log.write("error", type(error).__name__, error)
                    if sys.stdin.readline() != "go\n":
                        return
    except LycosaError as error:
        log.write("error", type(error).__name__, error)


ROLES = {role.__name__: role for role in (produce, consume, pass_on, hold, late, wait, fork, survive, fill)}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
