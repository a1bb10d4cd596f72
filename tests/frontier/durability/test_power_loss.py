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
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest

from tests.cli.command import environment
from tests.conftest import PROVE, ROOT, need
from tests.frontier.durability.driver import (
    COMMITTED,
    KEPT,
    LIMITS,
    OUTPUT,
    PROMISES,
    STEPS,
    Crawl,
    Order,
    Promise,
    Site,
    assert_complete,
    items,
)
from tests.frontier.durability.recorder import Mark, Operation, Write, can_trace, record
from tests.frontier.durability.replay import Chance, Disk, Outage, Tree, Worst, build, read

HISTORIES = 24 if PROVE else 1
PAGES = 100 if PROVE else 28
CHANCES = 3 if PROVE else 1
"""Seeded parts of what is uncertain, after each operation."""

ACKS = 12
EMPTY: Tree = {OUTPUT: None}
SESSIONS = 2
"""Three processes are recorded, the last to its end; then all goes on from a folder that a power loss has left."""

CALLS = ("fsync", "fdatasync", "mkdir", "openat", "pwrite64", "rename", "unlink")


class Stopped(Exception):
    """The process ended here."""


class Resumed(Crawl):
    """A crawl that goes on after the power came back; every promise must have been kept. It ends after `commits`."""

    def __init__(self, order: Order, promised: Promise, commits: int | None = None) -> None:
        super().__init__(order, fetched=self._check, promise=self._promise, on_step=self._step)
        self.promised = msgspec.structs.replace(promised)
        self._commits = commits

    async def opened(self) -> None:
        """Look at what is there before anything changes."""
        position = (await self.frontier.positions()).get(self.sink.name, 0)
        assert position >= self.promised.position, "the position of a returned commit is lost"
        written = {item["page"] for item in items(Path(self.order.folder), position)}
        assert set(self.promised.done) <= written, "items of a returned commit are lost"

    def _check(self, page: int) -> None:
        settled = page in self.promised.done or page in self.promised.dead
        assert not settled, f"{page} was settled by a returned commit, and is fetched again"

    def _promise(self, more: Promise) -> None:
        self.promised = together(self.promised, more)

    def _step(self, name: str) -> None:
        if name != COMMITTED or self._commits is None:
            return
        self._commits -= 1
        if self._commits < 0:
            raise Stopped


def together(promised: Promise, more: Promise) -> Promise:
    """Return what two commits promise."""
    return Promise(promised.done + more.done, promised.dead + more.dead, more.position)


Kill = tuple[Order, str]
"""A process, and the system call at which it is killed; "" when the order says where it ends."""


def recorded(processes: Iterable[Kill]) -> list[Operation]:
    """Run processes one after the other. Return all they did."""
    operations: list[Operation] = []
    before: Tree | None = None
    for order, kill in processes:
        folder = Path(order.folder)
        before = read(folder) if before is None else before
        command = [sys.executable, "-m", "tests.frontier.durability.driver", msgspec.json.encode(order).decode()]
        code, more = record(command, folder, Path(order.logs) / PROMISES, kill=kill, cwd=ROOT, env=environment())
        assert code in {0, -9}, f"exit code {code} in the process to be killed at {order.step or kill or 'no time'}"
        operations += more
        disk = Disk(before)
        for operation in operations:
            disk.apply(operation)
        assert disk.tree(Outage()) == read(folder), "the recording is not complete"
    return operations


def session(order: Order, chance: random.Random) -> list[Kill]:
    """One process is killed at a system call, one at a step of a commit, and one comes to the end."""
    call = f"{chance.choice(CALLS)}:{chance.randint(1, 8)}"
    last = msgspec.structs.replace(order, run=order.run + 2)
    step, occurrence = chance.choice([step for step in STEPS if step != KEPT]), chance.randint(1, 3)
    at_step = msgspec.structs.replace(last, run=order.run + 1, step=step, occurrence=occurrence)
    return [(order, call), (at_step, ""), (last, "")]


