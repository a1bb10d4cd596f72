"""`lycosa proxies ...`: a pool of proxies: fill it, look at it, check it, lend from it. One file a command."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import click

COMMANDS = {
    "add": "Add proxies, from lists, addresses or standard input.",
    "list": "List proxies, all or those of a target.",
    "check": "Check proxies against a judge, and tell the pool.",
    "keep": "Keep a pool up to date with its sources, and checked.",
    "stats": "Show the pool and its targets in numbers.",
    "explain": "Say why each proxy would be lent for a target, or not.",
    "ban": "Keep proxies from a target.",
    "unban": "Lift bans and rests of proxies on a target.",
    "remove": "Forget proxies.",
    "export": "Write the proxies as a list, JSON or CSV.",
    "site": "Serve the API and the pages of a pool.",
    "serve": "Be a forward proxy that lends from the pool.",
    "judge": "Be a judge, by which proxies are checked.",
}


class Commands(click.Group):
    """The commands, imported one at a time; what has no module is not there."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order in which one needs them."""
        return [name for name in COMMANDS if _is_there(name)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the command."""
        if name not in COMMANDS or not _is_there(name):
            return None
        command = import_module(_module(name)).command
        assert isinstance(command, click.Command), name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


def _module(name: str) -> str:
    return f"{__name__}.{name}"


def _is_there(name: str) -> bool:
    return find_spec(_module(name)) is not None


@click.group("proxies", cls=Commands, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """A pool of proxies: the best one for each site, lent to one at a time, resting where it was refused.

    The pool is in a folder, or on a Redis that several machines share: --pool DIR, or --pool
    redis://HOST:6379/0?pool=NAME; or LYCOSA_PROXY_POOL, or proxy_pool in lycosa.toml.

    \b
    lycosa proxies add proxies.txt --pool pool
    lycosa proxies explain shop.example --pool pool
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
