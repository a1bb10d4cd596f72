"""The port of a pool of proxies, and the values it returns."""

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

    `rebound`: its session had another proxy before, whose cookies are of no use any more. The proxy was drawn from the
    first `drawn_from` in the order of use; 0: it is that of its session.
    """

    target: str
    token: int
    proxy: Proxy
    deadline: float
    rebound: bool
    drawn_from: int


class ProxyView(NamedTuple):
    """A proxy as people see it, everywhere or on one target. Times in unix seconds, latencies in seconds.

    `state` is that on the target; without one it is READY, COOLING or DEAD. `until`: the end of a cool-down. `uses`,
    `good` and `bad` count requests.
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
    """A target: its proxies by state, its leases, and the minimum time between two leases of one proxy."""

    target: str
    states: Mapping[ProxyState, int]
    leases: int
    granted: int
    leaked: int
    stale: int
    interval_s: float


class ProxyExplanation(NamedTuple):
    """A proxy, and whether it would be leased now."""

    proxy: Proxy
    verdict: ProxyVerdict


class ProxyPool(Protocol):
    """Leases proxies. A target is any text, by default a registrable domain. Errors of the store are `StateError`."""

    async def add(self, proxies: Iterable[Proxy], *, unchecked: bool = False) -> int:
        """Add proxies, or update tags and prices of known ones. Return how many are new.

        New ones that are `unchecked` are dead until a check finds them working.
        """

    async def remove(self, keys: Iterable[str]) -> int:
        """Forget proxies, also leased ones. Return how many there were."""

    async def count(self) -> int:
        """Return the number of proxies."""

    async def forget_dead(self, kept_s: float) -> list[str]:
        """Forget proxies that have been dead for so many seconds and are not leased.

        Return the keys of those forgotten by this call: call again until it returns none.
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
        """Lease so many different proxies at once, or none; wait at most `wait_s` for them. Raises `NoProxy`."""

    async def renew(self, lease: ProxyLease, lease_s: float | None = None) -> float | None:
        """Return the new deadline of a lease, None when it is over."""

    async def release(self, lease: ProxyLease, outcomes: Sequence[Outcome] = ()) -> bool:
        """End a lease, with an outcome for each use. Return False, and change nothing, when it was over before."""

    async def ban(self, target: str, key: str, until: float | None = None, reason: str = "by hand") -> bool:
        """Ban a proxy for a target, for good or until a time. Return False when there is no such proxy."""

    async def unban(self, target: str, key: str) -> bool:
        """Lift bans and cool-downs of a proxy for a target. Return False when there is no such proxy."""

    async def report_check(self, key: str, outcome: Outcome, exit_ip: str = "") -> bool:
        """Record the result of a check: a good one revives a dead proxy. Return False when there is no such proxy."""

    async def proxies(self, target: str | None = None) -> list[ProxyView]:
        """Return all proxies, the lowest latency first, or those of a target."""

    async def targets(self) -> list[TargetView]: ...

    async def explain(self, target: str, request: ProxyRequest = ANY) -> list[ProxyExplanation]:
        """Say for each proxy why it would be leased for a target now, or why not; those first that would.

        Of proxies that are not members of the target only the nearest ones (`proxies.core.explain`). Changes nothing.
        """

    async def close(self) -> None:
        """Leave the pool. Waiting callers get `NoProxy`."""
