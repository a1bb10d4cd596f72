"""Processes that share a queue: `python -m tests.queues.e2e.queue_members ROLE FOLDER ...`. What each did is in its
diary.

A line is written to the diary with one `write`, so it is there when the process is killed right afterwards.
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


class Diary:
    """Lines of this process, and when: monotonic nanoseconds, the same clock for all."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, *words: object) -> None:
        os.write(self._handle, (" ".join(map(str, words)) + "\n").encode())


def produce(folder: str, diary: str, name: str, kind: str) -> None:
    """Put numbered items for ever, one by one and in batches; note what `put` returned from."""
    note, number = Diary(diary), 0
    with KINDS[int(kind)](folder) as queue:
        while True:
            size = 1 if number % 3 else 4
            items = [f"{number + each}:{name}" for each in range(size)]
            if size == 1:
                queue.put(items[0])
            else:
                queue.put_many(items)
            note.write("put", *items)
            number += size


def consume(folder: str, diary: str, _name: str, kind: str) -> None:
    """Lease items for ever; note what is taken, and what `ack` returned from."""
    note = Diary(diary)
    with KINDS[int(kind)](folder) as queue:
        while True:
            lease = queue.lease()
            note.write("taken", lease.item, lease.attempts)
            lease.ack()
            note.write("acked", lease.item)


def pass_on(folder: str, diary: str, other: str, count: str) -> None:
    """Get from one queue and put into another: a lost wake-up is a stand-still."""
    note = Diary(diary)
    with Queue(folder) as source, Queue(other) as target:
        for _ in range(int(count)):
            target.put(source.get())
        note.write("passed", count)


def hold(folder: str, diary: str) -> None:
    """Lease an item, get another, and sleep."""
    note = Diary(diary)
    with Queue(folder) as queue:
        lease = queue.lease()
        note.write("holds", lease.item, queue.get())
        signal.pause()


def late(folder: str, diary: str) -> None:
    """Lease an item and end the lease when told to, which is too late; then go on."""
    note = Diary(diary)
    with Queue(folder) as queue:
        lease = queue.lease()
        note.write("holds", lease.item)
        sys.stdin.readline()
        for end in (lease.ack, lease.nack):
            try:
                end()
            except ValueError:
                note.write("refused")
        queue.put("on it goes")


def wait(folder: str, diary: str, call: str) -> None:
    """Block in a call; note how it ended and the CPU seconds it took."""
    note = Diary(diary)
    with Queue(folder) as queue:
        note.write("waits")
        began = time.process_time()
        try:
            item = getattr(queue, call)(*(["x"] if call == "put" else []))
            note.write("got", time.monotonic_ns(), time.process_time() - began, item)
        except KeyboardInterrupt:
            note.write("interrupted")
        note.write("size", queue.qsize())


def fork(folder: str, diary: str) -> None:
    """Fork while other threads use the queue; parent and children use the same object afterwards."""
    note, stop = Diary(diary), threading.Event()
    children, each = 6, 20

    def busy() -> None:
        while not stop.is_set():
            queue.put(queue.get())

    with Queue(folder) as queue:
        queue.put("ball")
        held = queue.lease()
        queue.put("ball")
        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        numbers = []
        for child in range(children):
            number = os.fork()
            if not number:
                try:
                    held.ack()
                except ValueError:
                    queue.put_many(f"{child}.{item}" for item in range(each))
                os._exit(0)
            numbers.append(number)
        codes = [os.waitpid(number, 0)[1] for number in numbers]
        stop.set()
        queue.put("last")
        for thread in threads:
            thread.join()
        held.ack()
        note.write("codes", *codes)
        note.write("items", *sorted(queue.get_many(1000)))


def survive(folders: str, _diary: str) -> None:
    """Use queues in folders that may hold anything: an error of ours is fine."""
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


def fill(folder: str, diary: str) -> None:
    """Put until there is no room, then say so; go on when there is."""
    note, number = Diary(diary), 0
    try:
        with Queue(folder) as queue:
            while True:
                try:
                    queue.put(f"{number} " + "x" * 500)
                    note.write("put", number)
                    number += 1
                except LycosaError as error:
                    note.write("error", type(error).__name__, error)
                    if sys.stdin.readline() != "go\n":
                        return
    except LycosaError as error:
        note.write("error", type(error).__name__, error)


ROLES = {role.__name__: role for role in (produce, consume, pass_on, hold, late, wait, fork, survive, fill)}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
