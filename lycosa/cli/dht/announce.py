"""`lycosa dht announce`: announce this host as a peer of a torrent, once. Nodes forget it after about 30 minutes."""

from __future__ import annotations

from typing import Any

import click

from lycosa.cli.dht.options import NodeOptions, join, node_options, parse_infohashes, report, run_with_node
from lycosa.cli.exit_codes import DONE, FAILED


@click.command("announce")
@click.argument("infohash", metavar="INFOHASH")
@click.option("--peer-port", type=click.IntRange(1, 65535), required=True, metavar="N", help="TCP port of the peer.")
@click.option("--seed", is_flag=True, help="The peer has the whole content (BEP 33).")
@node_options(is_short=True)
def command(infohash: str, peer_port: int, options: NodeOptions, *, seed: bool) -> int:
    """Announce this host as a peer of a torrent, once.

    Nodes forget a peer after about 30 minutes, so a client has to repeat its announce.

    \b
    lycosa dht announce 0123456789abcdef0123456789abcdef01234567 --peer-port 6881 --bind 0.0.0.0:0 --bootstrap default
    """
    target = parse_infohashes(infohash)[0]
    return run_with_node(options, lambda session: _announce(session, target, peer_port, seed=seed))


async def _announce(session: Any, infohash: bytes, port: int, *, seed: bool) -> int:
    await join(session)
    result = await session.announce(infohash, port, seed=seed)
    report(f"{result.confirmed} of {result.asked} nodes store the peer")
    return DONE if result.confirmed else FAILED
