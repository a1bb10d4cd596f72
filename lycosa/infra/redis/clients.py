"""Create redis-py clients. Their own retries are off: `infra.redis.server` repeats calls."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from lycosa.core.errors import UsageError
from lycosa.core.redis_url import RedisAddress, RedisMode
from lycosa.infra.redis.driver import hides_info, redis_package
from lycosa.infra.redis.tls_check import refuse_missing_tls

CONNECT_TIMEOUT_S = 3.0
"""Seconds after which a server that accepts no connection counts as down."""


def blocking_client(address: RedisAddress, timeout_s: float) -> Any:
    """Return a blocking client. Raises `UsageError`.

    A client of a cluster connects at once, which may raise `driver_errors()`.
    """
    package = redis_package()
    from redis.sentinel import Sentinel

    return _client(package, package.cluster.ClusterNode, Sentinel, address, timeout_s)


def asyncio_client(address: RedisAddress, timeout_s: float) -> Any:
    """Return a client for asyncio, which connects with its first call. Raises `UsageError`."""
    redis_package()
    from redis import asyncio as package
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.sentinel import Sentinel

    return _client(package, ClusterNode, Sentinel, address, timeout_s)


def resolve_mode(address: RedisAddress, timeout_s: float) -> RedisAddress:
    """Change the mode to cluster if the server is a node of a cluster.

    Raises `UsageError` if a certificate file is missing, or if the address demands TLS and the server does not use it.
    May raise `driver_errors()`.
    """
    _refuse_missing_files(address)
    refuse_missing_tls(address)
    if address.mode is not RedisMode.SERVER:
        return address
    client = blocking_client(address, timeout_s)
    try:
        is_cluster = bool(client.info("cluster").get("cluster_enabled"))
    except redis_package().exceptions.ResponseError as error:
        if not hides_info(error):
            raise
        is_cluster = False
    finally:
        client.close()
    return address._replace(mode=RedisMode.CLUSTER) if is_cluster else address


def _client(package: Any, cluster_node: Any, sentinel: Any, address: RedisAddress, timeout_s: float) -> Any:
    options = _options(address, timeout_s)
    if address.mode is RedisMode.CLUSTER:
        nodes = [cluster_node(host, port) for host, port in address.nodes]
        return _resharding_client(package.RedisCluster)(startup_nodes=nodes, **options)
    if address.mode is RedisMode.SENTINEL:
        return _master_client(sentinel, address, options)
    return package.Redis(**_location(address), **options)


def all_masters(client: Any) -> dict[str, Any]:
    """Return the options that send a command to all masters of a cluster; {} for a single server."""
    return {"target_nodes": client.PRIMARIES} if hasattr(client, "PRIMARIES") else {}


@cache
def _resharding_client(client: type[Any]) -> type[Any]:
    """Return a subclass of a cluster client that raises `TryAgainError` on a redirect to an unknown server.

    redis-py would fail: it learns of a new server only when a slot has moved to this server completely.
    """
    try_again = redis_package().exceptions.TryAgainError

    class ReshardingClient(client):  # type: ignore[misc]
        def get_node(self, host: str | None = None, port: int | None = None, node_name: str | None = None) -> Any:
            found = super().get_node(host, port, node_name)
            if found is None and node_name is not None:
                raise try_again(f"{node_name} is not known yet")
            return found

    return ReshardingClient


def _options(address: RedisAddress, timeout_s: float) -> dict[str, Any]:
    package = redis_package()
    options: dict[str, Any] = {
        "username": address.login[0],
        "password": address.login[1],
        "protocol": 2,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": min(timeout_s, CONNECT_TIMEOUT_S),
        "retry": package.retry.Retry(package.backoff.NoBackoff(), 0),
    }
    if not address.socket:
        options["socket_keepalive"] = True
    if address.tls:
        _refuse_missing_files(address)
        names = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
        options |= {"ssl": True, **{names[name]: file for name, file in address.files.items()}}
    return options


def _refuse_missing_files(address: RedisAddress) -> None:
    for name, file in address.files.items():
        if not Path(file).is_file():
            raise UsageError(f"{address.text}: {name}={file} is not a file")


def _location(address: RedisAddress) -> dict[str, Any]:
    if address.socket:
        return {"unix_socket_path": address.socket, "db": address.database}
    ((host, port),) = address.nodes
    return {"host": host, "port": port, "db": address.database}


def _master_client(sentinel: Any, address: RedisAddress, options: Mapping[str, Any]) -> Any:
    user, password = address.sentinel_login
    sentinel_options = {**options, "username": user, "password": password}
    client = sentinel(address.nodes, sentinel_kwargs=sentinel_options, **options)
    return client.master_for(address.master, db=address.database)
