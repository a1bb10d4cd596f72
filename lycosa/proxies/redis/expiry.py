"""How proxies leave a pool on Redis: at once, or when they are dead for long, and nobody has them.

Leases are with their targets, and a target is no neighbour of the pool on a cluster. So each target, in one step, lets
go those that it does not lend; from then on it cannot lend them, as a dead proxy fills up nothing. Then the pool, in
one step, forgets those that are dead still: one that a check revived meanwhile stays, and comes back to its targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lycosa.proxies.redis.calls import Calls
from lycosa.proxies.redis.target_script import TargetScript

ALL_SEEN = "0"
"""Where a walk over all proxies begins, and ends."""

TOLD_AT_ONCE = 500
"""Proxies in one call."""


async def remove(calls: Calls, script_of: Callable[[str], TargetScript], keys: Sequence[str]) -> int:
    """Forget proxies, whoever has them. Return how many there were. Raises `StateError`."""
    count: int = await calls.everywhere("remove", keys=keys)
    for target in await calls.targets():
        for begin in range(0, len(keys), TOLD_AT_ONCE):
            await calls.together(target, [script_of(target).forget(key) for key in keys[begin : begin + TOLD_AT_ONCE]])
    return count


async def forget_dead(calls: Calls, script_of: Callable[[str], TargetScript], kept_s: float) -> list[str]:
    """Forget them, and return their keys. Raises `StateError`."""
    gone: list[str] = []
    cursor = ALL_SEEN
    while True:
        cursor, dead = await calls.everywhere("dead", cursor=cursor, kept_s=kept_s)
        if idle := await _let_go(calls, script_of, list(dead)):
            gone += await calls.everywhere("forget_dead", keys=idle, kept_s=kept_s)
        if cursor == ALL_SEEN:
            return gone


async def _let_go(calls: Calls, script_of: Callable[[str], TargetScript], keys: Sequence[str]) -> Sequence[str]:
    """Return those that no target lends."""
    for target in await calls.targets() if keys else ():
        lease = await calls.target(target, script_of(target).forget_idle(keys))
        keys = [key for key in keys if key not in lease]
    return keys
