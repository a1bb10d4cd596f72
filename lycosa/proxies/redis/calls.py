"""Calls to the two scripts of a pool on Redis.

Calls for one target that are made during a round trip are sent together in the next one. A busy process therefore makes
few round trips, and the script reads and writes the state of the target once for many calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from lycosa.infra.redis.scripts import LuaScript
from lycosa.infra.redis.server import RedisServer
from lycosa.proxies.redis.scripts import POOL_KEYS, POOL_SCRIPT, TARGET_SCRIPT, keys_of, pool_prefix, target_prefix
from lycosa.proxies.redis.target_script import TargetCall, decode_answers, encode_calls

BATCH_MAX = 32
"""Maximum number of calls in one round trip. Calls that must go together may exceed it."""

TRIPS_MAX = 2
"""Maximum number of concurrent round trips for one target. With two, the process handles the answers to one batch
while the server executes the next. The second round trip starts only with a full batch.
"""

CONNECTIONS_MAX = 64
"""Maximum number of concurrent round trips of one `PoolCalls`."""


class PoolCalls:
    """The calls for one pool. `now` returns the time for the scripts (unix seconds, "" for the server's clock)."""

    def __init__(self, server: RedisServer, client: Any, pool: str, now: Callable[[], str]) -> None:
        self._server = server
        self._client = client
        self._pool = pool
        self._now = now
        self._batchers: dict[str, CallBatcher] = {}
        self._connections = asyncio.Semaphore(CONNECTIONS_MAX)

    async def call_target(self, target: str, call: TargetCall) -> Any:
        """Raises `StateError`."""
        (answer,) = await self.call_target_all(target, [call])
        return answer

    def call_target_all(self, target: str, calls: Sequence[TargetCall]) -> asyncio.Future[list[Any]]:
        """Make calls for a target in one round trip. The future gets their answers, or a `StateError`.

        Cancelling the future does not cancel the calls.
        """
        batcher = self._batchers.get(target)
        if batcher is None:

            async def run(calls: Sequence[TargetCall]) -> list[Any]:
                arguments = [calls[-1].policy, encode_calls(calls)]
                return decode_answers(await self._run(TARGET_SCRIPT, target_prefix(self._pool, target), arguments))

            batcher = self._batchers[target] = CallBatcher(run, lambda: self._batchers.pop(target))
        return batcher.add(calls)

    async def call_pool(self, command: str, **arguments: Any) -> Any:
        """Raises `StateError`."""
        packed = msgspec.msgpack.encode(arguments)
        return msgspec.msgpack.decode(await self._run(POOL_SCRIPT, pool_prefix(self._pool), [command, packed]))

    async def targets(self) -> list[str]:
        """Return the targets, least recently used first."""
        key = pool_prefix(self._pool) + POOL_KEYS["targets"]
        found = await self._server.retry(lambda: self._client.zrange(key, 0, -1))
        return [name.decode() for name in found]

    async def close(self) -> None:
        """Wait for the calls in progress, and disconnect."""
        while self._batchers:
            await asyncio.wait([batcher.finished for batcher in self._batchers.values()])
        await self._client.aclose()

    async def _run(self, script: LuaScript, prefix: str, arguments: Sequence[Any]) -> Any:
        keys, arguments = keys_of(prefix), (self._now(), *arguments)
        async with self._connections:
            return await self._server.retry(lambda: script.run_async(self._client, keys, arguments))


class CallBatcher:
    """Batches the calls for one target. `run` makes a round trip; `on_finished` is called when no calls are left."""

    def __init__(
        self, run: Callable[[Sequence[TargetCall]], Awaitable[list[Any]]], on_finished: Callable[[], Any]
    ) -> None:
        self._run = run
        self._on_finished = on_finished
        self._pending: deque[PendingCalls] = deque()
        self._count = 0
        self._trips: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.finished = self._loop.create_future()
        # In the next iteration of the loop, to send all calls of this iteration together.
        self._loop.call_soon(self._start_trips)

    def add(self, calls: Sequence[TargetCall]) -> asyncio.Future[list[Any]]:
        """Add calls for the same round trip. The future gets their answers."""
        answers: asyncio.Future[list[Any]] = self._loop.create_future()
        self._pending.append(PendingCalls(calls, answers))
        before, self._count = self._count, self._count + len(calls)
        if before < BATCH_MAX <= self._count:
            self._loop.call_soon(self._start_trips)
        return answers

    def _start_trips(self) -> None:
        while self._pending and (not self._trips or (self._count >= BATCH_MAX and len(self._trips) < TRIPS_MAX)):
            task = self._loop.create_task(self._send(self._next_batch()))
            self._trips.add(task)
            task.add_done_callback(self._end_trip)

    def _next_batch(self) -> list[PendingCalls]:
        batch, count = [], 0
        while self._pending and count < BATCH_MAX:
            batch.append(self._pending.popleft())
            count += len(batch[-1].calls)
        self._count -= count
        return batch

    def _end_trip(self, task: asyncio.Task[None]) -> None:
        self._trips.discard(task)
        self._start_trips()
        if not self._trips and not self.finished.done():
            self._on_finished()
            self.finished.set_result(None)

    async def _send(self, batch: Sequence[PendingCalls]) -> None:
        try:
            answers = await self._run([call for pending in batch for call in pending.calls])
        except Exception as error:  # noqa: BLE001 - it is raised where the answers are awaited
            for pending in batch:
                if not pending.answers.done():
                    pending.answers.set_exception(error)
            return
        remaining = iter(answers)
        for calls, future in batch:
            own = list(islice(remaining, len(calls)))
            if not future.done():
                future.set_result(own)


class PendingCalls(NamedTuple):
    """Calls that go in the same round trip, and the future of their answers."""

    calls: Sequence[TargetCall]
    answers: asyncio.Future[list[Any]]
