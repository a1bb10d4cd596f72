"""Connects to Redis, and says in one line why that cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    SlotNotCoveredError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import TimeoutError as TooSlow
from redis.retry import Retry

from lycosa.core.errors import StateError, StorageFull, UsageError

OLDEST = (7, 0)
ANSWER_MAX_S = 10.0
RECONNECT_MAX_S = 60.0
"""A server that is away (restarted, or a replica takes over) is waited for so long."""

JOIN_MAX_S = 2.0
"""One that is not there when a worker joins may have another address."""

AWAY = (
    Lost, TooSlow, BusyLoadingError, ReadOnlyError, ClusterDownError, ClusterError, MasterDownError,
    SlotNotCoveredError, TryAgainError, OSError,
)  # fmt: skip
"""What says that a server is not there at the moment."""

AGAIN_S, AGAIN_MAX_S = 0.05, 1.0

Answer = TypeVar("Answer")


class Clients(NamedTuple):
    """One for the loop, one that blocks."""

    loop: Any
    blocking: Any


def clients_of(url: str) -> Clients:
    """Return clients for `redis://[user:password@]host[:port][/db]` or `rediss://`, for a cluster if it is one.

    Raises `UsageError`, or what redis-py raises when there is no server.
    """
    if urlsplit(url).scheme not in ("redis", "rediss", "unix"):
        raise UsageError(f"{shown(url)!r} is no address of a Redis: write redis://host:6379/0")
    options: dict[str, Any] = {"socket_timeout": ANSWER_MAX_S, "socket_connect_timeout": ANSWER_MAX_S}
    options["retry"] = Retry(NoBackoff(), 0)  # we ask again ourselves, and know what was asked before
    try:
        single = redis.Redis.from_url(url, **options)
    except ValueError as error:
        raise UsageError(f"{shown(url)!r} is no address of a Redis: {error}") from None
    if not single.info("cluster").get("cluster_enabled"):
        return Clients(redis.asyncio.Redis.from_url(url, **options), single)
    single.close()
    return Clients(redis.asyncio.RedisCluster.from_url(url, **options), redis.RedisCluster.from_url(url, **options))


def shown(url: str) -> str:
    """Return an address without its password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{parts.netloc.rpartition('@')[2]}"))


async def check(client: Any, where: str) -> None:
    """Raise `StateError` for a server that is too old, or that may throw keys away."""
    for server in _each(await client.info("server")):
        version = tuple(int(part) for part in str(server.get("redis_version", "0")).split(".")[:2])
        if version < OLDEST:
            raise StateError(f"{where}: Redis {server['redis_version']} is too old: 7.0 or later is needed")
    for memory in _each(await client.info("memory")):
        policy = memory.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            said = f"{where}: its maxmemory-policy {policy} throws keys away, and a crawl with them"
            raise StateError(f"{said}: set it to noeviction")


def _each(info: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return what each node of a cluster says, or the only one."""
    several = all(isinstance(value, Mapping) for value in info.values())
    return info.values() if several else [info]


async def patiently(
    act: Callable[[], Awaitable[Answer]], where: str, say: Callable[[str], None], max_s: float = RECONNECT_MAX_S
) -> Answer:
    """Do it, again and again while the server is away. Raises `StateError` when it stays away, or refuses."""
    loop = asyncio.get_running_loop()
    started, pause_s, told = loop.time(), AGAIN_S, False
    while True:
        try:
            return await act()
        except AuthenticationError as error:
            which = "a" if "HELLO must be called" in str(error) else "another"
            raise StateError(f"{where}: it wants {which} password: redis://:PASSWORD@host") from None
        except AWAY as error:
            if loop.time() - started > max_s:
                raise StateError(f"{where}: no answer for {max_s:g} s: {error}") from error
            if not told:
                say(f"{where}: {error}: waiting for it, {max_s:g} s at most")
                told = True
        except OutOfMemoryError as error:
            raise StorageFull(f"{where}: {error}") from None
        except RedisError as error:
            raise StateError(f"{where}: {error}") from error
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, AGAIN_MAX_S)
