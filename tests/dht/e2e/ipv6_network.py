"""A network of DHT nodes on IPv6 in a network namespace: `unshare -rn python -m tests.dht.e2e.ipv6_network`.

Each node is in a /48 of its own, because a routing table takes only one contact of a /48. Prints, as JSON, what lookups
find. Nothing but loopback exists in the namespace.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from contextlib import AsyncExitStack

from lycosa.dht.core.endpoints import unpack
from lycosa.dht.core.limits import NodeLimits
from lycosa.dht.session import DhtSession, open_node

NODES = 12
INFOHASH = bytes(range(20))
PORT = 6881


async def until(happened: Callable[[], bool]) -> None:
    while not happened():  # noqa: ASYNC110  the parent has a time-out
        await asyncio.sleep(0.05)


async def run() -> dict[str, object]:
    fast = NodeLimits(queries_per_s=1000, queries_burst=1000)
    sessions: list[DhtSession] = []
    async with AsyncExitStack() as stack:
        for number in range(NODES):
            session = await stack.enter_async_context(
                open_node(
                    [f"[fd00:0:{number:x}::1]:{PORT}", f"127.0.1.{number + 1}:{PORT}"],
                    bootstrap=[f"[fd00::1]:{PORT}", f"127.0.1.1:{PORT}"] if number else [],
                    allow_private=["fd00::/8", "127.0.0.0/8"],
                    limits=fast,
                )
            )
            sessions.append(session)
            if number:
                await session.joined()
        await until(
            lambda: all(status.contacts.good >= 8 for status in sessions[0].status())
        )  # the first node verifies two contacts a second
        announced = await sessions[1].announce(INFOHASH, 999)
        peers = [str(peer) async for peer in sessions[-1].lookup(INFOHASH)]
        closest = [unpack(each.endpoint)[0] for each in await sessions[-1].find_node(INFOHASH)]
        return {"confirmed": announced.confirmed, "peers": sorted(peers), "closest": closest}


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for number in range(NODES):
        subprocess.run(["ip", "-6", "addr", "add", f"fd00:0:{number:x}::1/64", "dev", "lo", "nodad"], check=True)
    print(json.dumps(asyncio.run(run())))


if __name__ == "__main__":
    main()