class Outages:
    """Cuts the power and goes on; a folder that was seen with the same promises is not tried again."""

    def __init__(self, order: Order, chance: random.Random) -> None:
        self._order = order
        self._chance = chance
        self._tried: set[bytes] = set()
        self.promised = Promise()

    @property
    def count(self) -> int:
        """How many different folders were tried."""
        return len(self._tried)

    def promise(self, mark: Mark) -> None:
        """A commit has returned."""
        self.promised = together(self.promised, msgspec.json.decode(mark.line, type=Promise))

    def cut(self, tree: Tree) -> None:
        """Go on from what is left, for a few commits and then to the end."""
        key = blake2b(msgspec.msgpack.encode([sorted(tree.items()), self.promised])).digest()
        if key in self._tried:
            return
        self._tried.add(key)
        folder = Path(self._order.folder)
        build(tree, folder)
        first = Resumed(self._order, self.promised, self._chance.randint(0, 2))
        last = msgspec.structs.replace(self._order, run=self._order.run + 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda handle: None)  # no outage follows: save the time
            with suppress(Stopped):
                asyncio.run(first.run())
            asyncio.run(Resumed(last, first.promised).run())
        assert_complete(Site(self._order.seed, self._order.pages), folder)


def tell(operation: Operation) -> str:
    """Return an operation without its data."""
    return str(
        operation._replace(data=b"%d bytes" % len(operation.data)) if isinstance(operation, Write) else operation
    )


def cut_everywhere(before: Tree, operations: list[Operation], outages: Outages, chance: random.Random) -> Tree:
    """Cut the power after each operation. Return one of the folders that were left, and leave its promises."""
    disk, left = Disk(before), chance.randrange(len(operations))
    found, promised = before, outages.promised
    for number, operation in enumerate(operations):
        disk.apply(operation)
        if isinstance(operation, Mark):
            outages.promise(operation)
        for what in (Outage(), Worst(), *[Chance(chance)] * CHANCES):
            tree = disk.tree(what)
            try:
                outages.cut(tree)
            except BaseException:
                done = "\n".join(map(tell, operations[max(0, number - 20) : number + 1]))
                print(f"{type(what).__name__} after operation {number}:\n{done}")
                raise
        if number == left:
            found, promised = tree, outages.promised
    outages.promised = promised
    return found


@pytest.fixture
def order(quick_path, monkeypatch) -> Order:
    """A crawl with `--sync` in a new folder. What goes on after an outage has the same small limits."""
    need("strace that may trace (apt-get install strace)", can_trace())
    for (module, name), value in LIMITS.items():
        monkeypatch.setattr(module, name, value)
    folder, logs = quick_path / "world", quick_path / "logs"
    build(EMPTY, folder)
    logs.mkdir()
    return Order(str(folder), str(logs), 0, PAGES, sync=True, acks=ACKS)


@pytest.mark.parametrize("history", range(HISTORIES))
def test_power_loss_after_every_operation(order, history):
    order.seed = int(os.environ.get("LYCOSA_TEST_SEED") or history)
    print(f"LYCOSA_TEST_SEED={order.seed}")
    chance = random.Random(order.seed)
    outages = Outages(msgspec.structs.replace(order, run=3 * SESSIONS, sync=False), chance)
    tree = EMPTY
    for number in range(SESSIONS):
        build(tree, Path(order.folder))
        operations = recorded(session(msgspec.structs.replace(order, run=3 * number), chance))
        tree = cut_everywhere(tree, operations, outages, chance)
        print(f"{len(operations)} operations, {outages.count} different folders so far")


@pytest.mark.parametrize("number", range(1, 20, 1 if PROVE else 7))
def test_power_loss_after_a_kill_before_something_was_synced(order, number):
    """What the killed process left unsynced, the next one may have taken for granted."""
    resumed = msgspec.structs.replace(order, run=1)
    operations = recorded([(order, f"fsync:{number}"), (resumed, "")])
    disk, outages = Disk(EMPTY), Outages(msgspec.structs.replace(order, run=2, sync=False), random.Random(number))
    for operation in operations:
        disk.apply(operation)
        if isinstance(operation, Mark):
            outages.promise(operation)
            outages.cut(disk.tree(Worst()))
