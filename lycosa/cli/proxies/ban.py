"""`lycosa proxies ban`: keep proxies from a target, for a time or until somebody lifts it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from lycosa.cli.exit_codes import one_line
from lycosa.cli.frontier.rows import format_time
from lycosa.cli.proxies.pool import meant, pool_option, run, seconds, target_argument
from lycosa.core.errors import UsageError
from lycosa.proxies.ports import ProxyPool


@click.command("ban", short_help="Keep proxies from a target.")
@target_argument
@click.argument("proxies", nargs=-1, required=True, metavar="PROXY...")
@pool_option
@click.option("--for", "span", metavar="TIME", help="For so long (90s, 30m, 2h, 1d). [default: until it is lifted]")
@click.option("--reason", default="by hand", show_default=True, metavar="TEXT", help="What explanations say.")
def command(target: str, proxies: Sequence[str], address: str | None, span: str | None, reason: str) -> None:
    """Lend proxies no more for a target, or not for a time. Other targets go on with them.

    \b
    lycosa proxies ban shop.example 10.0.0.1:8080 --for 2h --pool pool
    """
    until = None if span is None else time.time() + seconds(span, "--for")

    async def story(pool: ProxyPool) -> None:
        for proxy in meant(proxies, await pool.proxies()):
            if not await pool.ban(target, proxy.key, until, one_line(reason)[:200]):
                raise UsageError(f"{proxy.name} was removed in this moment")
            ends = "until it is lifted" if until is None else f"until {format_time(until, time.time())}"
            print(f"{proxy.name} is banned on {one_line(target)} {ends}")

    run(address, story)
