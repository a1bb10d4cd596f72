"""How fast is a durable queue? `lycosa.queue.Queue` against queue.Queue, multiprocessing.Queue and persist-queue.

    python bench/queues.py [--items N] [--write]

Each contender puts and gets the same small dict. Columns "put/s" and "get/s": one process puts all items, then gets
them all. Column "from one to another/s": one process puts while another gets, until it has the last item; a queue that
processes do not share is measured with two threads. A batch has 100 items. Medians of five rounds, each in a fresh
folder. `--write` puts the table into docs/queue.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from lycosa.queue import Queue

ITEM = {"url": "https://www.example.org/library/queue.html", "depth": 3, "priority": 0}
BATCH = 100
ROUNDS = 5
PAGE = Path(__file__).parent.parent / "docs" / "queue.md"
BEGIN, END = "<!-- bench/queues.py -->\n", "<!-- end -->\n"


class Contender(NamedTuple):
    """A named queue.

    `survives`: what its items survive; `shared`: whether it is measured between processes, instead of threads; `share`:
    the fraction of the items that is measured.
    """

    name: str
    survives: str
    make: Callable[[str], Any]
    put: Callable[[Any, int], None]
    get: Callable[[Any, int], None]
    shared: bool = True
    share: float = 1.0


def put_each(q, count):
    for _ in range(count):
        q.put(ITEM)


def get_each(q, count):
    for _ in range(count):
        q.get()


def put_batches(q, count):
    batch = [ITEM] * BATCH
    for _ in range(count // BATCH):
        q.put_many(batch)


def get_batches(q, count):
    while count:
        count -= len(q.get_many(min(BATCH, count)))


def lease_each(q, count):
    for _ in range(count):
        with q.lease():
            pass


def persist_queue(folder):
    from persistqueue import SQLiteQueue

    return SQLiteQueue(folder, auto_commit=True, multithreading=True)


def persist_ack_queue(folder):
    from persistqueue import SQLiteAckQueue

    return SQLiteAckQueue(folder, auto_commit=True, multithreading=True)


def ack_each(q, count):
    for _ in range(count):
        q.ack(q.get())


CONTENDERS = [
    Contender(
        "queue.Queue", "nothing; threads of one process only", lambda _: queue.Queue(), put_each, get_each, shared=False
    ),
    Contender("multiprocessing.Queue", "nothing", lambda _: multiprocessing.Queue(), put_each, get_each),
    Contender("lycosa, put and get", "kill -9", Queue, put_each, get_each),
    Contender("lycosa, put and lease", "kill -9, leased ones too", Queue, put_each, lease_each),
    Contender("lycosa, batches of 100", "kill -9", Queue, put_batches, get_batches),
    Contender("lycosa, sync", "power loss", lambda f: Queue(f, sync=True), put_each, get_each, share=0.05),
    Contender("lycosa, sync, batches of 100", "power loss", lambda f: Queue(f, sync=True), put_batches, get_batches),
    Contender("persist-queue, SQLiteQueue", "power loss", persist_queue, put_each, get_each, shared=False, share=0.1),
    Contender(
        "persist-queue, SQLiteAckQueue", "power loss", persist_ack_queue, put_each, ack_each, shared=False, share=0.1
    ),
]


def in_turn(contender, count):
    """Return the seconds to put, and to get, all items in one process."""
    with tempfile.TemporaryDirectory() as folder:
        q = contender.make(f"{folder}/queue")
        times = [time.perf_counter()]
        for step in (contender.put, contender.get):
            step(q, count)
            times.append(time.perf_counter())
        close(q)
    return times[1] - times[0], times[2] - times[1]


def at_once(contender, count):
    """Return the seconds in which all items pass to another process, or to another thread if it is not `shared`."""
    with tempfile.TemporaryDirectory() as folder:
        q = contender.make(f"{folder}/queue")
        worker = multiprocessing.get_context("fork").Process if contender.shared else threading.Thread
        producer = worker(target=contender.put, args=(q, count))
        began = time.perf_counter()
        producer.start()
        contender.get(q, count)
        took = time.perf_counter() - began
        producer.join()
        close(q)
    return took


def close(q):
    if hasattr(q, "close"):
        q.close()


def row(contender, count):
    count = int(count * contender.share) // BATCH * BATCH
    rounds = [(*in_turn(contender, count), at_once(contender, count)) for _ in range(ROUNDS)]
    rates = [count / statistics.median(column) for column in zip(*rounds, strict=True)]
    return [contender.name, contender.survives, *rates]


def table(rows):
    ours = next(row for row in rows if row[0] == "lycosa, put and get")
    lines = [
        "| queue | items survive | put/s | get/s | from one to another/s | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for name, survives, *rates in rows:
        ratio = rates[2] / ours[4]
        lines.append(f"| {name} | {survives} | {' | '.join(f'{rate:,.0f}' for rate in rates)} | {ratio:.2f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = table([row(contender, options.items) for contender in CONTENDERS])
    print(text)
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + text + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
