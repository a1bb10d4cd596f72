"""How adapters reach a Redis: clients for an address, what a server must be like, what its errors mean.

redis-py's own retries are off: whoever asks again has to know what was asked before. All errors that `errors()` names
become one of ours, in one line, with `ours`; `passes` says whether it is worth asking again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from pathlib import Path
from typing import Any

from lycosa.core.errors import ForeignState, LycosaError, StorageError, StorageFull, UsageError
from lycosa.core.redis_url import RedisAddress, RedisMode
from lycosa.infra.redis.plain import refuse_plain

VERSION_MIN = (7, 0)
CONNECT_MAX_S = 3.0
"""A server that cannot be connected to within so long is away; whoever waits for it tries again."""

OTHER_FORM = {
    "Cluster mode is not enabled": "this server is no node of a cluster; write redis://",
    "unknown command 'SENTINEL'": "this server is no Sentinel; write redis://",
    "DB index is out of range": "the server has no database of this number; write a smaller one",
}
"""What a server says that is asked for what it is not or has not, and what to write instead."""

MISSING = "a Redis needs the packages redis and hiredis: pip install 'lycosa[redis]'"


def blocking_client(address: RedisAddress, answer_max_s: float) -> Any:
    """Return a client of redis-py that blocks. One for a cluster connects at once. Raises `UsageError`, or `errors`."""
    package = package_redis()
    options = _options(address, answer_max_s)
    if address.mode is RedisMode.CLUSTER:
        nodes = [package.cluster.ClusterNode(host, port) for host, port in address.nodes]
        return _patient(package.RedisCluster)(startup_nodes=nodes, **options)
    if address.mode is RedisMode.SENTINEL:
        from redis.sentinel import Sentinel

        return _watched(Sentinel, address, options)
    return package.Redis(**_place(address), **options)


def loop_client(address: RedisAddress, answer_max_s: float) -> Any:
    """Return a client of redis-py for asyncio, which connects when it is used. Raises `UsageError`."""
    package_redis()
    from redis import asyncio as package
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.sentinel import Sentinel

    options = _options(address, answer_max_s)
    if address.mode is RedisMode.CLUSTER:
        nodes = [ClusterNode(host, port) for host, port in address.nodes]
        return _patient(package.RedisCluster)(startup_nodes=nodes, **options)
    if address.mode is RedisMode.SENTINEL:
        return _watched(Sentinel, address, options)
    return package.Redis(**_place(address), **options)


@cache
def _patient(client: type[Any]) -> type[Any]:
    """Return a client of a cluster that tries again when keys are on their way to a server that it does not know yet.

    redis-py hears of new servers when all keys have arrived, and stumbles over those that it is sent to before.
    """
    again = package_redis().exceptions.TryAgainError

    class Patient(client):  # type: ignore[misc]
        def get_node(self, host: str | None = None, port: int | None = None, node_name: str | None = None) -> Any:
            """Return a server of the cluster."""
            found = super().get_node(host, port, node_name)
            if found is None and node_name is not None:
                raise again(f"{node_name} is not known yet")
            return found

    return Patient


def look(address: RedisAddress, answer_max_s: float) -> RedisAddress:
    """Return the address, as that of a cluster if the server is a node of one. Raises `UsageError`, or `errors`."""
    _refuse_missing(address)
    refuse_plain(address)
    if address.mode is not RedisMode.SERVER:
        return address
    client = blocking_client(address, answer_max_s)
    try:
        is_cluster = bool(client.info("cluster").get("cluster_enabled"))
    except package_redis().exceptions.ResponseError as error:
        if not hides_info(error):
            raise
        is_cluster = False
    finally:
        client.close()
    return address._replace(form=RedisMode.CLUSTER) if is_cluster else address


def hides_info(error: Exception) -> bool:
    """Tell whether the server does not let us see its INFO, as some do that others run for us."""
    said = str(error).lower()
    refused = isinstance(error, package_redis().exceptions.NoPermissionError) or said.startswith("unknown command")
    return refused and "'info'" in said


def everywhere(client: Any) -> dict[str, Any]:
    """Return the options that let a command go to all masters, where there are several."""
    return {"target_nodes": client.PRIMARIES} if hasattr(client, "PRIMARIES") else {}


def refuse_unfit(text: str, info: Mapping[str, Any], what: str) -> None:
    """Refuse a server that is too old for `what`, or would drop keys when its memory is full, by a part of its INFO.

    Raises `StorageError`.
    """
    for each in _each(info):
        version = str(each.get("redis_version", "7.0"))
        if tuple(int(part) for part in version.split(".")[:2]) < VERSION_MIN:
            raise StorageError(f"{text}: the server is Redis {version}; {what} needs 7.0 or later, or Valkey")
        policy = each.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":  # also without a maxmemory: it may be given one at any time
            raise StorageError(
                f"{text}: with maxmemory-policy {policy} the server would drop parts of {what}; set it to noeviction"
            )


def evaluate(client: Any, package: str, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
    """Run a script of a package; return its reply, the first part as text. Raises `errors`."""
    source, digest = _script(package, script)
    given = (len(keys), *keys, *arguments)
    try:
        reply = client.evalsha(digest, *given)
    except package_redis().exceptions.NoScriptError:
        reply = client.eval(source, *given)
    return [reply[0].decode(), *reply[1:]]


def keeps_at_once(client: Any, where: Mapping[str, Any]) -> bool:
    """Tell whether the server forces all that is written to its disk before it answers."""
    found = client.config_get("append*", **where)
    return (found.get("appendonly"), found.get("appendfsync")) == ("yes", "always")


@cache
def _script(package: str, name: str) -> tuple[bytes, str]:
    """Return a script and its digest. Only the first line may say what the script needs."""
    folder = files(package) / "lua"
    head, _, body = (folder / f"{name}.lua").read_bytes().partition(b"\n")
    source = b"\n".join([head, (folder / "common.lua").read_bytes(), body])
    return source, sha1(source, usedforsecurity=False).hexdigest()


def package_redis() -> Any:
    """Return the package. Raises `UsageError` when it is not installed."""
    try:
        import redis
    except ImportError as error:
        raise UsageError(MISSING) from error
    return redis


def errors() -> tuple[type[Exception], ...]:
    """Return what a client may raise."""
    exceptions = package_redis().exceptions
    return (exceptions.RedisError, exceptions.RedisClusterException, OSError)


def passes(error: Exception) -> bool:
    """Tell whether asking again can help: the server is away, or a replica is about to take over."""
    exceptions = package_redis().exceptions
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError | exceptions.DataError):
        return False
    if isinstance(error, exceptions.ResponseError):
        away = (exceptions.ClusterDownError, exceptions.ReadOnlyError, exceptions.TryAgainError, exceptions.AskError)
        starts = ("BUSY", "NOREPLICAS", "MASTERDOWN", "MISCONF", "UNBLOCKED")
        return isinstance(error, away) or str(error).startswith(starts)
    return not _is_tls(str(error)) and not _is_any(str(error), *OTHER_FORM)


def moves(error: Exception) -> bool:
    """Tell whether a cluster moves to another server what was asked for, and says to try again until that is done."""
    return isinstance(error, package_redis().exceptions.TryAgainError) or "TTL exhausted" in str(error)


def ours(text: str, error: Exception, *, tls: bool, what: str) -> LycosaError:
    """Return what a driver's error means, in one line. `what` is kept there, with the option that would rename it."""
    exceptions = package_redis().exceptions
    said = "the connection was closed" if isinstance(error, RuntimeError) else " ".join(str(error).split())
    if isinstance(error, exceptions.NoPermissionError) or "The user executing the script can't" in said:
        return UsageError(f"{text}: this user may not do there what is needed ({said.partition(' script:')[0]})")
    if isinstance(error, exceptions.AuthenticationError) or _is_any(
        said, "NOAUTH", "WRONGPASS", "Authentication required", "invalid username-password"
    ):
        return UsageError(f"{text}: the server refuses this user and password, or none ({said})")
    if is_full(error):
        return StorageFull(f"{text}: the server has reached its maxmemory; nothing is lost, give it more and go on")
    if _is_any(said, "CERTIFICATE_VERIFY_FAILED"):
        return UsageError(f"{text}: the certificate of the server is not trusted; name its authority with ca=FILE")
    if moves(error):
        return StorageError(f"{text}: the cluster moves a part of this to another server")
    if type(error).__name__ == "MasterNotFoundError":
        return StorageError(f"{text}: {_no_master(said)}")
    if wrong := next((instead for part, instead in OTHER_FORM.items() if part in said), ""):
        return UsageError(f"{text}: {wrong}")
    if _is_tls(said):
        return UsageError(f"{text}: no TLS with this server ({said}); without TLS write redis://")
    if said.startswith("WRONGTYPE"):
        return ForeignState(f"{text}: the server holds something else under this name; give another {what}")
    if isinstance(error, exceptions.InvalidResponse) or _is_any(said, "Connection closed by server", "reset by peer"):
        return StorageError(f"{text}: the server ended the connection ({said}); does it want TLS, rediss://?")
    if isinstance(error, exceptions.ResponseError):
        return StorageError(f"{text}: the server refuses the call ({said})")
    hint = "; without TLS write redis://" if tls else ""
    return StorageError(f"{text}: no answer from the server ({said}){hint}")


