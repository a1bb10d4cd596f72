"""Two other strategies to choose a proxy, as pools for our engine: `bench/goodput.py` compares them with ours.

They are written here after what other projects do. Neither of them lends a proxy to one user only, has leases, or
distinguishes between sites.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from itertools import cycle, islice

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.pool.target import ANY, ProxyRequest
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyLease, ProxyView, TargetView

LOOK_S = 5.0
BASE_S, MAX_S = 300.0, 3600.0
FOR_EVER = 1e12


class InTurn:
    """Round robin: one proxy after the other, whatever the outcomes of its uses were."""

    def __init__(self) -> None:
        self.proxies_by_key: dict[str, Proxy] = {}
        self.token = 0

    async def add(self, proxies: Iterable[Proxy]) -> int:
        """See `ProxyPool`."""
        self.proxies_by_key.update((proxy.key, proxy) for proxy in proxies)
        self.order = cycle(self.proxies_by_key)
        return len(self.proxies_by_key)

    async def acquire(
        self,
        target: str,
        count: int = 1,
        request: ProxyRequest = ANY,
        *,
        lease_s: float | None = None,
        wait_s: float = 0.0,
    ) -> list[ProxyLease]:
        """See `ProxyPool`. A proxy is available at any time."""
        self.token += 1
        proxy = self.proxies_by_key[self.chosen(request.avoid)]
        return [ProxyLease(target, self.token, proxy, FOR_EVER, rebound=False, among=1)]

    def chosen(self, avoid: frozenset[str]) -> str:
        """Return the key of the next proxy that is not to be avoided."""
        return next(key for key in islice(self.order, 1 + len(avoid)) if key not in avoid)

    async def renew(self, lease: ProxyLease, lease_s: float | None = None) -> float | None:
        """See `ProxyPool`."""
        return FOR_EVER

    async def release(self, lease: ProxyLease, outcomes: Sequence[Outcome] = ()) -> bool:
        """See `ProxyPool`."""
        for outcome in outcomes:
            self.heard(lease.proxy.key, outcome)
        return True

    def heard(self, key: str, outcome: Outcome) -> None:
        """Take note of an outcome, good or bad; round robin ignores it."""

    async def proxies(self, target: str | None = None) -> list[ProxyView]:
        """Return nothing: this strategy knows nothing of its proxies."""
        return []

    async def targets(self) -> list[TargetView]:
        """Return nothing: this strategy knows nothing of targets."""
        return []

    async def close(self) -> None:
        """See `ProxyPool`."""


class BackOff(InTurn):
    """The choice of scrapy-rotating-proxies: at random among the proxies that are not dead.

    Any status but 200, 301 and 302 is a ban, and so is an error. A banned proxy is dead for all sites, for a time drawn
    from zero to BASE_S; each further ban doubles this bound, up to MAX_S. Every LOOK_S, the proxies whose time is over
    come back. When all are dead, all are tried again. (scrapy-rotating-proxies also tries a missing page five more
    times. This is left out here: the engine knows that such a page is done.)
    """

    def __init__(self) -> None:
        super().__init__()
        self.dead: dict[str, float] = {}
        self.failures: dict[str, int] = {}
        self.looked_at = 0.0

    def chosen(self, avoid: frozenset[str]) -> str:
        """Return the key of a proxy that is not dead."""
        now = time.monotonic()
        if now - self.looked_at > LOOK_S:
            self.looked_at = now
            self.dead = {key: until for key, until in self.dead.items() if until > now}
        alive = [key for key in self.proxies_by_key if key not in self.dead]
        if not alive:
            self.dead = {}
            alive = list(self.proxies_by_key)
        return random.choice([key for key in alive if key not in avoid] or alive)

    def heard(self, key: str, outcome: Outcome) -> None:
        """Mark the proxy as good or as dead."""
        if outcome.blame is Blame.NONE:
            self.failures[key] = 0
            self.dead.pop(key, None)
            return
        failures = self.failures.get(key, 0)
        self.failures[key] = failures + 1
        self.dead[key] = time.monotonic() + random.uniform(0, min(MAX_S, BASE_S * 2**failures))
