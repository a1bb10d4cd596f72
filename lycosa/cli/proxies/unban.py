"""`lycosa proxies unban`: lift bans and rests of proxies on a target."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lycosa.cli.exit_codes import one_line
from lycosa.cli.proxies.pool import meant, pool_option, run, target_argument
from lycosa.core.errors import UsageError
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyPool

RESTING = frozenset({ProxyState.BANNED, ProxyState.COOLING, ProxyState.HALF_OPEN})


@click.command("unban", short_help="Lift bans and rests of proxies on a target.")
@target_argument
@click.argument("proxies", nargs=-1, metavar="[PROXY]...")
@pool_option
@click.option("--all", "everyone", is_flag=True, help="All that are banned, or rest, on this target.")
def command(target: str, proxies: Sequence[str], address: str | None, *, everyone: bool) -> None:
    """Lend proxies for a target again, as if they had never been refused there.

    \b
    lycosa proxies unban shop.example 10.0.0.1:8080 --pool pool
    lycosa proxies unban shop.example --all --pool pool
    """
    if bool(proxies) == everyone:
        raise UsageError("which proxies? name some, or write --all")

    async def story(pool: ProxyPool) -> None:
        views = await pool.proxies(target) if everyone else await pool.proxies()
        some: list[Proxy] = (
            [view.proxy for view in views if view.state in RESTING] if everyone else meant(proxies, views)
        )
        for proxy in some:
            await pool.unban(target, proxy.key)
        what = "1 proxy" if len(some) == 1 else f"{len(some):,} proxies"
        print(f"{what} may be lent for {one_line(target)} again")

    run(address, story)
