"""Operations in the middle of random histories on Redis: listings, finding, requeue, imports, verify (C4, C8, F2, F6).

See `test_redis_history`: the same workers with all their troubles. Somebody who is none of them looks into the crawl
now and then. What is listed at an instant is what the model has; nothing is ever found that does not fit together; a
listing with pauses shows what did not change meanwhile, once. What is queued again goes the way of everything else.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis as real_redis

from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import Selection, UrlRecord
from lycosa.frontier.redis.admin import listing, verify
from lycosa.frontier.redis.admin.operations import RedisOperations
from lycosa.frontier.redis.lanes import decode
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.worker.session import Session
from tests.conftest import PROVE
from tests.frontier.sim.redis.history import History
from tests.frontier.sim.redis.model import Record
from tests.frontier.sim.redis.test_redis_history import shrunk
from tests.frontier.sim.redis.work import HOSTS, _raise, number_of

pytestmark = pytest.mark.redis

HISTORIES = 400 if PROVE else 8
PARTS = 4
SHOWN = {"uncommitted": "leased"}


class Client:
    """A way to the server that takes no time."""

    def __init__(self, history: Operated) -> None:
        self._history = history

    async def execute_command(self, *command: Any) -> Any:
        """Run a script by the server's clock."""
        words = list(command)
        words[5] = repr(self._history.now + self._history.jumped)
        return self._history.redis.execute_command(*words)

    async def hgetall(self, key: str) -> Any:
        """Return a hash."""
        return self._history.redis.hgetall(key)


