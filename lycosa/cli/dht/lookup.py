"""`lycosa dht lookup`. Peers go to standard output, the rest to standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from lycosa.cli.dht.options import NodeOptions, join, node_options, parse_infohashes, report, run_with_node
from lycosa.cli.exit_codes import DONE
from lycosa.core.units import format_count


@click.command("lookup")
@click.argument("infohash", metavar="INFOHASH")
@node_options(is_short=True)
def command(infohash: str, options: NodeOptions) -> int:
    """Find the peers of a torrent, one ADDRESS:PORT per line, and estimate its seeds and leechers (BEP 33).

    INFOHASH is 40 hexadecimal digits, 32 base32 digits, 64 hexadecimal digits (version 2), or a magnet link. A hybrid
    torrent is looked up in both swarms.

    \b
    lycosa dht lookup 0123456789abcdef0123456789abcdef01234567 --bind 0.0.0.0:0 --bootstrap default
    """
    targets = parse_infohashes(infohash)
    return run_with_node(options, lambda session: _look_up(session, targets))


async def _look_up(session: Any, infohashes: Sequence[bytes]) -> int:
    from lycosa.dht.core.endpoints import text

    await join(session)
    found = await session.scrape_swarms(infohashes, lambda peer: print(text(peer), flush=sys.stdout.isatty()))
    seeds, leechers = round(found.seeds), round(found.leechers)
    estimate = f"about {format_count(seeds, 'seed')} and {format_count(leechers, 'leecher')} (estimate, BEP 33)"
    report(f"{format_count(found.peers, 'peer')}; {estimate}")
    return DONE
