"""What all clients of a gateway share, and the way from a lease to what is done with its proxy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from lycosa.core.errors import BadResponse, FetchError, NoProxy, ProxyFailed
from lycosa.http.core.destination import Destination
from lycosa.http.ports import Resolver
from lycosa.proxies.core.gateway.access_rules import AccessRules, NamePolicy
from lycosa.proxies.core.gateway.accounts import Accounts
from lycosa.proxies.core.gateway.handshakes import ADDRESS_SCHEMES
from lycosa.proxies.core.gateway.limits import Limits
from lycosa.proxies.core.gateway.username import GatewayUser
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome, OutcomeRule, judge_error
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.gateway.counts import Counts
from lycosa.proxies.gateway.leases import GatewayLease, GatewayLeases
from lycosa.proxies.gateway.upstream import Dialer, Kept


@dataclass(frozen=True)
class Parts:
    """`target_of(host)`: what a proxy is asked for where the client does not say; `rules_of(target)`: its ban rules.

    `now`: unix seconds, as the pool has them.
    """

    limits: Limits
    counts: Counts
    accounts: Accounts
    reach: AccessRules
    holds: GatewayLeases
    dialer: Dialer
    kept: Kept
    resolver: Resolver
    target_of: Callable[[str], str]
    rules_of: Callable[[str], Sequence[OutcomeRule]]
    now: Callable[[], float]


class Use(Protocol):
    """What is done with a proxy."""

    @property
    def outcome(self) -> Outcome | None:
        """What is known of it when it is broken off."""
        ...

    async def go(self, hold: GatewayLease) -> Outcome | None:
        """Do it. Raises `FetchError`."""
        ...

    def may_repeat(self) -> bool:
        """Whether it can be done again with another proxy."""
        ...


class Route(NamedTuple):
    """The way to a destination: `address` is one that was looked up; `pinned`: the proxy is given that."""

    to: Destination
    address: str
    pinned: bool

    def through(self, proxy: Proxy) -> Destination:
        """Return what this proxy is asked for. Raises `ProxyFailed` when it wants an address, and none is known."""
        if self.to.is_address or not (self.pinned or proxy.scheme in ADDRESS_SCHEMES):
            return self.to
        if not self.address:
            raise ProxyFailed("proxy wants an address, and none was found here", behind=True)
        return Destination(self.address, self.to.port)


async def route(parts: Parts, to: Destination) -> Route:
    """Return the way there. Raises `Forbidden` for where nobody may go, `ConnectFailed` for a name nobody knows."""
    reach = parts.reach
    reach.check(to)
    if to.is_address:
        return Route(to, "", pinned=False)
    if not reach.must_resolve(to):
        return Route(to, "", pinned=False)
    addresses, _ = await parts.resolver.resolve(to.host)
    reach.check_addresses(to, addresses)
    return Route(to, addresses[0], reach.names is NamePolicy.PIN)


async def located(parts: Parts, way: Route, proxy: Proxy) -> Route:
    """Return a way with an address, for a proxy that wants one and a name that was not looked up."""
    if way.address or way.to.is_address or proxy.scheme not in ADDRESS_SCHEMES:
        return way
    addresses, _ = await parts.resolver.resolve(way.to.host)
    parts.reach.check_addresses(way.to, addresses)
    return way._replace(address=addresses[0])


async def attempt(parts: Parts, asked: GatewayUser, target: str, use: Use) -> None:
    """Do something with a proxy, and with another one when it was the proxy's fault and can be done again.

    Raises `NoProxy`, `StateError`, and `FetchError` of the last one that was tried.
    """
    avoid: frozenset[str] = frozenset()
    last: FetchError | None = None
    while True:
        try:
            hold = await parts.holds.take(asked, target, avoid)
        except NoProxy as none:
            raise NoProxy(f"{none}; the last one that was tried: {last}" if last else str(none)) from None
        try:
            outcome = await use.go(hold)
        except FetchError as error:
            await parts.holds.leave(hold, outcome_of(error))
            avoid, last = avoid | {hold.lease.proxy.key}, error
            if len(avoid) >= parts.limits.attempts or not use.may_repeat():
                raise
            parts.counts.retries += 1
        except BaseException:
            await parts.holds.leave(hold, use.outcome)
            raise
        else:
            await parts.holds.leave(hold, outcome)
            return


def outcome_of(error: FetchError) -> Outcome:
    """Return what a failure says of the proxy."""
    return Outcome(Blame.MISS, str(error)) if isinstance(error, BadResponse) else judge_error(error)
