"""Blocking Redis clients for tests. They are closed after each test of `tests/frontier`.

A client that nobody closes is closed when it is collected, but perhaps after its socket: then the socket warns.
"""

from __future__ import annotations

from typing import Any

import redis

_opened: list[redis.Redis] = []


def redis_client(url: str, **options: Any) -> redis.Redis:
    """Return a client. It connects when it is used."""
    client = redis.Redis.from_url(url, **options)
    _opened.append(client)
    return client


def close_redis_clients() -> None:
    """Close all clients. A client that is used again connects again."""
    while _opened:
        _opened.pop().close()
