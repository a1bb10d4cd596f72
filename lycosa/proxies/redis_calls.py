"""Calls to the two scripts of a pool on Redis: one for all proxies, one for those of a target.

Calls for one target go together: while one round trip is under way those that come are gathered for the next. So a busy
process has few round trips, and the script reads and writes what is known of the target once for many calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import msgspec

from lycosa.proxies.target_script import Call, apart, together
from lycosa.servers.redis import package_redis
from lycosa.servers.redis_connection import Server

PARTS = {"everywhere": ("common", "everywhere"), "target": ("common", "pairs", "target")}
"""The files of a script."""

TOGETHER_MAX = 128
"""Calls in one round trip: the server does nothing else meanwhile."""

AT_ONCE_MAX = 64
"""Round trips at a time, each of which has a connection."""


@cache
def script(name: str) -> tuple[bytes, str]:
    """Return the text of a script and its checksum."""
    folder = files("lycosa.proxies") / "lua"
    text = b"\n".join((folder / f"{part}.lua").read_bytes() for part in PARTS[name])
    return text, sha1(text, usedforsecurity=False).hexdigest()


class Calls:
    """The calls of one pool. `now` returns the time for the scripts (unix seconds), "" for that of the server."""

    def __init__(self, server: Server, client: Any, pool: str, now: Callable[[], str]) -> None:
        self._server = server
        self._client = client
        self._pool = pool
        self._now = now
        self._gathered: dict[str, Gathered] = {}
        self._room = asyncio.Semaphore(AT_ONCE_MAX)

    def target(self, target: str, call: Call) -> asyncio.Future[Any]:
        """Make a call for a target, whose keys are in one slot. The answer may be a `StateError`.

        It is made to its end, whether somebody waits for the answer or not.
        """
        gathered = self._gathered.get(target)
        if gathered is None:

            async def run(calls: Sequence[Call]) -> list[Any]:
                prefix = f"lycosa:proxies:{{{self._pool}/{quote(target, safe='/:')}}}:"
                return apart(await self._run("target", prefix, [calls[-1].policy, together(calls)]))

            gathered = self._gathered[target] = Gathered(run, lambda: self._gathered.pop(target))
        return gathered.add(call)

    async def everywhere(self, command: str, **arguments: Any) -> Any:
        """Make a call about proxies as such. Raises `StateError`."""
        given = [command, msgspec.msgpack.encode(arguments)]
        return msgspec.msgpack.decode(await self._run("everywhere", f"lycosa:proxies:{{{self._pool}}}:", given))

    async def targets(self) -> list[str]:
        """Return the targets, the one first that was used longest ago."""
        found = await self._server.patiently(lambda: self._client.zrange(f"lycosa:proxies:{{{self._pool}}}:t", 0, -1))
        return [name.decode() for name in found]

    async def close(self) -> None:
        """Wait for what is under way, and disconnect."""
        while self._gathered:
            await asyncio.wait([gathered.task for gathered in self._gathered.values()])
        await self._client.aclose()

    async def _run(self, name: str, prefix: str, given: Sequence[Any]) -> Any:
        text, checksum = script(name)
        # A key that is there and one that never is: so a cluster that moves them to another server says to try again.
        arguments = (2, prefix, f"{prefix}p", self._now(), *given)

        async def act() -> Any:
            try:
                return await self._client.execute_command("EVALSHA", checksum, *arguments)
            except package_redis().exceptions.NoScriptError:
                return await self._client.execute_command("EVAL", text, *arguments)

        async with self._room:
            return await self._server.patiently(act)


class Gathered:
    """The calls for one target that wait for a round trip. `run` makes one; `ended` hears when nothing is left."""

    def __init__(self, run: Callable[[Sequence[Call]], Awaitable[list[Any]]], ended: Callable[[], Any]) -> None:
        self._run = run
        self._ended = ended
        self._waiting: deque[tuple[Call, asyncio.Future[Any]]] = deque()
        self.task = asyncio.create_task(self._send())

    def add(self, call: Call) -> asyncio.Future[Any]:
        """Send it with the next ones."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, future))
        return future

    async def _send(self) -> None:
        """Begin at the next turn of the loop, so that all that is asked in this one goes together."""
        try:
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(len(self._waiting), TOGETHER_MAX))]
                await self._send_some(some)
        finally:
            self._ended()

    async def _send_some(self, some: Sequence[tuple[Call, asyncio.Future[Any]]]) -> None:
        try:
            answers = await self._run([call for call, _ in some])
        except Exception as error:  # noqa: BLE001 - whoever waits has to hear of it, whatever it is
            for _, future in some:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(some, answers, strict=True):
            if not future.done():
                future.set_result(answer)
