"""The Redis server of a crawl."""

from __future__ import annotations

from lycosa.core.redis_url import parse_redis_url
from lycosa.infra.redis.server import RedisServer, Report


def crawl_server(url: str, report: Report) -> RedisServer:
    """Return the server at a URL. Raises `UsageError` for an invalid URL."""
    return RedisServer(parse_redis_url(url), report, subject="a crawl", option="--crawl-name")
