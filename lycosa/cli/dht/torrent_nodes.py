"""`lycosa dht torrent-nodes`. Clients join through the nodes in a torrent file (BEP 5)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from lycosa.cli.dht.options import NodeOptions, join, node_options, report, run_with_node
from lycosa.cli.exit_codes import DONE, printable
from lycosa.cli.parameters import NON_EMPTY
from lycosa.core.errors import LycosaError
from lycosa.core.units import format_count


@click.command("torrent-nodes")
@click.argument("file", metavar="FILE")
@click.option(
    "-o",
    "--output",
    type=NON_EMPTY,
    metavar="FILE",
    help="Write a copy of the torrent to this file; it may be the same file. The copy has no trackers; its nodes are "
    "the good contacts closest to the infohash.",
)
@node_options(is_short=True)
def command(file: str, options: NodeOptions, output: str | None) -> int:
    """Print the DHT nodes in a torrent file, one HOST:PORT per line. With -o, write a trackerless torrent.

    \b
    lycosa dht torrent-nodes old.torrent
    lycosa dht torrent-nodes old.torrent -o new.torrent --bind 0.0.0.0:0 --bootstrap default
    """
    from lycosa.app.dht import load_torrent

    torrent = load_torrent(file)
    if output is not None:
        return run_with_node(options, lambda session: _write(session, torrent, Path(output)))
    for host, port in torrent.nodes:
        print(f"[{printable(host)}]:{port}" if ":" in host else f"{printable(host)}:{port}")
    report(format_count(len(torrent.nodes), "node"))
    return DONE


async def _write(session: Any, torrent: Any, output: Path) -> int:
    from lycosa.dht.core.endpoints import unpack
    from lycosa.dht.core.metadata.info import read_info
    from lycosa.dht.core.torrent_file import write_torrent_file
    from lycosa.infra.disk import write_error
    from lycosa.infra.durable_files import replace_file

    infohash = read_info(torrent.info).infohashes[0]
    await join(session)
    await session.find_node(infohash)
    contacts = session.contacts(infohash)
    if not contacts:
        raise LycosaError("no good contacts: try again when the node knows more than the public bootstrap nodes")
    nodes = tuple(unpack(contact.endpoint) for contact in contacts)
    try:
        replace_file(output, write_torrent_file(dataclasses.replace(torrent, nodes=nodes)), sync=False)
    except OSError as error:
        raise write_error(output, error, "cannot be written") from None
    report(f"{output}: {format_count(len(nodes), 'node')}")
    return DONE
