"""What a worker that joins looks for among the others: one of its own name, and limits that it changes for all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from lycosa.core.errors import ForeignState
from lycosa.frontiers.redis.session import Session

LOOK_S, LOOKS = 0.25, 6
"""A worker reports once a second: one that has not done so in this time does not run."""

LIMITS = {
    "delay": "delay",
    "places": "concurrency_per_host",
    "ip_delay": "delay_per_ip",
    "ip_places": "concurrency_per_ip",
    "robots": "robots",
}
"""Fields of the policy that all workers share, and their settings."""


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


def _shown(field: str, value: float) -> str:
    return str(bool(value)).lower() if field == "robots" else f"{value:g}"


async def changed_limits(session: Session, policy: Mapping[str, float]) -> str:
    """Return which limits our joining changes for workers that are there, "" for none: those of the last one hold."""
    first, mine = session.partitions[0], f"{session.worker}#".encode()
    names = await session.ask("zrange", first, "w", 0, -1)
    if all(name.startswith(mine) for name in names):
        return ""
    found = await session.ask("hmget", first, "m", *LIMITS)
    changes = [
        f"{LIMITS[field]} {_shown(field, policy[field])} (it was {_shown(field, float(was))})"
        for field, was in zip(LIMITS, found, strict=True)
        if was is not None and float(was) != policy[field]
    ]
    whose = f"all workers of the crawl {session.crawl!r} go by the settings of this one from now on"
    return f"{whose}: {', '.join(changes)}" if changes else ""
