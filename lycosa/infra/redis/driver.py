"""Classify and translate the errors of redis-py."""

from __future__ import annotations

from typing import Any

from lycosa.core.errors import ForeignState, LycosaError, StorageError, StorageFull, UsageError

MISSING = "Redis support needs the packages redis and hiredis: pip install 'lycosa[redis]'"

WRONG_ADDRESS = {
    "CERTIFICATE_VERIFY_FAILED": "the certificate of the server is not trusted; name its authority with ca=FILE",
    "Cluster mode is not enabled": "this server is not a node of a cluster; write redis://",
    "unknown command 'SENTINEL'": "this server is not a Sentinel; write redis://",
    "DB index is out of range": "the server has no database with this number; write a smaller one",
}
"""Parts of errors about a wrong address -> our message with advice."""

TLS_WORDS = ("SSL", "[TLS")


def redis_package() -> Any:
    """Import `redis`. Raises `UsageError` if it is not installed."""
    try:
        import redis
    except ImportError as error:
        raise UsageError(MISSING) from error
    return redis


def driver_errors() -> tuple[type[Exception], ...]:
    """Return the classes of errors that a client may raise."""
    exceptions = redis_package().exceptions
    return (exceptions.RedisError, exceptions.RedisClusterException, OSError)


def is_transient(error: Exception) -> bool:
    """Return whether another try may succeed: the server is down or busy, or a replica is about to take over."""
    exceptions = redis_package().exceptions
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError | exceptions.DataError):
        return False
    if isinstance(error, exceptions.ResponseError):
        away = (exceptions.ClusterDownError, exceptions.ReadOnlyError, exceptions.TryAgainError, exceptions.AskError)
        prefixes = ("BUSY", "NOREPLICAS", "MASTERDOWN", "MISCONF", "UNBLOCKED")
        return isinstance(error, away) or str(error).startswith(prefixes)
    return not _mentions(str(error), *TLS_WORDS, *WRONG_ADDRESS)


def is_resharding(error: Exception) -> bool:
    """Return whether a cluster is moving the keys of the call to another server."""
    return isinstance(error, redis_package().exceptions.TryAgainError) or "TTL exhausted" in str(error)


def is_full(error: Exception) -> bool:
    """Return whether the server refuses to write because it has reached its maxmemory."""
    prefixes = ("OOM", "command not allowed when used memory")
    return isinstance(error, redis_package().exceptions.OutOfMemoryError) or str(error).startswith(prefixes)


def hides_info(error: Exception) -> bool:
    """Return whether this user may not call INFO, as on some managed servers."""
    message = str(error).lower()
    refused = isinstance(error, redis_package().exceptions.NoPermissionError) or message.startswith("unknown command")
    return refused and "'info'" in message


def translate(text: str, error: Exception, *, tls: bool, option: str) -> LycosaError:
    """Translate an error of the driver. `text` names the server; the command-line `option` names our data on it."""
    exceptions = redis_package().exceptions
    # uvloop raises RuntimeError for a write to a closed connection.
    message = "the connection was closed" if isinstance(error, RuntimeError) else " ".join(str(error).split())
    if isinstance(error, exceptions.NoPermissionError) or "The user executing the script can't" in message:
        return UsageError(f"{text}: this user lacks a permission ({message.partition(' script:')[0]})")
    if isinstance(error, exceptions.AuthenticationError) or _mentions(
        message, "NOAUTH", "WRONGPASS", "Authentication required", "invalid username-password"
    ):
        return UsageError(f"{text}: the server rejects this user and password, or requires them ({message})")
    if is_full(error):
        full = "the server has reached its maxmemory; nothing is lost: raise maxmemory and continue"
        return StorageFull(f"{text}: {full}")
    if is_resharding(error):
        return StorageError(f"{text}: the cluster is moving keys to another server")
    if type(error).__name__ == "MasterNotFoundError":
        return StorageError(f"{text}: {_without_master(message)}")
    if message.startswith("WRONGTYPE"):
        return ForeignState(f"{text}: the server has other data under this name; give another {option}")
    if wrong := next((advice for part, advice in WRONG_ADDRESS.items() if part in message), ""):
        return UsageError(f"{text}: {wrong}")
    if _mentions(message, *TLS_WORDS):
        return UsageError(
            f"{text}: the TLS connection failed ({message}); if the server does not use TLS, write redis://"
        )
    if isinstance(error, exceptions.InvalidResponse) or _mentions(
        message, "Connection closed by server", "reset by peer"
    ):
        return StorageError(f"{text}: the server ended the connection ({message}); if it requires TLS, write rediss://")
    if isinstance(error, exceptions.ResponseError):
        return StorageError(f"{text}: the server refuses the call ({message})")
    hint = "; without TLS write redis://" if tls else ""
    if "refused" in message:
        return StorageError(f"{text}: the connection was refused: is Redis running there?{hint}")
    return StorageError(f"{text}: no answer from the server ({message}){hint}")


def _without_master(message: str) -> str:
    # The driver lists its Sentinel objects after the colon.
    what, _, failures = message.partition(" : ")
    return "no answer from any of these Sentinels" if failures else f"these Sentinels say: {what[:1].lower()}{what[1:]}"


def _mentions(message: str, *parts: str) -> bool:
    return any(part in message for part in parts)
