"""`lycosa proxies remove`: forget proxies."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lycosa.cli.proxies.pool import meant, pool_option, run, tag_option, tags_of
from lycosa.core.errors import UsageError
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.ports import ProxyPool


@click.command("remove", short_help="Forget proxies.")
@click.argument("proxies", nargs=-1, metavar="[PROXY]...")
@pool_option
@click.option("--dead", is_flag=True, help="All that are dead.")
@tag_option
@click.option("--all", "everyone", is_flag=True, help="All there are.")
def command(proxies: Sequence[str], address: str | None, tags: Sequence[str], *, dead: bool, everyone: bool) -> None:
    """Forget proxies, and all that is known of them. Leases of them end.

    \b
    lycosa proxies remove 10.0.0.1:8080 --pool pool
    lycosa proxies remove --dead --tag provider=acme --pool pool
    """
    wanted = tags_of(tags)
    if bool(proxies) + bool(dead or wanted) + everyone != 1:
        raise UsageError("which proxies? name some, or write --dead, --tag NAME=VALUE, or --all")

    async def story(pool: ProxyPool) -> int:
        views = await pool.proxies()
        if proxies:
            return await pool.remove([each.key for each in meant(proxies, views)])
        return await pool.remove(
            [
                view.proxy.key
                for view in views
                if (not dead or view.state is ProxyState.DEAD) and wanted.items() <= view.proxy.tags.items()
            ]
        )

    removed = run(address, story)
    print(f"{removed:,} {'proxy' if removed == 1 else 'proxies'} removed")
