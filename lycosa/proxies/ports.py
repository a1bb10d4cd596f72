"""A pool of proxies, shared by whoever needs one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from lycosa.proxies.core.explain import ProxyVerdict
from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.pool.target import ANY, ProxyRequest
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import Proxy


class ProxyLease(NamedTuple):
    """A proxy, lent for a target until `deadline` (unix seconds).

    `rebound`: its session had another one before, whose cookies are of no use any more. It was drawn among the first
    `among` in the order of use; 0: its session asked for it.
    """

    target: str
    token: int
    proxy: Proxy
    deadline: float
    rebound: bool
    among: int


class ProxyView(NamedTuple):
    """What is known of a proxy, everywhere or on one target. Times in unix seconds, latencies in seconds.

    `state` is that on the target; without one it is READY, COOLING or DEAD. `until`: when a rest ends. `uses`, `good`
    and `bad` count requests.
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
    """What is known of a target: its proxies by state, its leases, and the least time between two on one proxy."""

    target: str
    states: Mapping[ProxyState, int]
    leases: int
    granted: int
    leaked: int
    stale: int
    interval_s: float


class ProxyExplanation(NamedTuple):
    """A proxy, and whether it would be lent now."""

    proxy: Proxy
    verdict: ProxyVerdict


class ProxyPool(Protocol):
    """Lends proxies. Errors of its store are `StateError`; a target is any text, by default a registrable domain."""

    async def add(self, proxies: Iterable[Proxy], *, unchecked: bool = False) -> int:
        """Take proxies in, or their new tags and prices. Return how many are new.

        New ones that are `unchecked` are dead until a check finds them well.
        """
        ...

    async def remove(self, keys: Iterable[str]) -> int:
        """Forget proxies, whoever has them. Return how many there were."""
        ...

    async def count(self) -> int:
        """Return how many proxies there are."""
        ...

    async def forget_dead(self, kept_s: float) -> list[str]:
        """Forget proxies that are dead for so long (seconds), but none that is lent. Return the keys of some of them.

        When there is none left to forget, nothing is returned.
        """
        ...

    async def acquire(
        self,
        target: str,
        count: int = 1,
        request: ProxyRequest = ANY,
        *,
        lease_s: float | None = None,
        wait_s: float = 0.0,
    ) -> list[ProxyLease]:
        """Lend so many different proxies at once, or none, waiting at most `wait_s` for them. Raises `NoProxy`."""
        ...

    async def renew(self, lease: ProxyLease, lease_s: float | None = None) -> float | None:
        """Return the new deadline of a lease, None when it is over."""
        ...

    async def release(self, lease: ProxyLease, outcomes: Sequence[Outcome] = ()) -> bool:
        """End a lease, with an outcome for each use. False when it was over before: then nothing is changed."""
        ...

    async def ban(self, target: str, key: str, until: float | None = None, reason: str = "by hand") -> bool:
        """Lend a proxy no more for a target, or not before a time. False when there is no such proxy."""
        ...

    async def unban(self, target: str, key: str) -> bool:
        """Lift bans and rests of a proxy for a target. False when there is no such proxy."""
        ...

    async def checked(self, key: str, outcome: Outcome, exit_ip: str = "") -> bool:
        """Take what a check has found: a good one brings a dead proxy back. False when there is no such proxy."""
        ...

    async def proxies(self, target: str | None = None) -> list[ProxyView]:
        """Return all proxies, the nearest first, or those of a target."""
        ...

    async def targets(self) -> list[TargetView]:
        """Return all targets."""
        ...

    async def explain(self, target: str, request: ProxyRequest = ANY) -> list[ProxyExplanation]:
        """Say of each proxy why it would be lent for a target now, or why not, those first that would.

        Of proxies that the target does not have only the nearest (`proxies.core.explain`). Nothing is changed by it.
        """
        ...

    async def close(self) -> None:
        """Leave the pool. Who waits is told that there is none."""
        ...
