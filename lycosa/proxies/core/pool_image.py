"""The stored form of a pool."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.health import ProxyHealth
from lycosa.proxies.core.pool.leases import LeaseEntry, SessionEntry
from lycosa.proxies.core.pool.pool import GlobalPool
from lycosa.proxies.core.pool.rate_guard import RateGuard
from lycosa.proxies.core.pool.target import TargetPool
from lycosa.proxies.core.pool.target_state import ProxyTargetState
from lycosa.proxies.core.proxy import Proxy


class TargetImage(msgspec.Struct):
    """A stored target. `counts`: `leaked`, `stale` and `granted` of the `TargetPool`. `token`: the last lease token."""

    name: str
    policy: TargetPolicy
    members: list[ProxyTargetState]
    guard: RateGuard
    counts: tuple[int, int, int]
    filled: list[list[tuple[str, str]]]
    virtual_time: float
    tiers: list[int]
    token: int
    leases: list[LeaseEntry]
    sessions: list[SessionEntry]


class Image(msgspec.Struct):
    """A pool at the time `at` (unix seconds). `prices`: all known prices, ascending.

    `token`: the highest lease token of all forgotten targets. `reached_at`: when any proxy was last reached.
    """

    proxies: list[Proxy]
    health: list[ProxyHealth]
    prices: list[tuple[float, float]]
    token: int
    targets: list[TargetImage]
    at: float = 0.0
    reached_at: float = 0.0


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Image).decode


def image_of(pool: GlobalPool, at: float = 0.0) -> Image:
    """Return the image of a pool. Both share objects: encode the image before the pool changes."""
    return Image(
        list(pool.proxies.values()),
        [pool.health[key] for key in pool.proxies],
        pool.prices(),
        pool.token,
        [_target_image(name, target) for name, target in pool.targets.items()],
        at,
        pool.reached_at,
    )


def pool_of(image: Image, policy_of: Callable[[str], TargetPolicy]) -> GlobalPool:
    """Return the pool of an image, without a journal. Targets keep their stored policies."""
    pool = GlobalPool(policy_of)
    pool.restore(image.proxies, image.health, image.prices)
    pool.token, pool.reached_at = image.token, image.reached_at
    for each in image.targets:
        _restore(pool.add_target(each.name, each.policy), each)
    return pool


def _target_image(name: str, target: TargetPool) -> TargetImage:
    order, leases, sessions = target.parts()
    return TargetImage(
        name,
        target.policy,
        list(target.members.values()),
        target.guard,
        (target.leaked, target.stale, target.granted),
        [sorted(kind) for kind in target.filled],
        order.virtual_time,
        order.known_tiers(),
        leases.token,
        leases.entries(),
        sessions.entries(),
    )


def _restore(target: TargetPool, image: TargetImage) -> None:
    target.restore(image.members)
    target.guard = image.guard
    target.leaked, target.stale, target.granted = image.counts
    target.filled = {frozenset(kind) for kind in image.filled}
    order, leases, sessions = target.parts()
    order.restore(image.virtual_time, image.tiers, target.members)
    leases.restore(image.token, image.leases)
    sessions.restore(image.sessions)
