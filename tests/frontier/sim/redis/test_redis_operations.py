"""Operations during random histories on Redis: listing, finding, requeue, import, verify (C4, C8, F2, F6).

The workers are those of `test_redis_history`. An operator outside of the crawl uses operations at random times. A
listing without pauses equals the model; `verify` never finds an inconsistency; a listing with pauses has every
unchanged row once. Requeued records are processed like all others.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

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
from tests.frontier.sim.redis.test_redis_history import shrink_script
from tests.frontier.sim.redis.work import HOSTS, _raise, number_of
from tests.servers.redis_client import redis_client

pytestmark = pytest.mark.redis

HISTORIES = 400 if PROVE else 8
PARTS = 4
LISTED_AS = {"uncommitted": "leased"}


class Client:
    """A client whose calls take no time."""

    def __init__(self, history: HistoryWithOperations) -> None:
        self._history = history

    async def execute_command(self, *command: Any) -> Any:
        """Run a script by the server's clock. The script may make hosts leasable whose delay has passed by now."""
        history, words = self._history, list(command)
        now = history.now + history.clock_offset
        words[5] = repr(now)
        part = history.model.parts[history.numbers[words[3]]]
        part.latest_now = max(part.latest_now, now)
        return history.redis.execute_command(*words)

    async def hgetall(self, key: str) -> Any:
        return self._history.redis.hgetall(key)


