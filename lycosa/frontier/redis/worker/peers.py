"""What a worker that joins looks for among the others: one of its own name, and limits that it changes for all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from lycosa.core.errors import ForeignState
from lycosa.frontier.redis.worker.session import Session

LOOK_S, LOOKS = 0.25, 6
"""A worker reports once a second: one that has not done so in this time does not run."""

LIMITS = {
    "delay": "delay",
    "places": "concurrency_per_host",
    "ip_delay": "delay_per_ip",
    "ip_places": "concurrency_per_ip",
    "robots": "robots",
}
"""Limits of a crawl and their settings. The gentlest wish of a worker holds: see `frontier/redis/lua/limits.lua`."""


async def refuse_twin(session: Session) -> None:
    """Raise `ForeignState` when another process takes part under our name, since it has a copy of our state.

    Only for one that has just been given up: two of them would give up each other for ever.
    """
    before = await _reports(session)
    for _ in range(LOOKS if before else 0):
        await asyncio.sleep(LOOK_S)
        now = await _reports(session)
        if not now:
            return
        if any(report != before.get(name) for name, report in now.items()):
            raise ForeignState(
                f"another process takes part in the crawl {session.crawl!r} with a copy of this state: "
                "give each worker a --state of its own"
            )


async def _reports(session: Session) -> dict[bytes, bytes | None]:
    """Return what those of our name reported last, who are there."""
    first, mine = session.partitions[0], f"{session.worker}#".encode()
    names = [name for name in await session.ask("zrange", first, "w", 0, -1) if name.startswith(mine)]
    return {name: await session.ask("hget", first, "ws", name) for name in names}


def _shown(name: str, limits: Mapping[str, float]) -> str:
    return f"{LIMITS[name]} {_value(name, limits)}"


def _value(name: str, limits: Mapping[str, float]) -> str:
    return str(bool(limits[name])).lower() if name == "robots" else f"{limits[name]:g}"


async def limits_of_others(session: Session) -> dict[str, float]:
    """Return the limits of a crawl that others are at; nothing when nobody is."""
    mine = f"{session.worker}#".encode()
    names = await session.ask("zrange", session.partitions[0], "w", 0, -1)
    return {} if all(name.startswith(mine) for name in names) else await _limits(session)


async def told_limits(session: Session, before: Mapping[str, float], wanted: Mapping[str, float]) -> list[str]:
    """Return what our joining has changed for the others, and what of theirs holds for us."""
    now = await _limits(session) if before else {}
    was = {name: before.get(name, 0) for name in now}
    changed = [f"{_shown(name, now)} (it was {_value(name, was)})" for name in now if now[name] != was[name]]
    theirs = [f"{_shown(name, now)} (not {_value(name, wanted)})" for name in now if now[name] != wanted[name]]
    crawl = f"the crawl {session.crawl!r}"
    told = [
        f"all workers of {crawl} go by {', '.join(changed)} while this one is there: the gentlest limits hold",
        f"this worker goes by {', '.join(theirs)} while others of {crawl} want that: the gentlest limits hold",
    ]
    return [line for line, limits in zip(told, (changed, theirs), strict=True) if limits]


async def _limits(session: Session) -> dict[str, float]:
    found = await session.ask("hmget", session.partitions[0], "m", *LIMITS)
    return {name: float(value) for name, value in zip(LIMITS, found, strict=True) if value is not None}
