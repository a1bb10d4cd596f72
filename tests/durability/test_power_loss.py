"""Power loss with `--sync`: what a commit promised is there, whatever else is not (C1, F4).

A crawl that is killed and resumed is recorded below the store, and the power is cut after every single operation: with
all of it on the disk, with nothing but what was synced, and with a seeded part of the rest (`replay.py` has the model).
From each folder that can be left the crawl goes on to its end. `LYCOSA_TEST_SEED=n` chooses another history.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest

from tests.conftest import PROVE, ROOT, need
from tests.durability.driver import PROMISES, STEPS, Crawl, Order, Promise, Site, assert_complete, items
from tests.durability.recorder import Cut, Mark, Operation, Sync, Write, can_trace, record
from tests.durability.replay import Chance, Disk, Outage, Tree, Worst, build, read
from tests.e2e.command import environment

PAGES = 150 if PROVE else 40
HISTORIES = 20 if PROVE else 2
CHANCES = 5 if PROVE else 1
"""Seeded parts of what is uncertain, after each operation."""


class Resumed(Crawl):
    """A crawl that goes on after the power came back; every promise must have been kept."""

    def __init__(self, order: Order, promised: Promise) -> None:
        super().__init__(order, fetched=self._check)
        self._promised = promised
        self._settled = {*promised.done, *promised.dead}

    async def opened(self) -> None:
        """Look at what is there before anything changes."""
        position = (await self.frontier.positions()).get(self.sink.name, 0)
        assert position >= self._promised.position, "the position of a returned commit is lost"
        written = Counter(item["page"] for item in items(Path(self.order.folder), position))
        assert set(self._promised.done) <= set(written), "items of a returned commit are lost"

    def _check(self, page: int) -> None:
        assert page not in self._settled, f"{page} was settled by a returned commit, and is fetched again"


def recorded(folder: Path, marks: Path, orders: list[Order]) -> tuple[list[Operation], list[int]]:
    """Run processes one after the other. Return all they did, and where each of them ended."""
    operations: list[Operation] = []
    ends = []
    for order in orders:
        command = [sys.executable, "-m", "tests.durability.driver", msgspec.json.encode(order).decode()]
        code, more = record(command, folder, marks, cwd=ROOT, env=environment())
        assert code == (-9 if order.step else 0), f"exit code {code}"
        operations += more
        ends.append(len(operations))
        assert replayed(operations) == read(folder), "the recording is not complete"
    return operations, ends


def replayed(operations: list[Operation]) -> Tree:
    """Return what a folder holds after these operations, nothing lost."""
    disk = Disk()
    for operation in operations:
        disk.apply(operation)
    return disk.tree(Outage())


def together(promised: Promise, more: Promise) -> Promise:
    return Promise(promised.done + more.done, promised.dead + more.dead, more.position)


class Outages:
    """Cuts the power and goes on; a folder that was seen with the same promises is not tried again."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._tried: set[bytes] = set()
        self.promised = Promise()

    @property
    def count(self) -> int:
        """How many different folders were tried."""
        return len(self._tried)

    def cut(self, tree: Tree) -> None:
        """Go on from what is left, and check that all ends well."""
        key = blake2b(msgspec.msgpack.encode([sorted(tree.items()), self.promised])).digest()
        if key in self._tried:
            return
        self._tried.add(key)
        folder = Path(self._order.folder)
        build(tree, folder)
        asyncio.run(Resumed(self._order, self.promised).run())
        assert_complete(Site(self._order.seed, self._order.pages), folder)


def tell(operation: Operation) -> str:
    """Return an operation without its data."""
    return str(operation._replace(data=b"%d bytes" % len(operation.data)) if isinstance(operation, Write) else operation)


@pytest.mark.parametrize("history", range(HISTORIES))
def test_power_loss_after_every_operation(tmp_path, history):
    need("strace that may trace (apt-get install strace)", can_trace())
    seed = int(os.environ.get("LYCOSA_TEST_SEED") or history)
    folder, logs = tmp_path / "world", tmp_path / "logs"
    folder.mkdir()
    logs.mkdir()
    order = Order(str(folder), str(logs), seed, PAGES, sync=True)
    killed = msgspec.structs.replace(order, step=STEPS[seed % len(STEPS)], occurrence=2)
    resumed = msgspec.structs.replace(order, run=1)
    operations, _ = recorded(folder, logs / PROMISES, [killed, resumed])
    disk, chance = Disk(), random.Random(seed)
    outages = Outages(msgspec.structs.replace(order, run=2, sync=False))
    print({kind.__name__: sum(isinstance(each, kind) for each in operations) for kind in (Write, Cut, Sync, Mark)})
    for number, operation in enumerate(operations):
        disk.apply(operation)
        if isinstance(operation, Mark):
            outages.promised = together(outages.promised, msgspec.json.decode(operation.line, type=Promise))
        for what in (Outage(), Worst(), *[Chance(chance)] * CHANCES):
            try:
                outages.cut(disk.tree(what))
            except BaseException:
                done = "\n".join(map(tell, operations[max(0, number - 20) : number + 1]))
                print(f"LYCOSA_TEST_SEED={seed}: {type(what).__name__} after operation {number} in {folder}:\n{done}")
                raise
    print(f"{len(operations)} operations, {outages.count} different folders")
