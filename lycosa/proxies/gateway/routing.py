"""The context that all clients of a gateway share. Also finds the route to a destination, and tries several proxies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from lycosa.core.errors import BadResponse, FetchError, NoProxy
from lycosa.http.core.destination import Destination
from lycosa.http.ports import Resolver
from lycosa.proxies.core.gateway.access_rules import AccessRules, NamePolicy
from lycosa.proxies.core.gateway.accounts import Accounts
from lycosa.proxies.core.gateway.handshakes import ADDRESS_SCHEMES
from lycosa.proxies.core.gateway.limits import Limits
from lycosa.proxies.core.gateway.username import GatewayUser
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome, OutcomeRule, judge_error
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.gateway.counts import GatewayCounts
from lycosa.proxies.gateway.leases import GatewayLease, GatewayLeases
from lycosa.proxies.gateway.upstream import Dialer, IdleConnections


@dataclass(frozen=True)
class GatewayContext:
    """What all clients share. `target_of(host)` returns the target if the user name has no `site`.

    `rules_of(target)` returns outcome rules. `now` returns unix seconds, from the pool's clock.
    """

    limits: Limits
    counts: GatewayCounts
    accounts: Accounts
    access: AccessRules
    leases: GatewayLeases
    dialer: Dialer
    idle_connections: IdleConnections
    resolver: Resolver
    target_of: Callable[[str], str]
    rules_of: Callable[[str], Sequence[OutcomeRule]]
    now: Callable[[], float]


class ProxyTask(Protocol):
    """A task that needs a proxy."""

    @property
    def outcome(self) -> Outcome | None:
        """The outcome to report if the task is cancelled now; None if it is unknown."""

    async def attempt(self, lease: GatewayLease, route: Route) -> Outcome | None:
        """Run the task with the leased proxy. Raises `FetchError`."""

    def can_repeat(self) -> bool:
        """Return whether another proxy may be tried."""


class Route(NamedTuple):
    """The route to a destination. `address`: "" if not resolved. `pinned`: proxies get the address, not the name."""

    to: Destination
    address: str = ""
    pinned: bool = False


async def destination_for(context: GatewayContext, route: Route, proxy: Proxy) -> Destination:
    """Return the destination for a proxy: an address if it is pinned or the proxy needs one, else the name."""
    if route.to.is_address or not (route.pinned or proxy.scheme in ADDRESS_SCHEMES):
        return route.to
    return Destination(route.address or await _resolve(context, route.to), route.to.port)


async def _find_route(context: GatewayContext, to: Destination) -> Route:
    context.access.check(to)
    if not context.access.must_resolve(to):
        return Route(to)
    return Route(to, await _resolve(context, to), context.access.names is NamePolicy.PIN)


async def _resolve(context: GatewayContext, to: Destination) -> str:
    addresses, _ = await context.resolver.resolve(to.host)
    context.access.check_addresses(to, addresses)
    return addresses[0]


async def run_attempts(context: GatewayContext, user: GatewayUser, to: Destination, task: ProxyTask) -> None:
    """Run a task with a proxy. If it fails and can be repeated, try other proxies, up to `Limits.attempts` in all.

    Raises `Forbidden` if the destination is not allowed, `ConnectFailed` if its name is unknown, `NoProxy`,
    `StateError`, or the `FetchError` of the last attempt.
    """
    route = await _find_route(context, to)
    target = user.site or context.target_of(to.host)
    tried: frozenset[str] = frozenset()
    last: FetchError | None = None
    while True:
        try:
            lease = await context.leases.acquire(user, target, tried)
        except NoProxy as none:
            raise NoProxy(f"{none}; the last proxy failed: {last}" if last else str(none)) from None
        try:
            outcome = await task.attempt(lease, route)
        except FetchError as error:
            await context.leases.release(lease, outcome_of_error(error))
            tried, last = tried | {lease.proxy_lease.proxy.key}, error
            if len(tried) >= context.limits.attempts or not task.can_repeat():
                raise
            context.counts.retries += 1
        except BaseException:
            await context.leases.release(lease, task.outcome)
            raise
        else:
            await context.leases.release(lease, outcome)
            return


def outcome_of_error(error: FetchError) -> Outcome:
    """Return the outcome of a failed attempt."""
    return Outcome(Blame.MISS, str(error)) if isinstance(error, BadResponse) else judge_error(error)
