"""`lycosa proxies serve`, which runs until SIGINT (exit 130) or SIGTERM (0)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click

from lycosa.cli.crawl import progress
from lycosa.cli.frontier.rows import report_line
from lycosa.cli.parameters import NON_EMPTY, Number
from lycosa.cli.proxies.pool import pool_address, pool_option, stop_signal
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
    default = getattr(DEFAULT, field)
    kind: Any = click.IntRange(int(low), int(high)) if isinstance(default, int) else Number(low, high)
    return click.option(name, field, type=kind, default=default, show_default=True, metavar="N", help=help_)


@click.command("serve")
@pool_option
@click.option(
    "--bind", default=BIND, show_default=True, metavar="ADDR:PORT", help="Address to listen on. Port 0: any free port."
)
@click.option(
    "--user",
    "users",
    type=NON_EMPTY,
    multiple=True,
    metavar="NAME:PASSWORD",
    help="Account of a client. May be repeated. Other users of this machine can see it in the list of processes.",
)
@click.option(
    "--users", "users_file", type=NON_EMPTY, metavar="FILE", help="File with accounts, one NAME:PASSWORD per line."
)
@click.option(
    "--ports", default=DEFAULT_PORTS, show_default=True, metavar="N,N-N", help="Ports that clients may connect to."
)
@click.option(
    "--allow-private",
    multiple=True,
    metavar="HOST|NET|*",
    help="Private host or network that clients may reach; *: all. May be repeated.",
)
@click.option(
    "--names",
    "name_policy",
    type=click.Choice([each.value for each in NamePolicy]),
    default=NamePolicy.CHECK.value,
    show_default=True,
    help="Host names in requests. check: refuse those that resolve to private addresses; pin: check, and send the "
    "proxy the resolved address instead of the name; trust: neither resolve nor check them.",
)
@_limit("--attempts", "attempts", "Maximum proxies to try for one request.", 1, 20)
@_limit("--wait", "wait_s", "Maximum seconds to wait for a free proxy.", 0.0, 3600.0)
@_limit("--connect-timeout", "connect_s", "Maximum seconds to connect to a proxy.")
@_limit("--timeout", "answer_s", "Maximum seconds without data in a response.")
@_limit("--idle", "tunnel_idle_s", "Maximum seconds without data in a tunnel.")
@_limit("--clients", "clients", "Maximum client connections.", 1, 1_000_000)
@_limit("--per-client", "per_client", "Maximum connections from one client address.", 1, 1_000_000)
@_limit("--grace", "grace_s", "Maximum seconds to wait for open requests and tunnels after a signal.", 0.0, 3600.0)
@click.option(
    "--proxy-ca", type=NON_EMPTY, metavar="FILE", help="Trusted certificates for connections to proxies over TLS."
)
@click.option("--metrics", metavar="[ADDRESS:]PORT", help="Serve /metrics for Prometheus.")
@click.option(
    "--allow-remote",
    is_flag=True,
    help="Allow an address for --metrics that other machines can reach.",
)
def command(
    address: str | None,
    bind: str,
    users: Sequence[str],
    users_file: str | None,
    ports: str,
    allow_private: Sequence[str],
    name_policy: str,
    proxy_ca: str | None,
    metrics: str | None,
    *,
    allow_remote: bool,
    **limits: Any,
) -> int:
    """Run a forward proxy: HTTP, CONNECT and SOCKS 5 on one port. Each request goes through the best proxy of the pool.

    A client may add options to its user name, each as -KEY-VALUE. Without accounts, only clients on this machine have
    access, and --bind must be a loopback address.

    \b
    lycosa proxies serve --pool pool
    curl -x http://127.0.0.1:3128 https://shop.example/
    curl -x http://ann-country-de-session-c7@127.0.0.1:3128 https://shop.example/
    lycosa proxies serve --pool redis://localhost:6379/0 --bind 0.0.0.0:3128 --users users.txt
    """
    import uvloop

    accounts = Accounts(_read_accounts(users, users_file))
    access = AccessRules(parse_ports(ports), _allowed_private(allow_private), NamePolicy(name_policy))
    serving = _serve(
        pool_address(address), bind, accounts, access, Limits(**limits), proxy_ca, metrics, allow_remote=allow_remote
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serving)


def _read_accounts(users: Sequence[str], file: str | None) -> dict[str, str]:
    """Read the accounts of --user, which take precedence, and of --users. Raises `UsageError`."""
    accounts = read_accounts(users)
    if file:
        try:
            lines = Path(file).read_text("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            problem = error.strerror.lower() if isinstance(error, OSError) and error.strerror else "it is not UTF-8"
            raise UsageError(f"--users {file}: {problem}") from None
        accounts = {**read_accounts(lines, file), **accounts}
        if not accounts:
            raise UsageError(f"--users {file}: the file has no accounts: write one NAME:PASSWORD per line")
    return accounts


def _allowed_private(entries: Sequence[str]) -> AllowedPrivate:
    """Raises `UsageError`."""
    if EVERYWHERE in entries:
        return AllowedPrivate([EVERYWHERE])
    try:
        return AllowedPrivate(Networks().convert(tuple(entries)))
    except BadElement as error:
        raise UsageError(
            f"--allow-private {str(error)!r}: write a host or a network such as 10.0.0.0/8, or *"
        ) from None


async def _serve(
    where: str,
    bind: str,
    accounts: Accounts,
    access: AccessRules,
    limits: Limits,
    proxy_ca: str | None,
    metrics: str | None,
    *,
    allow_remote: bool,
) -> int:
    """Serve until a signal. A second signal ends open requests and tunnels at once."""
    from lycosa.app.proxies.gateway import open_gateway
    from lycosa.app.proxies.pools import project_policies
    from lycosa.core.metrics import exposition
    from lycosa.infra.web.listening import stop_note, url_of
    from lycosa.infra.web.metrics_page import serve_metrics

    authorities = Path(proxy_ca) if proxy_ca else None
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(
            open_gateway(where, bind, project_policies(Path()), accounts, access, limits, authorities, report_line)
        )

        async def scrape() -> bytes:
            return exposition(gateway.context.counts.metrics())

        if metrics is not None:
            metrics_page = serve_metrics(metrics, scrape, allow_remote=allow_remote)
            progress.write([f"metrics: {await stack.enter_async_context(metrics_page)}"])
        stopped = stop_signal(gateway.stop_fast)
        print(f"Forward proxy: {url_of(gateway.address)}  ({stop_note(gateway.note)})", flush=True)
        return await stopped
