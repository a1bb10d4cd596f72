"""Build the gateway, a forward proxy over a pool."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from lycosa.app.fast_shutdown import fast_shutdown
from lycosa.app.proxies.pools import open_for_leasing
from lycosa.core.errors import BadSetting
from lycosa.http.ports import Resolver
from lycosa.http.public_suffixes import registrable
from lycosa.http.resolver import SystemResolver
from lycosa.infra import clock, open_files
from lycosa.proxies.core.gateway.access_rules import AccessRules
from lycosa.proxies.core.gateway.accounts import Accounts
from lycosa.proxies.core.gateway.limits import Limits
from lycosa.proxies.core.project_policies import Policies
from lycosa.proxies.gateway.counts import GatewayCounts
from lycosa.proxies.gateway.gateway import Gateway, open_listener, run_gateway
from lycosa.proxies.gateway.leases import GatewayLeases
from lycosa.proxies.gateway.routing import GatewayContext
from lycosa.proxies.gateway.upstream import Dialer, IdleConnections
from lycosa.proxies.ports import ProxyPool


@asynccontextmanager
async def open_gateway(
    address: str,
    bind: str,
    policies: Policies,
    accounts: Accounts,
    access: AccessRules,
    limits: Limits,
    authorities: Path | None,
    report: Callable[[str], None],
) -> AsyncIterator[Gateway]:
    """Serve the pool at `address` on `bind` (ADDRESS:PORT) while the block runs.

    `authorities` is a file of trusted certificates for proxies over TLS; the default is the system's certificates.
    Raises the errors of `open_listener` and `open_for_leasing`.
    """
    tls = trusted_tls_context(authorities) if authorities else None
    raise_open_files_limit(limits)
    with open_listener(bind, has_accounts=bool(accounts)) as listener, fast_shutdown(report=report) as deadline:
        pool = await open_for_leasing(address, policies, Path(), report)
        try:
            async with run_gateway(gateway_context(pool, policies, accounts, access, limits, tls), listener) as gateway:
                gateway.on_fast_stop = deadline.start
                yield gateway
        finally:
            await pool.close()


def gateway_context(
    pool: ProxyPool,
    policies: Policies | None = None,
    accounts: Accounts | None = None,
    access: AccessRules | None = None,
    limits: Limits | None = None,
    tls: ssl.SSLContext | None = None,
    resolver: Resolver | None = None,
) -> GatewayContext:
    """Return the context of a gateway."""
    limits = limits or Limits()
    counts = GatewayCounts()
    now = clock.Clock().now
    return GatewayContext(
        limits=limits,
        counts=counts,
        accounts=accounts or Accounts(),
        access=access or AccessRules(),
        leases=GatewayLeases(pool, limits, counts, now),
        dialer=Dialer(limits, tls),
        idle_connections=IdleConnections(),
        resolver=resolver or SystemResolver(),
        target_of=registrable,
        rules_of=(policies or Policies()).rules_of,
        now=now,
    )


def trusted_tls_context(authorities: Path) -> ssl.SSLContext:
    """Trust the certificates in a file. Raises `BadSetting`."""
    try:
        return ssl.create_default_context(cafile=str(authorities))
    except (OSError, ssl.SSLError):
        raise BadSetting(f"--proxy-ca {authorities}: not a certificate file (PEM)") from None


def raise_open_files_limit(limits: Limits) -> None:
    """Allow two open connections per client, up to the system's hard limit."""
    open_files.raise_open_files_limit(2 * limits.clients + 1_024)
