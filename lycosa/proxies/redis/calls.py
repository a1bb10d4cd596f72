"""Calls to the two scripts of a pool on Redis: one for all proxies, one for those of a target.

Calls for one target go together: while one round trip is under way those that come are gathered for the next. So a busy
process has few round trips, and the script reads and writes what is known of the target once for many calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from lycosa.infra.redis.scripts import LuaScript
from lycosa.infra.redis.server import RedisServer
from lycosa.proxies.redis.target_script import Call, apart, together

POOL_SCRIPT = LuaScript("lycosa.proxies.redis", ("common", "everywhere"))
TARGET_SCRIPT = LuaScript("lycosa.proxies.redis", ("common", "pairs", "target"))

TOGETHER_MAX = 32
"""Calls in one round trip: while the server works on them the process uses the answers to those before."""

UNDER_WAY_MAX = 2
"""Round trips of a target at a time: another one goes beside the first as soon as it is full."""

AT_ONCE_MAX = 64
"""Round trips at a time, each of which has a connection."""


class Calls:
    """The calls of one pool. `now` returns the time for the scripts (unix seconds), "" for that of the server."""

    def __init__(self, server: RedisServer, client: Any, pool: str, now: Callable[[], str]) -> None:
        self._server = server
        self._client = client
        self._pool = pool
        self._now = now
        self._gathered: dict[str, Gathered] = {}
        self._room = asyncio.Semaphore(AT_ONCE_MAX)

    async def target(self, target: str, call: Call) -> Any:
        """Make a call for a target. Raises `StateError`."""
        (answer,) = await self.together(target, [call])
        return answer

    def together(self, target: str, calls: Sequence[Call]) -> asyncio.Future[list[Any]]:
        """Make calls for a target, whose keys are in one slot. The answers may be a `StateError`.

        They are made to their end, whether somebody waits for the answers or not.
        """
        gathered = self._gathered.get(target)
        if gathered is None:

            async def run(calls: Sequence[Call]) -> list[Any]:
                prefix = f"lycosa:proxies:{{{self._pool}/{quote(target, safe='/:')}}}:"
                return apart(await self._run(TARGET_SCRIPT, prefix, [calls[-1].policy, together(calls)]))

            gathered = self._gathered[target] = Gathered(run, lambda: self._gathered.pop(target))
        return gathered.add(calls)

    async def everywhere(self, command: str, **arguments: Any) -> Any:
        """Make a call about proxies as such. Raises `StateError`."""
        given = [command, msgspec.msgpack.encode(arguments)]
        return msgspec.msgpack.decode(await self._run(POOL_SCRIPT, f"lycosa:proxies:{{{self._pool}}}:", given))

    async def targets(self) -> list[str]:
        """Return the targets, the one first that was used longest ago."""
        found = await self._server.retry(lambda: self._client.zrange(f"lycosa:proxies:{{{self._pool}}}:t", 0, -1))
        return [name.decode() for name in found]

    async def close(self) -> None:
        """Wait for what is under way, and disconnect."""
        while self._gathered:
            await asyncio.wait([gathered.is_over for gathered in self._gathered.values()])
        await self._client.aclose()

    async def _run(self, script: LuaScript, prefix: str, arguments: Sequence[Any]) -> Any:
        # A key that is there and one that never is: so a cluster that moves them to another server says to try again.
        keys, arguments = (prefix, f"{prefix}p"), (self._now(), *arguments)
        async with self._room:
            return await self._server.retry(lambda: script.run_async(self._client, keys, arguments))


class Gathered:
    """The calls for one target that wait for a round trip. `run` makes one; `ended` hears when nothing is left."""

    def __init__(self, run: Callable[[Sequence[Call]], Awaitable[list[Any]]], ended: Callable[[], Any]) -> None:
        self._run = run
        self._ended = ended
        self._waiting: deque[Asked] = deque()
        self._count = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.is_over = self._loop.create_future()
        self._loop.call_soon(self._begin)

    def add(self, calls: Sequence[Call]) -> asyncio.Future[list[Any]]:
        """Send them with the next ones."""
        answers: asyncio.Future[list[Any]] = self._loop.create_future()
        self._waiting.append(Asked(calls, answers))
        before, self._count = self._count, self._count + len(calls)
        if before < TOGETHER_MAX <= self._count:
            self._loop.call_soon(self._begin)
        return answers

    def _begin(self) -> None:
        """At the next turn of the loop, so that all that is asked in this one goes together."""
        while self._waiting and (not self._under_way or self._is_full()):
            task = self._loop.create_task(self._send(self._next()))
            self._under_way.add(task)
            task.add_done_callback(self._done)

    def _is_full(self) -> bool:
        return self._count >= TOGETHER_MAX and len(self._under_way) < UNDER_WAY_MAX

    def _next(self) -> list[Asked]:
        some, count = [], 0
        while self._waiting and count < TOGETHER_MAX:
            some.append(self._waiting.popleft())
            count += len(some[-1].calls)
        self._count -= count
        return some

    def _done(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._begin()
        if not self._under_way and not self.is_over.done():
            self._ended()
            self.is_over.set_result(None)

    async def _send(self, some: Sequence[Asked]) -> None:
        try:
            answers = await self._run([call for asked in some for call in asked.calls])
        except Exception as error:  # noqa: BLE001 - whoever waits has to hear of it, whatever it is
            for asked in some:
                if not asked.answers.done():
                    asked.answers.set_exception(error)
            return
        left = iter(answers)
        for calls, future in some:
            its = list(islice(left, len(calls)))
            if not future.done():
                future.set_result(its)


class Asked(NamedTuple):
    """Calls that stay together, and who waits for their answers."""

    calls: Sequence[Call]
    answers: asyncio.Future[list[Any]]