class Operated(History):
    """A history with an operator. `did` counts what he did."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(url, seed)
        self.redis = real_redis.Redis.from_url(url)
        self.keep_done = self.rng.random() < 0.7
        self.did: Counter[str] = Counter()

    @property
    def operations(self) -> RedisOperations:
        """Those of somebody who is no worker."""
        session = Session(
            Client(self), self.name, "", _at_once, self.partitions, callers_clock=True, keep_done=self.keep_done
        )
        return RedisOperations(session)

    async def make_trouble(self) -> None:
        """There is an operator, too."""
        operator = asyncio.create_task(self.operate())
        await super().make_trouble()
        await operator

    async def operate(self) -> None:
        """Do something, now and then, as long as there is trouble."""
        happen = [self.listed, self.listed_slowly, self.verified, self.found, self.again, self.imported]
        while self.troubled:
            await asyncio.sleep(self.rng.uniform(0.0, 0.8))
            act = self.rng.choice(happen)
            try:
                await act()
            except Exception as error:
                self.check(_raise, error)
            self.did[act.__name__] += 1

    # What is there.

    def expected(self) -> dict[int, str]:
        """Return the state in which each record is to be listed."""
        shown = {each.number: SHOWN.get(each.state, each.state) for each in self.model.records.values()}
        hidden = {"new"} if self.keep_done else {"new", "done"}
        return {number: state for number, state in shown.items() if state not in hidden}

    async def rows(self, selection: Selection, pause_s: float = 0.0) -> Counter[tuple[int, str]]:
        """List, in small slices."""
        found: Counter[tuple[int, str]] = Counter()
        after: str | None = ""
        operations = self.operations
        while after is not None:
            rows, after = await operations.rows(selection, after, self.rng.choice([1, 5, 100]))
            found.update((number_of(row.record), "delayed" if row.state == "retry" else row.state) for row in rows)
            if pause_s:
                await asyncio.sleep(self.rng.uniform(0, pause_s))
        return found

    async def listed(self) -> None:
        """A listing at an instant is what the model has."""
        found, expected = await self.rows(Selection()), self.expected()
        assert found == Counter(expected.items()), f"{found - Counter(expected.items())} are listed, not {expected}"

    async def listed_slowly(self) -> None:
        """What was queued all the time is listed once."""
        before = {
            number: self.model.records[number].order for number, state in self.expected().items() if state == "queued"
        }
        found = await self.rows(Selection(states=("queued",)), 0.1)
        for number, order in before.items():
            record = self.model.records[number]
            if record.state == "queued" and record.order == order:
                assert found[number, "queued"] == 1, f"{record} is listed {found[number, 'queued']} times"

    async def verified(self) -> None:
        """Nothing is wrong."""
        assert await self.operations.verify(lambda _: None) == []

    async def found(self) -> None:
        """A URL is found in its state."""
        page = self.any_record()
        number = int(page.url.partition("?")[0].rpartition("/")[2])
        host = HOSTS[number % len(HOSTS)]
        there = {
            each.segment: each
            for each in self.model.records.values()
            if each.state != "new" and each.key == (each.segment, number)
        }
        rows = await self.operations.find(page.fingerprint, self.rng.choice([host, ""]))
        states = {row.record.segment: "delayed" if row.state == "retry" else row.state for row in rows}
        done = {"uncommitted": "done"}
        assert states == {name: done.get(each.state, each.state) for name, each in there.items()}

    # What changes something: while somebody will look whether it is over.

    @property
    def goes_on(self) -> bool:
        """Whether something is lent."""
        return any(each.state == "leased" for part in self.model.parts for each in part.live.values())

    async def again(self) -> None:
        """What is dead, and done, is queued again."""
        states = self.rng.choice([("dead",), ("done",), ("dead", "done")])
        selection = Selection(states=states, host=self.rng.choice(["", *HOSTS]), url=self.rng.choice(["", "*/1*"]))
        if "done" in states and not self.keep_done:
            with pytest.raises(UsageError):
                await self.operations.requeue(selection, None, self.now, "", 5)
            return
        after: str | None = ""
        while after is not None and self.goes_on:
            before = self.raw_queued()
            moved, after = await self.operations.requeue(selection, None, self.now, after, self.rng.choice([1, 7]))
            self.queued_again(moved, states, before)
            await asyncio.sleep(self.rng.choice([0.0, 0.05]))

    def raw_queued(self) -> set[int]:
        """Return the numbers of all records that Redis has queued."""
        return set(self.in_order())

    def in_order(self) -> list[int]:
        """Return them, those of each list in its order."""
        keys = [key for part in self.numbers for key in self.redis.keys(part.replace("{", "\\{") + Key.QUEUE + "*")]
        return [number_of(decode(entry[6:])) for key in keys for entry in self.redis.lrange(key, 0, -1)]

    def queued_again(self, moved: int, states: tuple[str, ...], before: set[int]) -> None:
        """Tell the model."""
        numbers = [number for number in self.in_order() if number not in before]
        assert len(numbers) == moved
        for worker in self.workers:  # that they were done is seen no more
            worker.acked = [record for record in worker.acked if record.number not in numbers]
        home = {record.number: part for part in self.model.parts for record in part_records(self, part)}
        for number in numbers:
            record, part = self.model.records[number], home[number]
            assert record.state in states
            part.over[record.segment, record.state] -= 1
            part.last += 1
            record.state, record.worker, record.order, record.commit = "queued", "", part.last, None
            part.live[number] = record
        for part in {home[number].number: home[number] for number in numbers}.values():
            part.arrived += 1

    async def imported(self) -> None:
        """Somebody who is no worker pushes."""
        if not self.goes_on:
            return
        made: list[UrlRecord] = [self.any_record() for _ in range(4)]
        operations = self.operations
        session = operations._session
        new = 0
        for part in self.model.parts:
            mine = [each for each in made if session.partition_of(each.host).number == part.number]
            new += sum(part.add(self.model.records[number_of(each)]) for each in mine)
            part.arrived += bool(mine)
        assert await operations.push(made) == new


def part_records(history: Operated, part: Any) -> list[Record]:
    """Return the records whose hosts are in a partition."""
    session = history.operations._session
    return [each for each in history.model.records.values() if session.partition_of(each.host).number == part.number]


async def _at_once(act: Callable[[], Awaitable[Any]]) -> Any:
    return await act()


@pytest.mark.parametrize("part", range(PARTS))
def test_histories(redis, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shrunk(redis.url, monkeypatch)
    did: Counter[str] = Counter()
    for number in range(HISTORIES // PARTS):
        seed = random.randrange(1 << 32)
        print("seed", seed, "of part", part, "number", number)
        monkeypatch.setattr(verify, "HOSTS_AT_ONCE", random.Random(seed).choice([2, 1000]))
        monkeypatch.setattr(listing, "ROWS_MAX", random.Random(seed).choice([3, 1000]))
        history = Operated(redis.url, seed)
        history.run()
        did += history.did
    print(did)
