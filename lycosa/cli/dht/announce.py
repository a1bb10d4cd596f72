"""`lycosa dht announce`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
    """Announce this host as a peer of a torrent, once. A hybrid torrent is announced in both swarms.

    INFOHASH is an infohash or a magnet link. Nodes forget a peer after 30 to 45 minutes. Exit code 3: in at least one
    swarm, no node stored the peer.

    \b
    lycosa dht announce 0123456789abcdef0123456789abcdef01234567 --peer-port 6881 --bind 0.0.0.0:0 --bootstrap default
    """
    targets = parse_infohashes(infohash)
    return run_with_node(options, lambda session: _announce(session, targets, peer_port, seed=seed))


async def _announce(session: Any, infohashes: Sequence[bytes], port: int, *, seed: bool) -> int:
    await join(session)
    results = await asyncio.gather(*(session.announce(each, port, seed=seed) for each in infohashes))
    for infohash, result in zip(infohashes, results, strict=True):
        swarm = f"{infohash.hex()}: " if len(infohashes) > 1 else ""
        report(f"{swarm}{result.confirmed} of {result.asked} nodes store the peer")
    return DONE if all(result.confirmed for result in results) else FAILED
