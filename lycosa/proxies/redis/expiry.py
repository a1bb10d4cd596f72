"""Removes proxies from a pool on Redis: those that the caller names, or unleased ones long dead.

Leases are stored with the targets. On a cluster the targets and the pool may be on different servers, so no atomic step
can check both. First each target, in one atomic step, forgets the dead proxies that it has not leased. It cannot lease
them again, because a refill skips dead proxies. Then the pool, in one atomic step, forgets those that are still dead. A
proxy that a check revives between the steps stays in the pool, and later refills add it to targets again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lycosa.proxies.redis.calls import PoolCalls
from lycosa.proxies.redis.target_script import TargetScript

SCAN_START = SCAN_END = "0"

PROXIES_PER_CALL = 500


async def remove(calls: PoolCalls, script_of: Callable[[str], TargetScript], keys: Sequence[str]) -> int:
    """Forget proxies, even leased ones. Return how many were removed. Raises `StateError`."""
    count: int = await calls.call_pool("remove", keys=keys)
    for target in await calls.targets():
        for begin in range(0, len(keys), PROXIES_PER_CALL):
            some = keys[begin : begin + PROXIES_PER_CALL]
            await calls.call_target_all(target, [script_of(target).forget(key) for key in some])
    return count


async def forget_dead(calls: PoolCalls, script_of: Callable[[str], TargetScript], kept_s: float) -> list[str]:
    """Forget unleased proxies that have been dead for `kept_s` seconds. Return their keys. Raises `StateError`."""
    forgotten: list[str] = []
    cursor = SCAN_START
    while True:
        cursor, dead = await calls.call_pool("list_dead", cursor=cursor, kept_s=kept_s)
        if idle := await _forget_idle(calls, script_of, list(dead)):
            forgotten += await calls.call_pool("forget_dead", keys=idle, kept_s=kept_s)
        if cursor == SCAN_END:
            return forgotten


async def _forget_idle(
    calls: PoolCalls, script_of: Callable[[str], TargetScript], keys: Sequence[str]
) -> Sequence[str]:
    """Make each target forget what it has not leased. Return the keys of the proxies that no target has leased."""
    for target in await calls.targets() if keys else ():
        leased = await calls.call_target(target, script_of(target).forget_idle(keys))
        keys = [key for key in keys if key not in leased]
    return keys