class HistoryWithOperations(History):
    """A history with an operator. `did` counts the operations."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(url, seed)
        self.redis = redis_client(url)
        self.keep_done = self.rng.random() < 0.7
        self.did: Counter[str] = Counter()

    @property
    def operations(self) -> RedisOperations:
        """The operations, from outside of the crawl."""
        session = Session(
            Client(self), self.name, "", _call_once, self.partitions, callers_clock=True, keep_done=self.keep_done
        )
        for partition in session.partitions:
            self.numbers[partition.key] = partition.number
        return RedisOperations(session)

    async def make_disturbances(self) -> None:
        """Run the operator together with the disturbances."""
        operator = asyncio.create_task(self.operate())
        await super().make_disturbances()
        await operator

    async def operate(self) -> None:
        """Use random operations while disturbances happen."""
        choices = [
            self.check_listing,
            self.check_slow_listing,
            self.check_verify,
            self.check_find,
            self.requeue_some,
            self.import_some,
        ]
        while self.is_disturbed:
            await asyncio.sleep(self.rng.uniform(0.0, 0.8))
            operation = self.rng.choice(choices)
            try:
                await operation()
            except Exception as error:
                self.check(_raise, error)
            self.did[operation.__name__] += 1

    # Queries.

    def expected(self) -> dict[int, str]:
        """Return the expected state of each listed record."""
        states = {each.number: LISTED_AS.get(each.state, each.state) for each in self.model.records.values()}
        hidden = {"new"} if self.keep_done else {"new", "done"}
        return {number: state for number, state in states.items() if state not in hidden}

    async def rows(self, selection: Selection, pause_s: float = 0.0) -> Counter[tuple[int, str]]:
        """Return the rows, listed in small slices."""
        found: Counter[tuple[int, str]] = Counter()
        cursor: str | None = ""
        operations = self.operations
        while cursor is not None:
            rows, cursor = await operations.rows(selection, cursor, self.rng.choice([1, 5, 100]))
            found.update((number_of(row.record), "delayed" if row.state == "retry" else row.state) for row in rows)
            if pause_s:
                await asyncio.sleep(self.rng.uniform(0, pause_s))
        return found

    async def check_listing(self) -> None:
        """A listing without pauses equals the model."""
        found, expected = await self.rows(Selection()), self.expected()
        assert found == Counter(expected.items()), f"{found - Counter(expected.items())} are listed, not {expected}"

    async def check_slow_listing(self) -> None:
        """Records that were queued all the time are listed once."""
        queued_before = {
            number: self.model.records[number].order for number, state in self.expected().items() if state == "queued"
        }
        found = await self.rows(Selection(states=("queued",)), 0.1)
        for number, order in queued_before.items():
            record = self.model.records[number]
            if record.state == "queued" and record.order == order:
                assert found[number, "queued"] == 1, f"{record} is listed {found[number, 'queued']} times"

    async def check_verify(self) -> None:
        """Nothing is inconsistent."""
        assert await self.operations.verify(lambda _: None) == []

    async def check_find(self) -> None:
        """A URL is found in its state."""
        page = self.any_record()
        number = int(page.url.partition("?")[0].rpartition("/")[2])
        host = HOSTS[number % len(HOSTS)]
        expected = {
            each.segment: each
            for each in self.model.records.values()
            if each.state != "new" and each.key == (each.segment, number)
        }
        rows = await self.operations.find(page.fingerprint, self.rng.choice([host, ""]))
        states = {row.record.segment: "delayed" if row.state == "retry" else row.state for row in rows}
        done = {"uncommitted": "done"}
        assert states == {name: done.get(each.state, each.state) for name, each in expected.items()}

    # Changes, which need a worker that will check for the end later.

    @property
    def has_leases(self) -> bool:
        """Whether any record is leased: only then may operations add work, as some worker will check for the end
        later.
        """
        return any(each.state == "leased" for part in self.model.parts for each in part.live.values())

    async def requeue_some(self) -> None:
        """Requeue dead and done records."""
        states = self.rng.choice([("dead",), ("done",), ("dead", "done")])
        selection = Selection(states=states, host=self.rng.choice(["", *HOSTS]), url=self.rng.choice(["", "*/1*"]))
        if "done" in states and not self.keep_done:
            with pytest.raises(UsageError):
                await self.operations.requeue(selection, None, self.now, "", 5)
            return
        cursor: str | None = ""
        while cursor is not None and self.has_leases:
            queued_before = self.raw_queued()
            moved, cursor = await self.operations.requeue(selection, None, self.now, cursor, self.rng.choice([1, 7]))
            self.record_requeue(moved, states, queued_before)
            await asyncio.sleep(self.rng.choice([0.0, 0.05]))

    def raw_queued(self) -> set[int]:
        """Return the numbers of all queued records in Redis."""
        return set(self.queued_in_order())

    def queued_in_order(self) -> list[int]:
        """Return the numbers of all queued records in Redis, in the order of each list."""
        keys = [key for part in self.numbers for key in self.redis.keys(part.replace("{", "\\{") + Key.QUEUE + "*")]
        return [number_of(decode(entry[6:])) for key in keys for entry in self.redis.lrange(key, 0, -1)]

    def record_requeue(self, moved: int, states: tuple[str, ...], queued_before: set[int]) -> None:
        """Requeue the records in the model."""
        numbers = [number for number in self.queued_in_order() if number not in queued_before]
        assert len(numbers) == moved
        for worker in self.workers:  # their acks are forgotten
            worker.acked = [record for record in worker.acked if record.number not in numbers]
        part_of = {record.number: part for part in self.model.parts for record in part_records(self, part)}
        for number in numbers:
            record, part = self.model.records[number], part_of[number]
            assert record.state in states
            part.ended[record.segment, record.state] -= 1
            part.last += 1
            record.state, record.worker, record.order, record.commit = "queued", "", part.last, None
            part.live[number] = record
        for part in {part_of[number].number: part_of[number] for number in numbers}.values():
            part.arrived += 1

    async def import_some(self) -> None:
        """Push records from outside."""
        if not self.has_leases:
            return
        records: list[UrlRecord] = [self.any_record() for _ in range(4)]
        operations = self.operations
        session = operations.session
        new = 0
        for part in self.model.parts:
            of_part = [each for each in records if session.partition_of(each.host).number == part.number]
            new += sum(part.add(self.model.records[number_of(each)]) for each in of_part)
            part.arrived += bool(of_part)
        assert await operations.push(records) == new


def part_records(history: HistoryWithOperations, part: Any) -> list[Record]:
    """Return the records whose hosts are in a partition."""
    session = history.operations.session
    return [each for each in history.model.records.values() if session.partition_of(each.host).number == part.number]


async def _call_once(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


@pytest.mark.parametrize("part", range(PARTS))
def test_histories(redis, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_script(redis.url, monkeypatch)
    did: Counter[str] = Counter()
    for number in range(HISTORIES // PARTS):
        seed = random.randrange(1 << 32)
        print("seed", seed, "of part", part, "number", number)
        monkeypatch.setattr(verify, "HOSTS_AT_ONCE", random.Random(seed).choice([2, 1000]))
        monkeypatch.setattr(listing, "ROWS_MAX", random.Random(seed).choice([3, 1000]))
        history = HistoryWithOperations(redis.url, seed)
        history.run()
        did += history.did
    print(did)
