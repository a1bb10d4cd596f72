"""Processes that share a pool of proxies in a folder (P2, P3, P5), killed with `kill -9` at random, the owner too.

No proxy is lent twice, counts are exact, leases of who was killed come back in time, and the others go on.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from lycosa.app.proxies.pools import open_pool
from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyView
from tests.conftest import PROVE, ROOT
from tests.proxies.e2e.pool_members import LEASE_S, TARGETS, TASKS

KILLS = 60 if PROVE else 4
MEMBERS = 3
PROXIES = [Proxy("http", f"10.0.0.{number}", 8080, "ann", f"secret{number}") for number in range(1, 7)]
LONG_S = 60.0
STEP = 20
"""So many returns between two kills."""


class Members:
    """Processes with their diaries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pool, self.held, self.diaries = path / "pool", path / "held", path / "diaries"
        self.held.mkdir()
        self.diaries.mkdir()
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.started = 0

    def start(self) -> None:
        diary = self.diaries / f"{self.started:03}"
        command = [sys.executable, "-m", "tests.proxies.e2e.pool_members", str(self.pool), str(diary), str(self.held)]
        process = subprocess.Popen(command, cwd=ROOT)
        self.started += 1
        self.running[process.pid] = process

    def kill(self, pid: int) -> None:
        process = self.running.pop(pid)
        process.kill()
        process.wait()

    def lines(self) -> list[str]:
        return [line for diary in self.diaries.iterdir() for line in diary.read_text().splitlines()]

    def returned(self) -> int:
        return sum(line == "returned" for line in self.lines())

    def owner(self) -> int:
        return int((self.pool / "lock").read_text())

    def wait_for(self, count: int) -> None:
        until = time.monotonic() + LONG_S
        while self.returned() < count:
            assert time.monotonic() < until, f"{self.returned()} of {count} leases: the others stand still"
            assert all(process.poll() is None for process in self.running.values()), "one has ended by itself"
            time.sleep(0.02)

    def end(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            assert process.wait(LONG_S) in {0, -signal.SIGTERM}, "the latter of who had not begun yet"
        self.running.clear()


@pytest.fixture
def members(tmp_path: Path):
    made = Members(tmp_path)
    yield made
    for pid in list(made.running):
        made.kill(pid)


class Account:
    """What the diaries say happened on each proxy of each target: at least, and at most."""

    def __init__(self, diaries: Path) -> None:
        self.uses: Counter[tuple[str, str]] = Counter()
        self.good: Counter[tuple[str, str]] = Counter()
        self.unsure: Counter[tuple[str, str]] = Counter()
        self.unheard = 0
        for diary in diaries.glob("*.*"):
            self._read([line.split() for line in diary.read_text().splitlines()])

    def _read(self, lines: list[list[str]]) -> None:
        pair, uses = ("", ""), 0
        for number, (word, *rest) in enumerate(lines):
            is_last = number == len(lines) - 1
            if word == "ask":
                self.unheard += is_last
            elif word == "got":
                self.uses[rest[0], rest[2]] += 1
            elif word == "return":
                pair, uses = (rest[0], rest[1]), int(rest[2])
                if is_last:
                    self.unsure[pair] += uses
            elif word == "returned":
                self.good[pair] += uses
                self.uses[pair] += max(0, uses - 1)
            elif word == "late":  # it was heard, and the answer lost with the owner
                self.unsure[pair] += uses


def test_kill_at_random(members: Members) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    asyncio.run(fill(members.pool))
    for _ in range(MEMBERS):
        members.start()
    owners = 0
    for number in range(KILLS):
        members.wait_for(members.returned() + STEP)
        owner = members.owner()
        victim = owner if number % 2 and owner in members.running else rng.choice(list(members.running))
        owners += victim == owner
        members.kill(victim)
        members.start()
    members.wait_for(members.returned() + STEP)
    members.end()
    assert owners >= KILLS // 2
    lines = members.lines()
    assert [line for line in lines if line.startswith(("double", "none"))] == []
    asyncio.run(check(members, Account(members.diaries), owners))


async def fill(path: Path) -> None:
    pool = await open_pool(path, create=True)
    await pool.add(PROXIES)
    await pool.close()


async def check(members: Members, account: Account, owners: int) -> None:
    """All proxies come back in time, and what was counted is what was answered."""
    pool = await open_pool(members.pool)
    try:
        unheard = 0
        for target in TARGETS:
            lease = await pool.acquire(target, len(PROXIES), lease_s=LEASE_S, wait_s=LEASE_S + 1.0)
            assert len({each.proxy.key for each in lease}) == len(PROXIES)
            for view in await pool.proxies(target):
                unheard += compare(view, (target, view.proxy.key), account)
        # A lease that was given and never heard of: by who was killed, or by who lost the owner.
        assert 0 <= unheard <= account.unheard + owners * MEMBERS * TASKS
        views = await pool.targets()
        assert sum(view.leaked for view in views) <= members.started * TASKS
        assert sum(view.granted for view in views) >= members.returned()
    finally:
        await pool.close()


def compare(view: ProxyView, pair: tuple[str, str], account: Account) -> int:
    """Return how many leases nobody has heard of; the one that is under way now is not counted."""
    unsure = account.unsure[pair]
    assert account.good[pair] <= view.good <= account.good[pair] + unsure
    assert view.bad == 0
    uses = view.uses - 1 - account.uses[pair]
    assert uses >= 0, "a use that was answered is not counted"
    return max(0, uses - unsure)


def test_leases_outlive_the_owner_and_are_returned_to_the_next(tmp_path: Path) -> None:
    """The owner is killed while others hold proxies: they return them to a third process, counted, and only once."""
    members = Members(tmp_path)
    asyncio.run(fill(members.pool))
    members.start()
    members.wait_for(1)

    async def story() -> None:
        pool = await open_pool(members.pool)
        lease = [(await pool.acquire("c.example", wait_s=LONG_S))[0] for _ in range(3)]
        members.kill(members.owner())
        assert await pool.release(lease[0], [Outcome()] * 5)
        assert members.owner() not in members.running
        assert not await pool.release(lease[0], [Outcome()] * 5)
        more = await pool.acquire("c.example", 4)
        assert {each.proxy.key for each in more}.isdisjoint({lease[1].proxy.key, lease[2].proxy.key})
        assert min(each.token for each in more) > lease[2].token
        uses = {view.proxy.key: view.uses for view in await pool.proxies("c.example")}
        assert uses[lease[0].proxy.key] == 6, "five, and the lease of now"
        await pool.close()

    try:
        asyncio.run(story())
    finally:
        for pid in list(members.running):
            members.kill(pid)
