"""The options of a DHT node, and how to run it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any, NamedTuple

import click

from lycosa.cli.crawl import progress
from lycosa.cli.parameters import NON_EMPTY
from lycosa.cli.proxies.pool import stop_signal
from lycosa.core.errors import LycosaError, UsageError
from lycosa.core.units import format_count

BIND = "127.0.0.1:6881"
BIND_ANY_PORT = "127.0.0.1:0"

STATE_HELP = "Folder for the node id and the contacts. Peers are never saved."


class NodeOptions(NamedTuple):
    """The options that open a node."""

    bind: tuple[str, ...]
    bootstrap: tuple[str, ...]
    state: str | None
    read_only: bool
    allow_private: tuple[str, ...]


def node_options(*, is_short: bool, state_help: str = STATE_HELP) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of a node to a command, as the argument `options`.

    `is_short`: the command ends soon. Its node uses any free port and is read-only by default, so that other nodes do
    not remember it. `state_help` is the help of --state.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(**arguments: Any) -> Any:
            options = NodeOptions(**{name: arguments.pop(name) for name in NodeOptions._fields})
            return function(options=options, **arguments)

        decorated: Callable[..., Any] = call
        for option in reversed(_options(is_short=is_short, state_help=state_help)):
            decorated = option(decorated)
        return decorated

    return decorate


def _options(*, is_short: bool, state_help: str) -> list[Callable[[Any], Any]]:
    return [
        click.option(
            "--bind",
            multiple=True,
            default=(BIND_ANY_PORT if is_short else BIND,),
            show_default=True,
            metavar="ADDR:PORT",
            help="UDP address of the node; use 0.0.0.0:6881 for the public network. Repeat for IPv6. Port 0: any free "
            "port.",
        ),
        click.option(
            "--bootstrap",
            multiple=True,
            type=NON_EMPTY,
            metavar="HOST:PORT",
            help="Node to join the network through, or a torrent file with nodes; `default` for the public "
            "bootstrap nodes. "
            "May be repeated.",
        ),
        click.option(
            "--state",
            type=NON_EMPTY,
            metavar="DIR",
            help=state_help,
        ),
        click.option(
            "--read-only/--no-read-only",
            default=is_short,
            show_default=True,
            help="Query other nodes, but answer none (BEP 43).",
        ),
        click.option(
            "--allow-private",
            multiple=True,
            type=NON_EMPTY,
            metavar="NETWORK",
            help="Private network whose addresses may be contacted, such as 127.0.0.0/8. May be repeated.",
        ),
    ]


def run_with_node(
    options: NodeOptions,
    action: Callable[[Any], Coroutine[Any, Any, int]],
    settings: Callable[[], dict[str, Any]] = dict,
) -> int:
    """Open a node, run `action(session)`, and return its exit code; after a signal, the exit code for the signal.

    `settings` returns further arguments of `open_node`. Raises the errors of `open_node`.
    """
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_open_and_run(options, action, settings))


async def _open_and_run(
    options: NodeOptions, action: Callable[[Any], Coroutine[Any, Any, int]], settings: Callable[[], dict[str, Any]]
) -> int:
    from lycosa.app.dht import open_node

    stopped = stop_signal()
    opening = open_node(**options._asdict(), **settings())
    task = asyncio.ensure_future(_with_node(opening, action))
    await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            return stopped.result()
    return task.result()


async def _with_node(opening: AbstractAsyncContextManager[Any], action: Callable[[Any], Awaitable[int]]) -> int:
    async with opening as session:
        return await action(session)


async def join(session: Any) -> int:
    """Wait until the node has joined, and return its number of good contacts.

    Raises `UsageError` if it knows no node, `LycosaError` if no node answers.
    """
    require_contacts(session)
    report("joining the network ...")
    count: int = await session.joined()
    if not count:
        raise LycosaError("no node answered: check --bootstrap and --bind, and that the firewall lets UDP through")
    return count


def joined_line(count: int) -> str:
    """Describe a node that has joined and has this number of good contacts."""
    return f"joined: {format_count(count, 'good contact')}"


def require_contacts(session: Any) -> None:
    """Raise `UsageError` if the node knows no node through which to join."""
    if session.is_isolated:
        raise UsageError(
            "no node through which to join: add --bootstrap HOST:PORT, or --bootstrap default for the public network"
        )


def report(*lines: str) -> None:
    """Write lines to standard error."""
    if lines:
        progress.write(lines)


def parse_infohashes(text: str) -> tuple[bytes, ...]:
    """Return the infohash of each swarm; version 2 is cut to 20 bytes. Raises `UsageError`."""
    from lycosa.dht.core.magnet import parse_magnet

    return tuple(infohash[:20] for infohash in parse_magnet(text).infohashes)
