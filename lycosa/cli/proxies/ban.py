"""`lycosa proxies ban`."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from lycosa.cli.exit_codes import one_line
from lycosa.cli.frontier.rows import format_time
from lycosa.cli.proxies.pool import find_proxies, parse_time_span, pool_option, run, target_argument
from lycosa.core.errors import UsageError
from lycosa.proxies.ports import ProxyPool

REASON_MAX = 200


@click.command("ban")
@target_argument
@click.argument("proxies", nargs=-1, required=True, metavar="PROXY...")
@pool_option
@click.option("--for", "span", metavar="TIME", help="Duration: 90s, 30m, 2h, 1d. [default: until the ban is lifted]")
@click.option("--reason", default="by hand", show_default=True, metavar="TEXT", help="Shown by `explain`.")
def command(target: str, proxies: Sequence[str], address: str | None, span: str | None, reason: str) -> None:
    """Stop leasing proxies for a target, for a time or until the ban is lifted. Other targets still use them.

    \b
    lycosa proxies ban shop.example 10.0.0.1:8080 --for 2h --pool pool
    """
    until = None if span is None else time.time() + parse_time_span(span, "--for")

    async def action(pool: ProxyPool) -> None:
        for proxy in find_proxies(proxies, await pool.proxies()):
            if not await pool.ban(target, proxy.key, until, one_line(reason)[:REASON_MAX]):
                raise UsageError(f"{proxy.name} has just been removed")
            ends = "the ban is lifted" if until is None else format_time(until, time.time())
            print(f"{proxy.name} is banned on {one_line(target)} until {ends}")

    run(address, action)
