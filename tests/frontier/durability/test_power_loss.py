"""Power loss with `--sync`: what a commit reported as durable survives (C1, F4).

The system calls of a crawl that is killed and resumed are recorded, and the power fails after every single operation:
with all changes on the disk, with only those that were synced, and with a random part of the rest (`replay.py` has the
model). From each folder that can result, the crawl is resumed to its end. `LYCOSA_TEST_SEED=n` chooses another history.
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
    COMMITS,
    COMMITTED,
    LIMITS,
    OUTPUT,
    RECORDS_FLUSHED,
    STEPS,
    Committed,
    Crawl,
    Run,
    Site,
    assert_complete,
    items,
)
from tests.frontier.durability.recorder import Mark, Operation, Write, can_trace, record
from tests.frontier.durability.replay import Disk, PowerLoss, RandomLoss, Tree, WorstLoss, read_tree, write_tree

HISTORIES = 24 if PROVE else 1
PAGES = 100 if PROVE else 28
RANDOM_LOSSES = 3 if PROVE else 1
"""Random power losses after each operation."""

ACKS = 12
EMPTY: Tree = {OUTPUT: None}
SESSIONS = 2
"""In each session three processes are recorded, the last to its end. The next session starts after a power loss."""

CALLS = ("fsync", "fdatasync", "mkdir", "openat", "pwrite64", "rename", "unlink")


class Stopped(Exception):
    """The process ends here."""


class ResumedCrawl(Crawl):
    """A crawl after a power loss: everything committed must be there. It stops after `commits`."""

    def __init__(self, run: Run, committed: Committed, commits: int | None = None) -> None:
        super().__init__(run, on_fetch=self._check, on_commit=self._add, on_step=self._stop)
        self.committed = msgspec.structs.replace(committed)
        self._commits = commits

    async def on_open(self) -> None:
        """Check the state before anything changes."""
        position = (await self.frontier.positions()).get(self.sink.name, 0)
        assert position >= self.committed.position, "the position of a returned commit is lost"
        written = {item["page"] for item in items(Path(self.config.folder), position)}
        assert set(self.committed.done) <= written, "items of a returned commit are lost"

    def _check(self, page: int) -> None:
        ended = page in self.committed.done or page in self.committed.dead
        assert not ended, f"{page} was part of a returned commit, and is fetched again"

    def _add(self, more: Committed) -> None:
        self.committed = joined(self.committed, more)

    def _stop(self, name: str) -> None:
        if name != COMMITTED or self._commits is None:
            return
        self._commits -= 1
        if self._commits < 0:
            raise Stopped


def joined(committed: Committed, more: Committed) -> Committed:
    """Return the committed pages and items after another commit."""
    return Committed(committed.done + more.done, committed.dead + more.dead, more.position)


Process = tuple[Run, str]
"""A process, and the system call at which it is killed; "" when the run says where it ends."""


def record_all(processes: Iterable[Process]) -> list[Operation]:
    """Run processes one after the other. Return their operations."""
    operations: list[Operation] = []
    before: Tree | None = None
    for run, kill in processes:
        folder = Path(run.folder)
        before = read_tree(folder) if before is None else before
        command = [sys.executable, "-m", "tests.frontier.durability.driver", msgspec.json.encode(run).decode()]
        code, more = record(command, folder, Path(run.logs) / COMMITS, kill=kill, cwd=ROOT, env=environment())
        assert code in {0, -9}, f"exit code {code} in the process to be killed at {run.step or kill or 'no time'}"
        operations += more
        disk = Disk(before)
        for operation in operations:
            disk.apply(operation)
        assert disk.tree(PowerLoss()) == read_tree(folder), "the recording is not complete"
    return operations


def session(run: Run, rng: random.Random) -> list[Process]:
    """Return a process that is killed at a system call, one killed at a step of a commit, and one that finishes."""
    call = f"{rng.choice(CALLS)}:{rng.randint(1, 8)}"
    last = msgspec.structs.replace(run, number=run.number + 2)
    step, occurrence = rng.choice([step for step in STEPS if step != RECORDS_FLUSHED]), rng.randint(1, 3)
    at_step = msgspec.structs.replace(last, number=run.number + 1, step=step, occurrence=occurrence)
    return [(run, call), (at_step, ""), (last, "")]


class PowerLosses:
    """Resumes the crawl after power losses. The same folder with the same commits is tried only once."""

    def __init__(self, run: Run, rng: random.Random) -> None:
        self._run = run
        self._rng = rng
        self._tried: set[bytes] = set()
        self.committed = Committed()

    @property
    def count(self) -> int:
        """The number of different folders that were tried."""
        return len(self._tried)

    def add_commit(self, mark: Mark) -> None:
        """Record that a commit has returned."""
        self.committed = joined(self.committed, msgspec.json.decode(mark.line, type=Committed))

    def resume(self, tree: Tree) -> None:
        """Resume the crawl from this tree, for a few commits and then to the end."""
        key = blake2b(msgspec.msgpack.encode([sorted(tree.items()), self.committed])).digest()
        if key in self._tried:
            return
        self._tried.add(key)
        folder = Path(self._run.folder)
        write_tree(tree, folder)
        first = ResumedCrawl(self._run, self.committed, self._rng.randint(0, 2))
        last = msgspec.structs.replace(self._run, number=self._run.number + 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda handle: None)  # no power loss follows
            with suppress(Stopped):
                asyncio.run(first.run())
            asyncio.run(ResumedCrawl(last, first.committed).run())
        assert_complete(Site(self._run.seed, self._run.pages), folder)


def describe(operation: Operation) -> str:
    """Return an operation as text, without its data."""
    return str(
        operation._replace(data=b"%d bytes" % len(operation.data)) if isinstance(operation, Write) else operation
    )


def lose_power_everywhere(before: Tree, operations: list[Operation], losses: PowerLosses, rng: random.Random) -> Tree:
    """Lose power after each operation. Return one of the resulting trees, which must contain `losses.committed`."""
    disk, chosen = Disk(before), rng.randrange(len(operations))
    found, committed = before, losses.committed
    for number, operation in enumerate(operations):
        disk.apply(operation)
        if isinstance(operation, Mark):
            losses.add_commit(operation)
        for loss in (PowerLoss(), WorstLoss(), *[RandomLoss(rng)] * RANDOM_LOSSES):
            tree = disk.tree(loss)
            try:
                losses.resume(tree)
            except BaseException:
                recent = "\n".join(map(describe, operations[max(0, number - 20) : number + 1]))
                print(f"{type(loss).__name__} after operation {number}:\n{recent}")
                raise
        if number == chosen:
            found, committed = tree, losses.committed
    losses.committed = committed
    return found


@pytest.fixture
def run(quick_path, monkeypatch) -> Run:
    """A crawl with `--sync` in a new folder. Resumed crawls have the same small limits."""
    need("strace that may trace (apt-get install strace)", can_trace())
    for (module, name), value in LIMITS.items():
        monkeypatch.setattr(module, name, value)
    folder, logs = quick_path / "world", quick_path / "logs"
    write_tree(EMPTY, folder)
    logs.mkdir()
    return Run(str(folder), str(logs), 0, PAGES, sync=True, acks=ACKS)


@pytest.mark.parametrize("history", range(HISTORIES))
def test_power_loss_after_every_operation(run, history):
    run.seed = int(os.environ.get("LYCOSA_TEST_SEED") or history)
    print(f"LYCOSA_TEST_SEED={run.seed}")
    rng = random.Random(run.seed)
    losses = PowerLosses(msgspec.structs.replace(run, number=3 * SESSIONS, sync=False), rng)
    tree = EMPTY
    for number in range(SESSIONS):
        write_tree(tree, Path(run.folder))
        operations = record_all(session(msgspec.structs.replace(run, number=3 * number), rng))
        tree = lose_power_everywhere(tree, operations, losses, rng)
        print(f"{len(operations)} operations, {losses.count} different folders so far")


@pytest.mark.parametrize("number", range(1, 20, 1 if PROVE else 7))
def test_power_loss_after_a_kill_before_a_sync(run, number):
    """The next process must not rely on unsynced changes of the killed one."""
    resumed = msgspec.structs.replace(run, number=1)
    operations = record_all([(run, f"fsync:{number}"), (resumed, "")])
    disk, losses = Disk(EMPTY), PowerLosses(msgspec.structs.replace(run, number=2, sync=False), random.Random(number))
    for operation in operations:
        disk.apply(operation)
        if isinstance(operation, Mark):
            losses.add_commit(operation)
            losses.resume(disk.tree(WorstLoss()))