def _no_master(said: str) -> str:
    """Return what the driver means: it names its own parts."""
    what, _, failures = said.partition(" : ")
    return "no answer from any of these Sentinels" if failures else f"these Sentinels say: {what[:1].lower()}{what[1:]}"


def is_full(error: Exception) -> bool:
    """Tell whether the server refuses to write, for it has reached its maxmemory."""
    full = ("OOM", "command not allowed when used memory")
    return isinstance(error, package_redis().exceptions.OutOfMemoryError) or str(error).startswith(full)


def _options(address: RedisAddress, answer_max_s: float) -> dict[str, Any]:
    package = package_redis()
    options: dict[str, Any] = {
        "username": address.login[0],
        "password": address.login[1],
        "protocol": 2,
        "socket_timeout": answer_max_s,
        "socket_connect_timeout": min(answer_max_s, CONNECT_MAX_S),
        "retry": package.retry.Retry(package.backoff.NoBackoff(), 0),
    }
    if not address.socket:
        options["socket_keepalive"] = True
    if address.tls:
        _refuse_missing(address)
        named = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
        options |= {"ssl": True, **{named[name]: file for name, file in address.files.items()}}
    return options


def _refuse_missing(address: RedisAddress) -> None:
    for name, file in address.files.items():
        if not Path(file).is_file():
            raise UsageError(f"{address.text}: {name}={file} is no file")


def _place(address: RedisAddress) -> dict[str, Any]:
    if address.socket:
        return {"unix_socket_path": address.socket, "db": address.database}
    ((host, port),) = address.nodes
    return {"host": host, "port": port, "db": address.database}


def _watched(sentinel: Any, address: RedisAddress, options: Mapping[str, Any]) -> Any:
    user, password = address.sentinel_login
    asked = {**options, "username": user, "password": password}
    return sentinel(address.nodes, sentinel_kwargs=asked, **options).master_for(address.master, db=address.database)


def _each(info: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return what each node of a cluster says, or the only one."""
    several = all(isinstance(value, Mapping) for value in info.values())
    return info.values() if several else [info]


def _is_tls(said: str) -> bool:
    return _is_any(said, "SSL", "[TLS")


def _is_any(said: str, *parts: str) -> bool:
    return any(part in said for part in parts)
