"""Processes that share a pool of proxies in a folder (P2, P3, P5), killed with `kill -9` at random, the owner too.

No proxy is leased twice, counts are exact, leases of killed processes expire, and the other processes go on.
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
"""Releases between two kills."""


class Members:
    """Processes with their diaries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pool, self.locks, self.diaries = path / "pool", path / "locks", path / "diaries"
        self.locks.mkdir()
        self.diaries.mkdir()
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.started = 0

    def start(self) -> None:
        diary = self.diaries / f"{self.started:03}"
        command = [sys.executable, "-m", "tests.proxies.e2e.pool_members", str(self.pool), str(diary), str(self.locks)]
        process = subprocess.Popen(command, cwd=ROOT)
        self.started += 1
        self.running[process.pid] = process

    def kill(self, pid: int) -> None:
        process = self.running.pop(pid)
        process.kill()
        process.wait()

    def lines(self) -> list[str]:
        return [line for diary in self.diaries.iterdir() for line in diary.read_text().splitlines()]

    def released(self) -> int:
        return sum(line == "released" for line in self.lines())

    def owner(self) -> int:
        return int((self.pool / "lock").read_text())

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + LONG_S
        while self.released() < count:
            assert time.monotonic() < deadline, f"{self.released()} of {count} leases were released in time"
            assert all(process.poll() is None for process in self.running.values()), "a process ended by itself"
            time.sleep(0.02)

    def end(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            assert process.wait(LONG_S) in {0, -signal.SIGTERM}, "-SIGTERM if the process had not set its handler yet"
        self.running.clear()


@pytest.fixture
def members(tmp_path: Path):
    members = Members(tmp_path)
    yield members
    for pid in list(members.running):
        members.kill(pid)


class ExpectedCounts:
    """The uses that the diaries record for each target and proxy: certain ones, and `unsure` ones on top."""

    def __init__(self, diaries: Path) -> None:
        self.uses: Counter[tuple[str, str]] = Counter()
        self.good: Counter[tuple[str, str]] = Counter()
        self.unsure: Counter[tuple[str, str]] = Counter()
        self.unanswered = 0
        """Calls for a lease whose answer was never recorded."""
        for diary in diaries.glob("*.*"):
            self._read([line.split() for line in diary.read_text().splitlines()])

    def _read(self, lines: list[list[str]]) -> None:
        pair, uses = ("", ""), 0
        for number, (word, *rest) in enumerate(lines):
            is_last = number == len(lines) - 1
            if word == "acquire":
                self.unanswered += is_last
            elif word == "leased":
                self.uses[rest[0], rest[2]] += 1
            elif word == "release":
                pair, uses = (rest[0], rest[1]), int(rest[2])
                if is_last:
                    self.unsure[pair] += uses
            elif word == "released":
                self.good[pair] += uses
                self.uses[pair] += max(0, uses - 1)
            elif word == "late":  # the owner may have counted the release before it was killed without an answer
                self.unsure[pair] += uses


def test_random_kills_lose_no_lease_and_no_count(members: Members) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    asyncio.run(fill(members.pool))
    for _ in range(MEMBERS):
        members.start()
    owners = 0
    for number in range(KILLS):
        members.wait_for(members.released() + STEP)
        owner = members.owner()
        victim = owner if number % 2 and owner in members.running else rng.choice(list(members.running))
        owners += victim == owner
        members.kill(victim)
        members.start()
    members.wait_for(members.released() + STEP)
    members.end()
    assert owners >= KILLS // 2
    lines = members.lines()
    assert [line for line in lines if line.startswith(("double", "none"))] == []
    asyncio.run(check(members, ExpectedCounts(members.diaries), owners))


async def fill(path: Path) -> None:
    pool = await open_pool(path, create=True)
    await pool.add(PROXIES)
    await pool.close()


async def check(members: Members, expected: ExpectedCounts, owners: int) -> None:
    """Assert that all proxies are available in time and that the counts of the pool match the diaries."""
    pool = await open_pool(members.pool)
    try:
        unanswered = 0
        for target in TARGETS:
            lease = await pool.acquire(target, len(PROXIES), lease_s=LEASE_S, wait_s=LEASE_S + 1.0)
            assert len({each.proxy.key for each in lease}) == len(PROXIES)
            for view in await pool.proxies(target):
                unanswered += compare(view, (target, view.proxy.key), expected)
        # Leases whose answer was lost: the caller was killed, or the owner was.
        assert 0 <= unanswered <= expected.unanswered + owners * MEMBERS * TASKS
        views = await pool.targets()
        assert sum(view.leaked for view in views) <= members.started * TASKS
        assert sum(view.granted for view in views) >= members.released()
    finally:
        await pool.close()


def compare(view: ProxyView, pair: tuple[str, str], expected: ExpectedCounts) -> int:
    """Return how many leases of a proxy had no recorded answer, without the one that is open now."""
    unsure = expected.unsure[pair]
    assert expected.good[pair] <= view.good <= expected.good[pair] + unsure
    assert view.bad == 0
    uses = view.uses - 1 - expected.uses[pair]
    assert uses >= 0, "a recorded use was not counted"
    return max(0, uses - unsure)


def test_leases_outlive_the_owner_and_are_released_at_the_next_one(tmp_path: Path) -> None:
    """The owner is killed while another process has leases. The next owner accepts a release and counts it once."""
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
        assert uses[lease[0].proxy.key] == 6, "the five reported uses, and the open lease"
        await pool.close()

    try:
        asyncio.run(story())
    finally:
        for pid in list(members.running):
            members.kill(pid)
