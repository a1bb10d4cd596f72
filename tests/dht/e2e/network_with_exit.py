"""Our nodes and libtorrent's on loopback, in a network namespace whose route to the outside is watched.

    unshare -rn python -m tests.dht.e2e.network_with_exit

Our node is bound to all addresses, and all but loopback is reached through one interface, whose other end nobody reads.
Prints, as JSON, what was found, and how many packets left through that interface.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from lycosa.core.errors import NoMetadata
from lycosa.dht.core.endpoints import pack, parse
from lycosa.dht.core.limits import NodeLimits
from lycosa.dht.session import open_node
from tests.servers.dht_clients import libtorrent_nodes

LIBTORRENT_NODES = 3
INFOHASH = bytes(range(20))
ANNOUNCER = "127.0.3.1"
COUNTER = Path("/proc/net/dev")
PRIVATE = [pack("10.0.0.1", 25), pack("192.168.1.1", 25), pack("169.254.1.1", 25), pack("224.0.0.1", 25)]
SETUP = """
sysctl -q -w net.ipv6.conf.all.disable_ipv6=1
ip link set lo up
ip link add exit type veth peer name unread
ip link set exit up
ip link set unread up
ip addr add 192.0.2.1/24 dev exit
ip route add default via 192.0.2.2
"""


def packets_out() -> int:
    """Return how many packets left through the exit."""
    (line,) = (line for line in COUNTER.read_text().splitlines() if line.strip().startswith("exit:"))
    return int(line.split(":")[1].split()[9])


async def until(happened: Callable[[], bool]) -> None:
    while not happened():  # noqa: ASYNC110  the parent has a time-out
        await asyncio.sleep(0.05)


async def run() -> dict[str, object]:
    fast = NodeLimits(queries_per_s=1000, queries_burst=1000)
    allowed = ["127.0.0.0/8"]
    with libtorrent_nodes(LIBTORRENT_NODES) as theirs:
        places = [node.place for node in theirs]
        async with (
            open_node(["0.0.0.0:0"], bootstrap=places, allow_private=allowed, limits=fast) as ours,
            open_node([f"{ANNOUNCER}:0"], bootstrap=places, allow_private=allowed, limits=fast) as other,
        ):
            for node in theirs:
                node.add(f"127.0.0.1:{int.from_bytes(ours.endpoints[0][-2:])}")
            await ours.joined()
            await other.joined()
            # The nodes may not know each other yet.
            while (announced := await other.announce(INFOHASH, 9)).confirmed <= LIBTORRENT_NODES:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            peers = [str(peer) async for peer in ours.lookup(INFOHASH)]
            await ours.scrape(INFOHASH)
            failures = ""
            try:
                await ours.metadata(INFOHASH, PRIVATE)
            except NoMetadata as error:
                failures = str(error)
            sent = packets_out()
            ours.start_ping(parse("198.51.100.1:9"))  # proves that the counter works
            await until(lambda: packets_out() > sent)
            return {"confirmed": announced.confirmed, "peers": peers, "failures": failures, "sent": sent}


def main() -> None:
    subprocess.run(["sh", "-ec", SETUP], check=True)
    print(json.dumps(asyncio.run(run())))


if __name__ == "__main__":
    main()
