"""The port of a proxy pool, and the values it returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from lycosa.proxies.core.explain import ProxyVerdict
from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.pool.target import ANY, ProxyRequest
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import Proxy


class ProxyLease(NamedTuple):
    """A proxy, leased for a target until `deadline` (unix seconds).

    `rebound`: the session used another proxy before, so its old cookies are useless. `drawn_from`: the proxy was
    drawn from at most this many proxies at the front of the order of use; 0 if the session was already bound to it.
    """

    target: str
    token: int
    proxy: Proxy
    deadline: float
    rebound: bool
    drawn_from: int


class ProxyView(NamedTuple):
    """A proxy for display, on one target or across all targets. Times in unix seconds.

    `state`: across all targets only READY, COOLING or DEAD. `until`: the end of a cool-down or, on one target, of the
    delay after a lease, if that is later. It may have passed. `uses`, `good`, `bad`: counts of requests.
    """

    proxy: Proxy
    state: ProxyState
    latency_s: float | None
    uses: int
    good: int
    bad: int
    until: float
    reason: str
    exit_ip: str


class TargetView(NamedTuple):
    """A target for display. `states`: the number of proxies in each state. `leases`: the number of active leases.

    `granted`: leases so far. `leaked`: leases that expired unreleased. `stale`: releases that came too late.
    `interval_s`: the minimum time between two leases of one proxy.
    """

    target: str
    states: Mapping[ProxyState, int]
    leases: int
    granted: int
    leaked: int
    stale: int
    interval_s: float


class ProxyExplanation(NamedTuple):
    """A proxy, and whether and why it would be leased now."""

    proxy: Proxy
    verdict: ProxyVerdict


class ProxyPool(Protocol):
    """Leases proxies. A target is any text, by default a registrable domain. Raises `StateError` if the store fails."""

    async def add(self, proxies: Iterable[Proxy], *, unchecked: bool = False) -> int:
        """Add proxies, or update tags and prices of known proxies. Return how many are new.

        With `unchecked`, new proxies are dead until a check succeeds.
        """

    async def remove(self, keys: Iterable[str]) -> int:
        """Forget proxies, including leased ones. Return how many were forgotten."""

    async def count(self) -> int: ...

    async def forget_dead(self, kept_s: float) -> list[str]:
        """Forget unleased proxies that have been dead for `kept_s` seconds. Return their keys.

        One call may forget only some of them: repeat it until it returns no keys.
        """

    async def acquire(
        self,
        target: str,
        count: int = 1,
        request: ProxyRequest = ANY,
        *,
        lease_s: float | None = None,
        wait_s: float = 0.0,
    ) -> list[ProxyLease]:
        """Lease `count` different proxies, all or none, waiting at most `wait_s` for them. Raises `NoProxy`."""

    async def renew(self, lease: ProxyLease, lease_s: float | None = None) -> float | None:
        """Renew a lease. Return its new deadline; None if the lease has ended."""

    async def release(self, lease: ProxyLease, outcomes: Sequence[Outcome] = ()) -> bool:
        """End a lease, with one outcome per use. Return False, and change nothing, if it had already ended."""

    async def ban(self, target: str, key: str, until: float | None = None, reason: str = "by hand") -> bool:
        """Ban a proxy for a target until `until` (unix seconds; None: for good). Return False for an unknown proxy."""

    async def unban(self, target: str, key: str) -> bool:
        """Lift bans and cool-downs of a proxy for a target. Return False for an unknown proxy."""

    async def report_check(self, key: str, outcome: Outcome, exit_ip: str = "") -> bool:
        """Record the result of a check. A good result revives a dead proxy. Return False for an unknown proxy."""

    async def proxies(self, target: str | None = None) -> list[ProxyView]:
        """Return all proxies, lowest latency first, or the proxies of one target."""

    async def targets(self) -> list[TargetView]: ...

    async def explain(self, target: str, request: ProxyRequest = ANY) -> list[ProxyExplanation]:
        """Explain for each proxy why it would or would not be leased for a target now, leasable ones first.

        A proxy that is not a member of the target is included only if it is among the NEAREST_MAX proxies of the pool
        with the lowest latency (`proxies.core.explain`).
        """

    async def close(self) -> None:
        """Close the pool. Waiting callers get `NoProxy`."""
