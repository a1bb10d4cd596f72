"""`lycosa proxies ...`."""

from __future__ import annotations

import click

from lycosa.cli.lazy_group import LazyGroup

COMMANDS = {
    "add": "Add proxies from lists, addresses or standard input.",
    "list": "List the proxies of the pool.",
    "check": "Check proxies with requests to a judge server, and save the results.",
    "keep": "Keep a pool up to date with its sources, and check its proxies.",
    "stats": "Show statistics of the pool and its targets.",
    "explain": "Explain why each proxy would or would not be leased for a target.",
    "ban": "Ban proxies for a target.",
    "unban": "Lift the bans and cool-downs of proxies for a target.",
    "remove": "Remove proxies.",
    "export": "Write the proxies as a list, JSON or CSV.",
    "site": "Serve the API and the pages of a pool.",
    "serve": "Run a forward proxy over the pool.",
    "judge": "Run a proxy judge server.",
}


@click.group(
    "proxies",
    cls=LazyGroup,
    commands_by_name={name: (f"{__name__}.{name}", text) for name, text in COMMANDS.items()},
    invoke_without_command=True,
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage a proxy pool, which leases each request the best available proxy for its site.

    A pool is in a folder (--pool DIR) or, for several machines, on a Redis server (--pool
    redis://HOST:6379/0?pool=NAME). The default is LYCOSA_PROXY_POOL, or proxy_pool in lycosa.toml.

    \b
    lycosa proxies add proxies.txt --pool pool
    lycosa proxies explain shop.example --pool pool
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
