"""`lycosa proxies serve`: a rotating forward proxy over a pool, until SIGINT (exit code 130) or SIGTERM (0)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import DONE, INTERRUPTED
from lycosa.cli.parameters import WRITTEN, Number
from lycosa.cli.proxies.pool import pool_address, pool_option, say_aside
from lycosa.config.composite_kinds import Networks
from lycosa.config.kinds import BadElement
from lycosa.core.errors import UsageError
from lycosa.http.core.private_addresses import EVERYWHERE, AllowedPrivate
from lycosa.proxies.core.gateway.access_rules import DEFAULT_PORTS, AccessRules, NamePolicy, parse_ports
from lycosa.proxies.core.gateway.accounts import Accounts, read_accounts
from lycosa.proxies.core.gateway.limits import Limits

BIND = "127.0.0.1:3128"
DEFAULT = Limits()


def _limit(name: str, field: str, help_: str, low: float = 0.1, high: float = 86_400.0) -> Callable[[Any], Any]:
    """Return an option for a time of `Limits`."""
    value = getattr(DEFAULT, field)
    kind: Any = click.IntRange(int(low), int(high)) if isinstance(value, int) else Number(low, high)
    return click.option(name, field, type=kind, default=value, show_default=True, metavar="N", help=help_)


@click.command("serve", short_help="Be a forward proxy that lends from the pool.")
@pool_option
@click.option("--bind", default=BIND, show_default=True, metavar="ADDR:PORT", help="Where to listen; 0: a free port.")
@click.option(
    "--user",
    "users",
    type=WRITTEN,
    multiple=True,
    metavar="NAME:PASSWORD",
    help="Who may use it. Others can see it (ps).",
)
@click.option("--users", "users_file", type=WRITTEN, metavar="FILE", help="A file of NAME:PASSWORD, a line each.")
@click.option(
    "--ports", default=DEFAULT_PORTS, show_default=True, metavar="N,N-N", help="Where clients may connect to."
)
@click.option(
    "--allow-private", multiple=True, metavar="HOST|NET|*", help="Private addresses and names that clients may reach."
)
@click.option(
    "--names",
    type=click.Choice([each.value for each in NamePolicy]),
    default=NamePolicy.CHECK.value,
    show_default=True,
    help="check: names that lead to private addresses are refused; pin: proxies are given the address, too; trust: no "
    "look-up here.",
)
@_limit("--attempts", "attempts", "Proxies that are tried for one request.", 1, 20)
@_limit("--wait", "wait_s", "Seconds to wait for a proxy of the pool.", 0.0, 3600.0)
@_limit("--connect-timeout", "connect_s", "Seconds for a connection to a proxy.")
@_limit("--timeout", "answer_s", "Seconds in which nothing comes of an answer.")
@_limit("--idle", "tunnel_idle_s", "Seconds in which nothing moves in a tunnel.")
@_limit("--clients", "clients", "Connections of clients at a time.", 1, 1_000_000)
@_limit("--per-client", "per_client", "Those from one address.", 1, 1_000_000)
@_limit("--grace", "grace_s", "Seconds that requests and tunnels may go on after a signal.", 0.0, 3600.0)
@click.option(
    "--proxy-ca", type=WRITTEN, metavar="FILE", help="Certificates to trust of proxies that are spoken to over TLS."
)
@click.option("--metrics", metavar="[ADDRESS:]PORT", help="Serve /metrics for Prometheus.")
def command(
    address: str | None,
    bind: str,
    users: tuple[str, ...],
    users_file: str | None,
    ports: str,
    allow_private: tuple[str, ...],
    names: str,
    proxy_ca: str | None,
    metrics: str | None,
    **limits: Any,
) -> int:
    """Be a forward proxy for any client: HTTP, CONNECT and SOCKS 5 on one port, each request through the best proxy.

    What a request wants stands in its user name: NAME-site-shop.example-session-WORD-country-de-sticky-10m. Without a
    --user only this machine is let in, and only an address of this machine can be listened on.

    \b
    lycosa proxies serve --pool pool
    curl -x http://127.0.0.1:3128 https://shop.example/
    lycosa proxies serve --pool redis://localhost:6379/0 --bind 0.0.0.0:3128 --users users.txt
    """
    accounts = Accounts(_accounts(users, users_file))
    access = AccessRules(parse_ports(ports), _allowed(allow_private), NamePolicy(names))
    where = pool_address(address)
    return _run(_serve(where, bind, accounts, access, Limits(**limits), proxy_ca, metrics))


def _accounts(users: tuple[str, ...], file: str | None) -> dict[str, str]:
    found = read_accounts(users)
    if file:
        try:
            lines = Path(file).read_text("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror.lower() if isinstance(error, OSError) and error.strerror else "it is not UTF-8"
            raise UsageError(f"--users {file}: {why}") from None
        found = {**read_accounts(lines, file), **found}
        if not found:
            raise UsageError(f"--users {file}: nobody is in it: write NAME:PASSWORD, a line each")
    return found


def _allowed(entries: tuple[str, ...]) -> AllowedPrivate:
    """Return whom clients may reach beside the public. Raises `UsageError` for what is neither name nor network."""
    if EVERYWHERE in entries:
        return AllowedPrivate([EVERYWHERE])
    try:
        return AllowedPrivate(Networks().convert(entries))
    except BadElement as wrong:
        raise UsageError(
            f"--allow-private {str(wrong)!r}: write a host or a network such as 10.0.0.0/8, or *"
        ) from None


def _run(story: Any) -> int:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(story)
    assert isinstance(code, int)
    return code


async def _serve(
    where: str,
    bind: str,
    accounts: Accounts,
    access: AccessRules,
    limits: Limits,
    proxy_ca: str | None,
    metrics: str | None,
) -> int:
    """Serve until a signal comes. Return the exit code; with a second signal nothing under way is waited for."""
    from lycosa.app.proxies.gateway import gateway_over
    from lycosa.app.proxies.pools import project_policies

    loop = asyncio.get_running_loop()
    received: asyncio.Future[int] = loop.create_future()

    authorities = Path(proxy_ca) if proxy_ca else None
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(
            gateway_over(where, bind, project_policies(Path()), accounts, access, limits, authorities, say_aside)
        )

        def end(number: int) -> None:
            if received.done():
                gateway.stop_fast()
            else:
                received.set_result(number)

        if metrics is not None:
            await _metrics(stack, metrics, gateway.context.counts)
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, end, each)
        host, port = gateway.address
        print(f"Forward proxy: http://{f'[{host}]' if ':' in host else host}:{port}  (Ctrl-C stops it)", flush=True)
        number = await received
    return INTERRUPTED if number == signal.SIGINT else DONE


async def _metrics(stack: AsyncExitStack, where: str, counts: Any) -> None:
    from lycosa.core.metrics import exposition
    from lycosa.infra.web.metrics_page import serve_metrics

    async def page() -> bytes:
        return exposition(counts.metrics())

    address = await stack.enter_async_context(serve_metrics(where, page))
    progress.write([f"metrics: {address}"])
