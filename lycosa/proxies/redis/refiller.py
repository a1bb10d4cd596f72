"""Fills targets on Redis with proxies of the pool."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.redis.calls import PoolCalls
from lycosa.proxies.redis.target_script import kind_of, script_of
from lycosa.proxies.views import facts_of

log = logging.getLogger(__name__)

REFRESH_S = 1.0
"""Minimum seconds between two reads of the pool's versions, which show changes by other processes."""


class Refiller:
    """Refills targets. A target no longer counts as filled after `version` has changed.

    `on_changed` is called when tags or prices may have changed, or proxies may have been removed.
    """

    def __init__(
        self, calls: PoolCalls, policy_of: Callable[[str], TargetPolicy], on_changed: Callable[[], None]
    ) -> None:
        self.version = self._facts_version = 0
        self._calls = calls
        self._on_changed = on_changed
        self._policy_of = policy_of
        self._refreshed_at = 0.0
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def refresh(self) -> None:
        """Read the versions, unless the last read was within REFRESH_S. Raises `StateError`."""
        if time.monotonic() - self._refreshed_at > REFRESH_S:
            self._refreshed_at = time.monotonic()
            self.version, facts_version = await self._calls.call_pool("versions")
            if facts_version != self._facts_version:
                self._on_changed()
            self._facts_version = facts_version

    def refresh_next(self) -> None:
        """Make the next `refresh` read the versions."""
        self._refreshed_at = 0.0

    async def refill(self, target: str, request: ProxyRequest) -> None:
        """Concurrent calls share one task. Raises `StateError`."""
        await asyncio.shield(self.start(target, request))

    def start(self, target: str, request: ProxyRequest) -> asyncio.Task[None]:
        """Start a refill, or return the running one. A failure is logged."""
        target_and_kind = target, kind_of(request)
        task = self._tasks.get(target_and_kind)
        if task is None:
            task = self._tasks[target_and_kind] = asyncio.create_task(self._refill(target, request))
            task.add_done_callback(partial(self._end, target_and_kind))
        return task

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    def _end(self, target_and_kind: tuple[str, str], task: asyncio.Task[None]) -> None:
        del self._tasks[target_and_kind]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s was not refilled with proxies: %s", target_and_kind[0], error)

    async def _refill(self, target: str, request: ProxyRequest) -> None:
        """Add fitting proxies, lowest latency first, until `policy.members` are usable."""
        policy = self._policy_of(target)
        script = script_of(policy)
        keys, usable = await self._calls.call_target(target, script.members(request))
        found, self.version, evicted = await self._calls.call_pool(
            "refill",
            target=target,
            tags=dict(request.tags),
            has=list(keys),
            count=max(0, policy.members - usable),
        )
        await self._calls.call_target(target, script.learn(facts_of(found), request, self.version))
        for name in evicted:
            if not await self._calls.call_target(name, script_of(self._policy_of(name)).drop()):
                await self._calls.call_pool("keep_target", target=name)
