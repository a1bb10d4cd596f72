"""A pool as a whole, as it is kept: proxies, what is known of them, and all of every target, its leases among it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.health import ProxyHealth
from lycosa.proxies.core.pool.leases import KeptLease, KeptSession
from lycosa.proxies.core.pool.pool import GlobalPool
from lycosa.proxies.core.pool.rate_guard import RateGuard
from lycosa.proxies.core.pool.target import TargetPool
from lycosa.proxies.core.pool.target_state import ProxyTargetState
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.core.recorded_pool import RecordedPool


class KeptTarget(msgspec.Struct):
    """A target. `counts` are its leaked, stale and granted leases; `token` was given last."""

    name: str
    policy: TargetPolicy
    members: list[ProxyTargetState]
    pace: RateGuard
    counts: tuple[int, int, int]
    filled: list[list[tuple[str, str]]]
    stands: float
    tiers: list[int]
    token: int
    leases: list[KeptLease]
    sessions: list[KeptSession]


class Image(msgspec.Struct):
    """A pool at a time. `prices` are all that were ever seen; `token` is the last of a target that was forgotten."""

    proxies: list[Proxy]
    health: list[ProxyHealth]
    prices: list[tuple[float, float]]
    token: int
    targets: list[KeptTarget]
    at: float = 0.0
    reached_at: float = 0.0


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Image).decode


def image_of(pool: GlobalPool, at: float = 0.0) -> Image:
    """Return all of a pool. It shares parts with it: pack it before the pool changes."""
    return Image(
        list(pool.proxies.values()),
        [pool.health[key] for key in pool.proxies],
        pool.kept_prices(),
        pool.token,
        [_target_image(name, target) for name, target in pool.targets.items()],
        at,
        pool.reached_at,
    )


def pool_of(image: Image, policy_of: Callable[[str], TargetPolicy]) -> RecordedPool:
    """Return the pool of an image, which tells nobody of its changes yet; its targets have the policies they had."""
    pool = RecordedPool(policy_of)
    pool.restore(image.proxies, image.health, image.prices)
    pool.token, pool.reached_at = image.token, image.reached_at
    for kept in image.targets:
        _restore(pool.begin(kept.name, kept.policy), kept)
    return pool


def _target_image(name: str, target: TargetPool) -> KeptTarget:
    order, leases, sessions = target.parts()
    return KeptTarget(
        name,
        target.policy,
        list(target.members.values()),
        target.pace,
        (target.leaked, target.stale, target.granted),
        [sorted(kind) for kind in target.filled],
        order.stands,
        order.kept_tiers(),
        leases.token,
        leases.kept(),
        sessions.kept(),
    )


def _restore(target: TargetPool, kept: KeptTarget) -> None:
    target.restore(kept.members)
    target.pace = kept.pace
    target.leaked, target.stale, target.granted = kept.counts
    target.filled = {frozenset(kind) for kind in kept.filled}
    order, leases, sessions = target.parts()
    order.restore(kept.stands, kept.tiers, target.members)
    leases.restore(kept.token, kept.leases, target.members)
    sessions.restore(kept.sessions)
