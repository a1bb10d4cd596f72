"""How targets on a server get their proxies from the pool of all: when somebody finds that there may be more."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.redis.calls import Calls
from lycosa.proxies.redis.target_script import kind_of, script_of
from lycosa.proxies.views import facts_of

log = logging.getLogger(__name__)

SEE_S = 1.0
"""How often is looked whether others have changed the proxies."""


class Refiller:
    """`version` is that of all proxies, as it was seen last: what was filled up before that may be filled up anew.

    `forget` is called when proxies may have other tags or prices than before.
    """

    def __init__(self, calls: Calls, policy_of: Callable[[str], TargetPolicy], forget: Callable[[], None]) -> None:
        self.version = self._edition = 0
        self._calls = calls
        self._forget = forget
        self._policy_of = policy_of
        self._seen_at = 0.0
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def see(self) -> None:
        """Look now and then whether targets can be filled up anew. Raises `StateError`."""
        if time.monotonic() - self._seen_at > SEE_S:
            self._seen_at = time.monotonic()
            self.version, edition = await self._calls.everywhere("version")
            if edition != self._edition:
                self._forget()
            self._edition = edition

    def changed(self) -> None:
        """Look at once, the next time."""
        self._seen_at = 0.0

    async def fill(self, target: str, request: ProxyRequest) -> None:
        """Fill a target up, once for all who want that for the same kind of wish. Raises `StateError`."""
        await asyncio.shield(self.begin(target, request))

    def begin(self, target: str, request: ProxyRequest) -> asyncio.Task[None]:
        """Begin to fill it up; nobody has to wait for it."""
        which = target, kind_of(request)
        task = self._tasks.get(which)
        if task is None:
            task = self._tasks[which] = asyncio.create_task(self._fill(target, request))
            task.add_done_callback(partial(self._end, which))
        return task

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    def _end(self, which: tuple[str, str], task: asyncio.Task[None]) -> None:
        del self._tasks[which]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s was not filled up with proxies: %s", which[0], error)

    async def _fill(self, target: str, request: ProxyRequest) -> None:
        """Let a target have as many proxies that fit as its policy says, the nearest first."""
        policy = self._policy_of(target)
        script = script_of(policy)
        keys, usable = await self._calls.target(target, script.members(request))
        missing = max(0, policy.members - usable)
        asked = {"target": target, "tags": dict(request.tags), "has": list(keys), "count": missing}
        told, self.version, forgotten = await self._calls.everywhere("fill", **asked)
        await self._calls.target(target, script.learn(facts_of(told), request, self.version))
        for name in forgotten:
            if not await self._calls.target(name, script_of(self._policy_of(name)).drop()):
                await self._calls.everywhere("keep", target=name)
