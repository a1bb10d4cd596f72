"""`lycosa proxies unban`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lycosa.cli.exit_codes import one_line
from lycosa.cli.proxies.pool import find_proxies, pool_option, run, target_argument
from lycosa.core.errors import UsageError
from lycosa.core.units import format_count
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.ports import ProxyPool

LIFTED = frozenset({ProxyState.BANNED, ProxyState.COOLING, ProxyState.HALF_OPEN})


@click.command("unban")
@target_argument
@click.argument("proxies", nargs=-1, metavar="[PROXY]...")
@pool_option
@click.option("--all", "everything", is_flag=True, help="All proxies that are banned or cooling down for this target.")
def command(target: str, proxies: Sequence[str], address: str | None, *, everything: bool) -> None:
    """Lift the bans and cool-downs of proxies for a target, as if there had been none.

    \b
    lycosa proxies unban shop.example 10.0.0.1:8080 --pool pool
    lycosa proxies unban shop.example --all --pool pool
    """
    if bool(proxies) == everything:
        raise UsageError("which proxies? name some, or write --all")

    async def action(pool: ProxyPool) -> None:
        views = await pool.proxies(target if everything else None)
        selected = (
            [each.proxy for each in views if each.state in LIFTED] if everything else find_proxies(proxies, views)
        )
        for proxy in selected:
            await pool.unban(target, proxy.key)
        print(f"{format_count(len(selected), 'proxy')} unbanned on {one_line(target)}")

    run(address, action)
