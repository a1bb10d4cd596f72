"""`lycosa proxies remove`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lycosa.app.proxies.inspection import select_proxies
from lycosa.cli.proxies.pool import find_proxies, parse_tags, pool_option, run, tag_option
from lycosa.core.errors import UsageError
from lycosa.core.units import format_count
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.ports import ProxyPool


@click.command("remove")
@click.argument("proxies", nargs=-1, metavar="[PROXY]...")
@pool_option
@click.option("--dead", is_flag=True, help="Remove all dead proxies.")
@tag_option
@click.option("--all", "everything", is_flag=True, help="Remove all proxies.")
def command(proxies: Sequence[str], address: str | None, tags: Sequence[str], *, dead: bool, everything: bool) -> None:
    """Remove proxies and everything that the pool has learned about them, and end their leases.

    \b
    lycosa proxies remove 10.0.0.1:8080 --pool pool
    lycosa proxies remove --dead --tag provider=acme --pool pool
    """
    required_tags = parse_tags(tags)
    if bool(proxies) + bool(dead or required_tags) + everything != 1:
        raise UsageError("which proxies? name some, or write --dead, --tag NAME=VALUE, or --all")

    async def action(pool: ProxyPool) -> int:
        views = await pool.proxies()
        if proxies:
            return await pool.remove([each.key for each in find_proxies(proxies, views)])
        selected = select_proxies(views, ProxyState.DEAD if dead else None, required_tags)
        return await pool.remove([view.proxy.key for view in selected])

    print(f"{format_count(run(address, action), 'proxy')} removed")
