"""Checks of a worker that joins: whether another process uses its name, and which limits it changes for all workers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from lycosa.core.errors import ForeignState
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.worker.session import Session

CHECK_EVERY_S, CHECKS = 0.25, 6
"""Seconds between two checks, and their number. Workers report once a second: one without a report in this time is not
running."""

LIMITS = {
    "delay": "delay",
    "places": "concurrency_per_host",
    "ip_delay": "delay_per_ip",
    "ip_places": "concurrency_per_ip",
    "robots": "robots",
}
"""Limits of a crawl -> their settings. The strictest of all workers' values applies: see `redis/lua/limits.lua`."""


async def reject_duplicate_worker(session: Session) -> None:
    """Raise `ForeignState` if another process has our worker name: it runs with a copy of our state.

    Call this when our worker has expired and joins again. Otherwise the two processes would expire each other
    for ever.
    """
    before = await _reports(session)
    for _ in range(CHECKS if before else 0):
        await asyncio.sleep(CHECK_EVERY_S)
        now = await _reports(session)
        if not now:
            return
        if any(report != before.get(name) for name, report in now.items()):
            raise ForeignState(
                f"another process works for the crawl {session.crawl!r} with a copy of this state: "
                "give each worker a separate --state"
            )


async def _reports(session: Session) -> dict[bytes, bytes | None]:
    """The last reports of the live workers with our name."""
    first, prefix = session.partitions[0], f"{session.worker}#".encode()
    names = [name for name in await session.query("zrange", first, Key.WORKERS, 0, -1) if name.startswith(prefix)]
    return {name: await session.query("hget", first, Key.REPORTS, name) for name in names}


async def limits_of_others(session: Session) -> dict[str, float]:
    """Return the limits of the crawl, {} if it has no other workers."""
    prefix = f"{session.worker}#".encode()
    names = await session.query("zrange", session.partitions[0], Key.WORKERS, 0, -1)
    return {} if all(name.startswith(prefix) for name in names) else await _limits(session)


async def limit_messages(session: Session, before: Mapping[str, float], wanted: Mapping[str, float]) -> list[str]:
    """Return messages about limits that this worker changed for the others, and limits that it must adopt.

    `before` are the limits before it joined, `wanted` those of its settings.
    """
    now = await _limits(session) if before else {}
    was = {name: before.get(name, 0) for name in now}
    changed = [f"{_setting(name, now)} (it was {_value(name, was)})" for name in now if now[name] != was[name]]
    theirs = [f"{_setting(name, now)} (not {_value(name, wanted)})" for name in now if now[name] != wanted[name]]
    crawl = f"the crawl {session.crawl!r}"
    messages = [
        f"all workers of {crawl} use {', '.join(changed)} while this one runs: the strictest limits apply",
        f"this worker uses {', '.join(theirs)} while other workers of {crawl} request them: the strictest limits apply",
    ]
    return [message for message, limits in zip(messages, (changed, theirs), strict=True) if limits]


def _setting(name: str, limits: Mapping[str, float]) -> str:
    return f"{LIMITS[name]} {_value(name, limits)}"


def _value(name: str, limits: Mapping[str, float]) -> str:
    return str(bool(limits[name])).lower() if name == "robots" else f"{limits[name]:g}"


async def _limits(session: Session) -> dict[str, float]:
    found = await session.query("hmget", session.partitions[0], Key.META, *LIMITS)
    return {name: float(value) for name, value in zip(LIMITS, found, strict=True) if value is not None}
