"""`lycosa dht ...`."""

from __future__ import annotations

import click

from lycosa.cli.lazy_group import LazyGroup

COMMANDS = {
    "node": "Run a DHT node and show its state.",
    "crawl": "Find torrents and store their metadata.",
    "explain": "Explain whether a torrent is stored, and if not, why not.",
    "stats": "Show what a crawl has stored and queued.",
    "lookup": "Find the peers of a torrent, and estimate its seeds and leechers.",
    "metadata": "Fetch the metadata of torrents from their peers.",
    "announce": "Announce this host as a peer of a torrent.",
    "import": "Store torrents from files and from other crawlers' databases.",
    "export": "Write the stored torrents to a file.",
    "deny": "Remove torrents, and never store them again.",
    "allow": "Allow denied torrents to be stored again.",
    "rules": "Refuse and classify torrents by rules about their names.",
    "torrent-nodes": "Read or write the DHT nodes in a torrent file.",
}


def _module(name: str) -> str:
    return "import_" if name == "import" else name.replace("-", "_")


@click.group(
    "dht",
    cls=LazyGroup,
    commands_by_name={name: (f"{__name__}.{_module(name)}", text) for name, text in COMMANDS.items()},
    invoke_without_command=True,
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Run a node of the BitTorrent DHT, and query the network. The content of torrents is never fetched.

    \b
    lycosa dht node --bind 0.0.0.0:6881 --bootstrap default --state node
    lycosa dht lookup 0123456789abcdef0123456789abcdef01234567 --bind 0.0.0.0:0 --bootstrap default
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
